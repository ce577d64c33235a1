"""A `Filter` as SQL: fixed fragments for known columns, and parameters for everything that the user typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from windlass.model.filter import RANGE, Filter, Kind, Term, Value
from windlass.model.job import DEFAULT_TENANT
from windlass.model.state import State

MOST_ROWS = 1_000
MOST_IDS = 10_000
WHOLE_ID = 36  # characters
NAMED_TENANT = f"coalesce(jobs.tenant, '') <> '{DEFAULT_TENANT}'"
"""The condition of the index of tenants: without it, neither planner may use that index."""
OPPOSITE = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "=": "="}
"""A greater age is an earlier time."""
SPELT_ONCE = re.compile(r"(?=.*[^0-9.eE+-])[ !#-\[\]-~]+")  # ASCII without quotes and backslashes, and no number
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}")


class Dialect(msgspec.Struct, frozen=True):
    """The same conditions in the SQL of one database. `{n}` is a parameter's number, `{column}` a column from FIELDS.

    `json` walks to a place in a document and applies a test to the value there; of an array, any element may pass.
    The tests of one element have names that begin with `element_`.
    """

    any_of: str
    equal: str
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


def where(filter: Filter, dialect: Dialect, first: int, tenant: str | None = None) -> tuple[str, list[Any]]:
    """The condition and its parameters, numbered from `first`.

    With `tenant` only jobs of that tenant match. It is a condition of its own, joined by "and" to the filter's terms,
    and its value is a parameter: no text of a filter can widen it.
    """
    conditions: list[str] = ["true"]
    parameters: list[Any] = []
    if tenant is not None:
        conditions.append(dialect.equal.format(column="tenant", n=first))
        parameters.append(tenant)
    if (tenant or _only_tenant(filter)) not in (None, DEFAULT_TENANT):
        conditions.append(NAMED_TENANT)
    for term in filter.terms:
        condition, values = _condition(term, dialect, first + len(parameters))
        conditions.append(f"NOT coalesce({condition}, false)" if term.negated else condition)
        parameters += values
    return " AND ".join(conditions), parameters


def _only_tenant(filter: Filter) -> str | None:
    """The tenant that a filter names, if it names one."""
    named = [term for term in filter.terms if term.column == "tenant" and _is_plain(term)]
    return named[0].values[0].text if len(named) == 1 and len(named[0].values) == 1 else None


def _is_plain(term: Term) -> bool:
    """Whether a term names values as they are: an index can be entered at them."""
    return not term.negated and all(len(value.pieces) == 1 for value in term.values)


# A list of states


def named_states(filter: Filter) -> list[str]:
    """The states that a filter leaves, where it names states or queues; else none."""
    if not any(_is_plain(term) and term.column in ("status", "queue") for term in filter.terms):
        return []
    return sorted(_states_of(filter)) or ["none"]


def listing(filter: Filter, dialect: Dialect, first: int, tenant: str | None) -> tuple[str, str, str, list[Any]]:
    """The statement of a page of jobs, its conditions, and its parameters from `first` on."""
    states = named_states(filter)
    if not states:
        condition, parameters = where(filter, dialect, first, tenant)
        return "search", condition, "", parameters
    condition, parameters = where(filter, dialect, first + 1, tenant)
    names, queues = where(queues_of(filter), dialect, first + 1 + len(parameters))
    return "search_by_state", condition, names, [dialect.array(states), *parameters, *queues]


def _states_of(filter: Filter) -> set[str]:
    states = {state.value for state in State}
    for term in filter.terms:
        if term.kind is Kind.STATE:
            named = {value.text for value in term.values}
            states = states - named if term.negated else states & named
    return states


# Facets

MOST_FACETED = 10_001  # jobs: one more than is counted
MOST_READ = 20_000  # rows of each part
FACETS = ("state", "queue", "type", "tenant", "phase", "pipeline", "reason", "key", "error")
"""The fields by which matching jobs are counted: those of the statement's fragment `facets_of_matching`."""
NAMED = {"status", "queue", "type", "tenant"}


class FacetParts(msgspec.Struct, frozen=True):
    """Which parts of the jobs can match a filter of states: each part has an index of its own."""

    claimable: bool  # queued and failed jobs, parked ones included
    running: bool
    aside: list[str]
    ended: bool
    cancelled: bool


def has_parts(filter: Filter, tenant: str | None) -> bool:
    """Whether the jobs that may match are read state by state. Those of a named tenant have an index of their own."""
    if (tenant or _only_tenant(filter)) not in (None, DEFAULT_TENANT):
        return False
    if any(term.column == "id" and _is_entered(term) for term in filter.terms):  # each part would end at its newest
        return False
    return bool(named_states(filter)) or all(term.column in NAMED for term in filter.terms)


def entered(filter: Filter, tenant: str | None) -> Filter:
    """The terms by which the indexes are entered; all others are compared row by row."""
    indexed = ("status", "queue") if has_parts(filter, tenant) else ("fingerprint", "tenant", "id")
    return Filter("", tuple(term for term in filter.terms if term.column in indexed and _is_entered(term)))


def _is_entered(term: Term) -> bool:
    if term.kind is Kind.ID:  # a part of an id is in no index
        return not term.negated and all(len(value.text) == WHOLE_ID for value in term.values)
    return term.kind is Kind.STATE or _is_plain(term)


def queues_of(filter: Filter) -> Filter:
    """The terms by which an index of a queue's jobs can be entered."""
    return Filter("", tuple(term for term in filter.terms if term.column == "queue" and _is_plain(term)))


def counting(
    filter: Filter, dialect: Dialect, first: int, tenant: str | None
) -> tuple[str, str, str, Sequence[Any], list[Any]]:
    """The statement that counts facets, its conditions, the parts that may match, and its parameters.

    The parameters follow those of the statement itself, and it has more of them where it reads part by part.
    """
    parts = parts_of(filter) if has_parts(filter, tenant) else None
    chosen: Sequence[Any] = (
        ()
        if parts is None
        else (parts.claimable, parts.running, dialect.array(parts.aside), parts.ended, parts.cancelled)
    )
    condition, parameters = where(filter, dialect, first + len(chosen), tenant)
    narrow, only = (entered(filter, tenant), tenant) if parts is None else (queues_of(filter), None)
    names, more = where(narrow, dialect, first + len(chosen) + len(parameters), only)
    return "facets" if parts is None else "facets_by_name", condition, names, chosen, [*parameters, *more]


def parts_of(filter: Filter) -> FacetParts:
    """Failed jobs are read with the queued ones, or alone by the index of jobs that are set aside, and never twice."""
    states = _states_of(filter)
    claimable, aside = "queued" in states, {"waiting", "dead"}
    return FacetParts(
        claimable=claimable,
        running="running" in states,
        aside=sorted(states & (aside if claimable else aside | {"failed"})),
        ended="succeeded" in states,
        cancelled="cancelled" in states and "succeeded" not in states,
    )


def collect_facets(fields: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, int]]:
    """By field and value, in the order of the rows."""
    found: dict[str, dict[str, int]] = {field: {} for field in fields}
    for field, value, jobs in rows:
        found[field][value] = jobs
    return found


# A condition


def _condition(term: Term, dialect: Dialect, n: int) -> tuple[str, list[Any]]:
    conditions = _Conditions(term, n)
    match term.kind:
        case Kind.STATE:
            conditions.add(dialect.any_of, dialect.array([value.text for value in term.values]))
        case Kind.ID:
            _add_ids(conditions, term, dialect)
        case Kind.FINGERPRINT:
            for value in term.values:
                conditions.add(dialect.equal, value.text)
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
    if len(term.values) == 1 and plain and any_of is dialect.any_of:
        conditions.add(dialect.equal, plain[0])  # so that an index on the column and the id has the list's order
    elif plain:
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
    walk, parameters = walk.replace("{column}", term.column), [*conditions.parameters, *steps]
    stored = _Conditions(term, n + len(parameters))
    for text in _stored_texts(term):
        stored.add(dialect.like, dialect.pattern(["", text, ""]))
    return f"({stored.joined} AND {walk})" if stored.parameters else walk, [*parameters, *stored.parameters]


def _stored_texts(term: Term) -> list[str]:
    """Texts of which the stored document of each match has one, or none: JSON may spell a quote or 5.0 in several ways.

    To look for a text is several times as fast as to walk a document, and an operator's index of trigrams finds it.
    """
    texts = [max(value.pieces, key=len) for value in term.values]
    spelt = [SPELT_ONCE, INTEGER] if all(len(value.pieces) == 1 for value in term.values) else [SPELT_ONCE]
    certain = term.comparison == "=" and all(any(each.fullmatch(text) for each in spelt) for text in texts)
    return texts if certain else []


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
    # An object or array is no text: `input.login:*a*` would compare the secrets in it, and a reader could guess them.
    walk = (
        f"EXISTS (SELECT FROM (SELECT jobs.{{column}} #> ${n}::text[] AS found) AS place,"
        " LATERAL json_array_elements(CASE json_typeof(place.found) WHEN 'array' THEN place.found"
        " ELSE json_build_array(place.found) END) AS element (found)"
        " WHERE place.found IS NOT NULL AND json_typeof(element.found) NOT IN ('object', 'array')"
        f" AND {test})"
    )
    return walk, [list(path)]


POSTGRES = Dialect(
    any_of="jobs.{column} = ANY (${n}::text[])",
    # An index on the column and the id has the order of the list; with a list of values it has not.
    equal="jobs.{column} = ${n}::text",
    any_id="jobs.{column} = ANY (${n}::uuid[])",
    part_of_id="replace(jobs.{column}::text, '-', '') LIKE ${n}::text",
    like="jobs.{column}::text LIKE ${n}::text ESCAPE '\\'",  # the column may be JSON
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
    equal="jobs.{column} = ?{n}",
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
