"""A `Filter` as SQL: fixed fragments for known columns, and parameters for everything that somebody typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass.filter import Filter, Kind, Term

MOST_ROWS = 1_000
OPPOSITE = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "=": "="}
"""An age that is greater belongs to a time that is smaller."""


class Dialect(msgspec.Struct, frozen=True):
    """How the two databases say the same. `{n}` is a parameter's number, `{column}` a column from FIELDS."""

    any_of: str
    begins: str
    contains: str
    json: str
    older: str
    number: str
    array: Callable[[tuple[str, ...]], Any]
    path: Callable[[tuple[str, ...]], Any]


POSTGRES = Dialect(
    any_of="jobs.{column}::text = ANY (${n}::text[])",
    begins="jobs.{column} LIKE ${n}::text ESCAPE '\\'",
    contains="jobs.{column}::text ILIKE ${n}::text ESCAPE '\\'",
    json="jobs.{column} #>> ${p}::text[] = ANY (${n}::text[])",
    older="jobs.{column} {comparison} windlass.now() - make_interval(secs => ${n}::float8)",
    number="jobs.{column} {comparison} ${n}::float8",
    array=list,
    path=list,
)
SQLITE = Dialect(
    any_of="jobs.{column} IN (SELECT value FROM json_each(?{n}))",
    begins="jobs.{column} LIKE ?{n} ESCAPE '\\'",
    contains="jobs.{column} LIKE ?{n} ESCAPE '\\'",
    json="CAST(CASE json_type(jobs.{column}, ?{p}) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'"
    " ELSE json_extract(jobs.{column}, ?{p}) END AS TEXT) IN (SELECT value FROM json_each(?{n}))",
    older="jobs.{column} {comparison} ?1 - CAST(?{n} * 1000000 AS INTEGER)",
    number="jobs.{column} {comparison} ?{n}",
    array=lambda values: msgspec.json.encode(values).decode(),
    path=lambda steps: "$" + "".join(f'."{step}"' if not step.isdigit() else f"[{step}]" for step in steps),
)


def where(filter: Filter, dialect: Dialect, first: int) -> tuple[str, list[Any]]:
    """The condition and its parameters, numbered from `first`."""
    conditions: list[str] = ["true"]
    parameters: list[Any] = []
    for term in filter.terms:
        condition, values = _condition(term, dialect, first + len(parameters))
        conditions.append(f"NOT coalesce({condition}, false)" if term.negated else condition)
        parameters += values
    return " AND ".join(conditions), parameters


def _condition(term: Term, dialect: Dialect, n: int) -> tuple[str, list[Any]]:
    match term.kind:
        case Kind.NUMBER:
            return dialect.number.format(column=term.column, comparison=term.comparison, n=n), [term.number]
        case Kind.AGE:
            comparison = OPPOSITE[term.comparison]
            return dialect.older.format(column=term.column, comparison=comparison, n=n), [term.number]
        case Kind.JSON:
            text = dialect.json.format(column=term.column, p=n, n=n + 1)
            return text, [dialect.path(term.path), dialect.array(term.values)]
        case Kind.TEXT:
            return _any(dialect.contains, term, n, lambda value: f"%{escaped(value)}%")
        case Kind.NAME if any(value.endswith("*") for value in term.values):
            return _any(dialect.begins, term, n, pattern)
        case _:
            return dialect.any_of.format(column=term.column, n=n), [dialect.array(term.values)]


def _any(fragment: str, term: Term, n: int, of: Callable[[str], str]) -> tuple[str, list[Any]]:
    """One LIKE per value, joined by "or"."""
    conditions = [fragment.format(column=term.column, n=n + place) for place in range(len(term.values))]
    return f"({' OR '.join(conditions)})", [of(value) for value in term.values]


def pattern(name: str) -> str:
    """A name with an optional `*` at its end, for LIKE."""
    return escaped(name[:-1]) + "%" if name.endswith("*") else escaped(name)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
