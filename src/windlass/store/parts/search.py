"""A `Filter` as SQL: fixed fragments for known columns, and parameters for everything that the user typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.model.filter import RANGE, Filter, Kind, Term, Value

MOST_ROWS = 1_000
WHOLE_ID = 36  # characters
OPPOSITE = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "=": "="}
"""A greater age is an earlier time."""


class Dialect(msgspec.Struct, frozen=True):
    """The same conditions in the SQL of one database. `{n}` is a parameter's number, `{column}` a column from FIELDS.

    `json` walks to a place in a document and applies a test to the value there; of an array, any element may pass.
    The tests of one element have names that begin with `element_`.
    """

    any_of: str
    any_id: str
    part_of_id: str
    like: str
    contains: str
    older: str
    number: str
    element_any_of: str
    element_like: str
    element_number: str
    element_null: str
    json: Callable[[Sequence[str], int, str], tuple[str, list[Any]]]
    array: Callable[[Sequence[str]], Any]
    pattern: Callable[[list[str]], str]
    numeral: Callable[[int | float], Any]


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
    conditions = _Conditions(term, n)
    match term.kind:
        case Kind.STATE:
            conditions.add(dialect.any_of, dialect.array([value.text for value in term.values]))
        case Kind.ID:
            _add_ids(conditions, term, dialect)
        case Kind.NUMBER:
            for value, comparison in _compared(term):
                conditions.add(dialect.number, _float(value), comparison=comparison)
        case Kind.AGE:
            for value, comparison in _compared(term):
                conditions.add(dialect.older, _float(value), comparison=OPPOSITE[comparison])
        case Kind.NAME:
            _add_texts(conditions, term, dialect, dialect.any_of, dialect.like)
        case Kind.TEXT:
            for value in term.values:
                conditions.add(dialect.contains, like_pattern(["", *value.pieces, ""]))
        case Kind.JSON:
            return _json(term, dialect, n)
    return conditions.joined, conditions.parameters


class _Conditions:
    """Conditions and their parameters, joined by "or"; the two bounds of a range are joined by "and"."""

    def __init__(self, term: Term, first: int) -> None:
        self._column = term.column
        self._joint = " AND " if term.comparison == RANGE else " OR "
        self._first = first
        self._conditions: list[str] = []
        self.parameters: list[Any] = []

    def add(self, fragment: str, *parameters: Any, comparison: str = "=") -> None:
        n = self._first + len(self.parameters)
        self._conditions.append(fragment.format(column=self._column, comparison=comparison, n=n))
        self.parameters += parameters

    @property
    def joined(self) -> str:
        return f"({self._joint.join(self._conditions)})"


def _compared(term: Term) -> list[tuple[Value, str]]:
    """Each value with its comparison."""
    if term.comparison == RANGE:
        return list(zip(term.values, (">=", "<="), strict=True))
    return [(value, term.comparison) for value in term.values]


def _add_texts(conditions: _Conditions, term: Term, dialect: Dialect, any_of: str, like: str) -> None:
    plain = [value.text for value in term.values if len(value.pieces) == 1]
    if plain:
        conditions.add(any_of, dialect.array(plain))
    for value in term.values:
        if len(value.pieces) > 1:
            conditions.add(like, dialect.pattern(value.pieces))


def _add_ids(conditions: _Conditions, term: Term, dialect: Dialect) -> None:
    """Whole ids are found by the index. A part may be the beginning or, as ids are displayed, the end."""
    whole = [value.text for value in term.values if len(value.text) == WHOLE_ID]
    if whole:
        conditions.add(dialect.any_id, dialect.array(whole))
    for value in term.values:
        if len(value.text) < WHOLE_ID:
            conditions.add(dialect.part_of_id, f"{value.text}%")
            conditions.add(dialect.part_of_id, f"%{value.text}")


def _json(term: Term, dialect: Dialect, n: int) -> tuple[str, list[Any]]:
    conditions = _Conditions(term, n)
    if term.comparison == "=":
        _add_texts(conditions, term, dialect, dialect.element_any_of, dialect.element_like)
    for value, comparison in _compared(term):
        if value.number is not None:
            conditions.add(dialect.element_number, dialect.numeral(value.number), comparison=comparison)
        elif value.text == "null" and not value.quoted:
            conditions.add(dialect.element_null)
    walk, steps = dialect.json(term.path, n + len(conditions.parameters), conditions.joined)
    return walk.replace("{column}", term.column), [*conditions.parameters, *steps]


def _float(value: Value) -> float:
    assert value.number is not None, "the filter's parser has set it"
    return float(value.number)


def like_pattern(pieces: list[str]) -> str:
    """For LIKE: the pieces literally, and any text between them."""
    escaped = (piece.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for piece in pieces)
    return "%".join(escaped)


def glob_pattern(pieces: list[str]) -> str:
    """For SQLite's GLOB, which distinguishes upper and lower case; its LIKE does not."""
    return "*".join("".join(f"[{letter}]" if letter in "*?[" else letter for letter in piece) for piece in pieces)


# PostgreSQL


def _postgres_json(path: Sequence[str], n: int, test: str) -> tuple[str, list[Any]]:
    walk = (
        f"EXISTS (SELECT FROM (SELECT jobs.{{column}} #> ${n}::text[] AS found) AS place,"
        " LATERAL json_array_elements(CASE json_typeof(place.found) WHEN 'array' THEN place.found"
        " ELSE json_build_array(place.found) END) AS element (found)"
        f" WHERE place.found IS NOT NULL AND {test})"
    )
    return walk, [list(path)]


POSTGRES = Dialect(
    any_of="jobs.{column} = ANY (${n}::text[])",
    any_id="jobs.{column} = ANY (${n}::uuid[])",
    part_of_id="replace(jobs.{column}::text, '-', '') LIKE ${n}::text",
    like="jobs.{column} LIKE ${n}::text ESCAPE '\\'",
    # The text of an error as it is displayed, not its JSON: a quote in a message is a quote.
    contains="(jobs.{column} ->> 'type') || ': ' || (jobs.{column} ->> 'message') ILIKE ${n}::text ESCAPE '\\'",
    older="jobs.{column} {comparison} windlass.now() - make_interval(secs => ${n}::float8)",
    number="jobs.{column} {comparison} ${n}::float8",
    element_any_of="element.found #>> '{{}}' = ANY (${n}::text[])",
    element_like="element.found #>> '{{}}' LIKE ${n}::text ESCAPE '\\'",
    # CASE: a cast of what is no number would be an error.
    element_number="CASE json_typeof(element.found) WHEN 'number'"
    " THEN (element.found #>> '{{}}')::numeric {comparison} ${n}::text::numeric ELSE false END",
    element_null="json_typeof(element.found) = 'null'",
    json=_postgres_json,
    array=list,
    pattern=like_pattern,
    numeral=str,
)


# SQLite


def _sqlite_json(path: Sequence[str], n: int, test: str) -> tuple[str, list[Any]]:
    """A join per step instead of a JSON path: a key may contain any character, and `0` may be an index or a key."""
    joins = ["json_each(jobs.{column}) AS step0"]
    conditions: list[str] = []
    for depth in range(1, len(path) + 1):
        conditions.append(f"CAST(step{depth - 1}.key AS TEXT) = ?{n + depth - 1}")
        inside = f"CASE WHEN step{depth - 1}.type IN ('object', 'array') THEN step{depth - 1}.value ELSE '[]' END"
        if depth < len(path):
            joins.append(f"json_each({inside}) AS step{depth}")
    last = f"step{len(path) - 1}"
    # The elements of an array, or the value itself as the only one.
    joins.append(
        f"json_each(CASE {last}.type WHEN 'array' THEN {last}.value"
        f" WHEN 'object' THEN json_array(json({last}.value)) WHEN 'true' THEN '[true]' WHEN 'false' THEN '[false]'"
        f" ELSE json_array({last}.value) END) AS element"
    )
    return f"EXISTS (SELECT 1 FROM {', '.join(joins)} WHERE {' AND '.join([*conditions, test])})", list(path)


SQLITE_ELEMENT = "CASE element.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE element.atom END"

SQLITE = Dialect(
    any_of="jobs.{column} IN (SELECT value FROM json_each(?{n}))",
    any_id="jobs.{column} IN (SELECT value FROM json_each(?{n}))",
    part_of_id="replace(jobs.{column}, '-', '') LIKE ?{n}",
    like="jobs.{column} GLOB ?{n}",
    contains="json_extract(jobs.{column}, '$.type') || ': ' || json_extract(jobs.{column}, '$.message')"
    " LIKE ?{n} ESCAPE '\\'",
    older="jobs.{column} {comparison} ?1 - CAST(?{n} * 1000000 AS INTEGER)",
    number="jobs.{column} {comparison} ?{n}",
    element_any_of=f"CAST({SQLITE_ELEMENT} AS TEXT) IN (SELECT value FROM json_each(?{{n}}))",
    element_like=f"CAST({SQLITE_ELEMENT} AS TEXT) GLOB ?{{n}}",
    element_number="(element.type IN ('integer', 'real') AND element.atom {comparison} ?{n})",
    element_null="element.type = 'null'",
    json=_sqlite_json,
    array=lambda values: msgspec.json.encode(values).decode(),
    pattern=glob_pattern,
    numeral=lambda number: number,
)
