"""The filter language, parsed in one place: `queue:mail state:failed,dead input.user_id:42 error:Timeout age:>1h`.

Terms are joined by "and"; commas inside a value mean "or"; a leading `-` means "not"; quotes keep spaces; a `*`
at the end of a name matches its beginning. Stores turn a `Filter` into SQL with parameters only (`store/search.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.clock import seconds
from windlass.config import suggest
from windlass.errors import ConfigError, FilterError
from windlass.state import State

LONGEST_FILTER = 2_000  # characters
MOST_TERMS = 20
DEEPEST_PATH = 8
SYNTAX = (
    'write terms like: queue:mail state:failed,dead type:send* input.user_id:42 error:"timed out" age:>1h -tenant:acme'
)


class Kind(StrEnum):
    """How a field's value is read and compared."""

    NAME = "name"
    STATE = "state"
    NUMBER = "number"
    AGE = "age"
    ID = "id"
    JSON = "json"
    TEXT = "text"  # contains, in any case


FIELDS: dict[str, tuple[Kind, str]] = {
    "queue": (Kind.NAME, "queue"),
    "type": (Kind.NAME, "type"),
    "tenant": (Kind.NAME, "tenant"),
    "key": (Kind.NAME, "key"),
    "phase": (Kind.NAME, "phase"),
    "pipeline": (Kind.NAME, "pipeline"),
    "reason": (Kind.NAME, "reason"),
    "state": (Kind.STATE, "status"),
    "status": (Kind.STATE, "status"),
    "id": (Kind.ID, "id"),
    "worker": (Kind.ID, "worker"),
    "parent": (Kind.ID, "parent"),
    "priority": (Kind.NUMBER, "priority"),
    "attempt": (Kind.NUMBER, "attempt"),
    "crashes": (Kind.NUMBER, "crashes"),
    "cost": (Kind.NUMBER, "cost_cents"),
    "age": (Kind.AGE, "created_at"),
    "touched": (Kind.AGE, "updated_at"),
    "error": (Kind.TEXT, "error"),
    "input": (Kind.JSON, "input"),
    "output": (Kind.JSON, "output"),
}
"""What can be asked: the word in a filter, how it is compared, and its column. Nothing else reaches SQL."""

TERM = re.compile(r'(-?)([A-Za-z_]+(?:\.[^\s:"]+)*):((?:"(?:[^"\\]|\\.)*"|[^\s"])*)')
COMPARISON = re.compile(r"(>=|<=|>|<|=)?(.*)", re.DOTALL)


class Term(msgspec.Struct, frozen=True):
    """One condition. Numbers and ages have one value and a comparison; everything else is "any of"."""

    kind: Kind
    column: str
    values: tuple[str, ...]
    comparison: str = "="
    path: tuple[str, ...] = ()
    negated: bool = False
    number: float = 0.0


class Filter(msgspec.Struct, frozen=True):
    """A parsed filter and the text it came from."""

    text: str
    terms: tuple[Term, ...]

    @property
    def everything(self) -> bool:
        return not self.terms


def parse(text: str) -> Filter:
    """A filter from what somebody typed; every mistake names its place and what would be right."""
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"the filter has {len(text)} characters; {LONGEST_FILTER} is the most")
    terms = tuple(_terms(text))
    if len(terms) > MOST_TERMS:
        raise FilterError(f"the filter has {len(terms)} terms; {MOST_TERMS} is the most")
    return Filter(text.strip(), terms)


def _terms(text: str) -> Iterator[Term]:
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        match = TERM.match(text, place)
        if match is None or (match.end() < len(text) and not text[match.end()].isspace()):
            word = text[place:].split()[0]
            yield _bare(word, place)
            place += len(word)
            continue
        yield _term(negated=match[1] == "-", name=match[2], raw=match[3])
        place = match.end()


def _bare(word: str, place: int) -> Term:
    """A word without a field: a job id is understood, anything else is asked back."""
    try:
        return Term(Kind.ID, "id", (str(UUID(word)),))
    except ValueError:
        raise FilterError(f"{word!r} at character {place + 1} is not a term; {SYNTAX}") from None


def _term(*, negated: bool, name: str, raw: str) -> Term:
    word, *path = name.split(".")
    known = FIELDS.get(word.lower())
    if known is None:
        raise FilterError(f"there is no field {word!r}{suggest(word, FIELDS)}")
    kind, column = known
    if bool(path) != (kind is Kind.JSON):
        raise FilterError(
            f"{name}: write {word}.<name>:<value>, for example {word}.user_id:42"
            if kind is Kind.JSON
            else f"{name}: {word} has nothing inside; write {word}:<value>"
        )
    if len(path) > DEEPEST_PATH:
        raise FilterError(f"{name}: a path may have {DEEPEST_PATH} steps")
    comparison, values = _values(name, raw)
    if kind in (Kind.NUMBER, Kind.AGE):
        return _measured(kind, column, name, comparison, values, negated=negated)
    if comparison != "=":
        raise FilterError(f"{name}: only numbers and ages can be compared with {comparison}")
    checked = tuple(_checked(kind, name, value) for value in values)
    return Term(kind, column, checked, path=tuple(path), negated=negated)


def _values(name: str, raw: str) -> tuple[str, tuple[str, ...]]:
    """The comparison and the values between commas; quotes protect both spaces and commas."""
    match = COMPARISON.match(raw)
    assert match is not None, "the pattern matches everything"
    pieces = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,"]+)', match[2])
    values = tuple(re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in pieces)
    if not values or any("\0" in value for value in values):
        raise FilterError(f"{name}: has no value; {SYNTAX}")
    return match[1] or "=", values


def _measured(kind: Kind, column: str, name: str, comparison: str, values: tuple[str, ...], *, negated: bool) -> Term:
    if len(values) != 1:
        raise FilterError(f"{name}: takes one value, for example {name}:>3")
    try:
        number = seconds(values[0], what=name) if kind is Kind.AGE else float(int(values[0]))
    except (ConfigError, ValueError):
        example = "1h" if kind is Kind.AGE else "3"
        raise FilterError(f"{name}: {values[0]!r} cannot be compared; write {name}:>{example}") from None
    if kind is Kind.AGE and comparison == "=":
        comparison = ">="
    return Term(kind, column, values, comparison, negated=negated, number=number)


def _checked(kind: Kind, name: str, value: str) -> str:
    if kind is Kind.STATE:
        if value not in {state.value for state in State}:
            raise FilterError(f"{name}: there is no state {value!r}{suggest(value, dict.fromkeys(State))}")
    elif kind is Kind.ID:
        try:
            return str(UUID(value))
        except ValueError:
            raise FilterError(f"{name}: {value!r} is not an id; expected a whole UUID") from None
    return value
