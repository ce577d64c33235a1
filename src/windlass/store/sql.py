"""SQL lives in `.sql` files, one per step of a job's life, with the same names in both dialects."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from windlass.model.job import COLUMNS

LAST = 2**63 - 1
"""Above every number of the audit."""


def auditing(dialect: str, *, job: object, action: object) -> tuple[str, list[object]]:
    """The look into the audit with conditions for what is given only, so that each has an index; their values."""
    given = [(column, value) for column, value in (("job", job), ("action", action)) if value is not None]
    mark = "$" if dialect == "postgres" else "?"
    where = "".join(f" AND {column} = {mark}{place}" for place, (column, _) in enumerate(given, start=3))
    return query(dialect, "audit").replace("{where}", where), [value for _, value in given]


@cache
def searching(dialect: str, where: str) -> str:
    """The search with the condition that `store/parts/search.py` made; it holds fixed fragments and parameters only."""
    return query(dialect, "search").replace("{where}", where)


@cache
def query(dialect: str, name: str) -> str:
    """The text of `store/<dialect>/queries/<name>.sql`; `{columns}` becomes the record's columns in their order."""
    text = files("windlass.store").joinpath(dialect, "queries", f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("{columns}", ", ".join(f"jobs.{column}" for column in COLUMNS))


@cache
def statements(dialect: str, name: str) -> tuple[str, ...]:
    """The statements of a file that has several, one after the other, between lines `-- then`."""
    return tuple(part.strip() for part in query(dialect, name).split("\n-- then\n"))
