"""How well an entity of Wikidata fits an entry, from 0 to 100: by name, dates and description."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rapidfuzz import fuzz
from rapidfuzz.utils import default_process

from entries import Entry
from wikidata import Entity

NAME, DATES, DESCRIPTION = 0.6, 0.3, 0.1  # weights; what the entry leaves empty does not count
ENOUGH = 80.0  # below this, no candidate is taken
PER_YEAR = 20.0  # what each year of difference costs
YEAR = re.compile(r"\d{3,4}")


def rank(entry: Entry, candidates: Iterable[Entity]) -> list[tuple[float, Entity]]:
    """The candidates with their scores, best first; of two equal ones, the one that the search found first."""
    return sorted(((score(entry, each), each) for each in candidates), key=lambda pair: -pair[0])


def score(entry: Entry, entity: Entity) -> float:
    """The weighted mean of what the entry says and the entity can be compared with."""
    names = [fuzz.token_sort_ratio(entry.name, name, processor=default_process) for name in entity.names]
    parts = [(NAME, max(names, default=0.0))]
    dates = [
        _compare_years(ours, theirs)
        for ours, theirs in ((year_of(entry.born), entity.born), (year_of(entry.died), entity.died))
        if ours is not None
    ]
    if dates:
        parts.append((DATES, sum(dates) / len(dates)))
    if entry.description:
        alike = fuzz.token_set_ratio(entry.description, entity.description, processor=default_process)
        parts.append((DESCRIPTION, alike))
    return round(sum(weight * part for weight, part in parts) / sum(weight for weight, _ in parts), 1)


def year_of(date: str) -> int | None:
    """The year of `1815`, `1815-12-10`, `10.12.1815` or `c. 1815`; None if there is none."""
    found = YEAR.search(date)
    return None if found is None else int(found[0])


def _compare_years(ours: int, theirs: int | None) -> float:
    return 50.0 if theirs is None else max(0.0, 100.0 - PER_YEAR * abs(ours - theirs))
