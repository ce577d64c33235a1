"""The filter language, parsed in one place: `queue:mail state:failed,dead input.user_id:42 error:Timeout age:1h..`.

Terms are joined by "and"; commas between values mean "or"; a leading `-` means "not"; quotes keep spaces, commas and
stars; a `*` matches any text. `1h..` means "1h or more", `..1h` "1h or less", `2..4` "from 2 to 4": a shell takes `>`
and `<` for redirects, and leaves dots as they are. A bare id, or six or more digits of its beginning or end, is a term,
too. Stores turn a `Filter` into SQL with parameters only (`store/parts/search.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Never
from uuid import UUID

import msgspec

from windlass.clock import seconds
from windlass.config import suggest
from windlass.errors import ConfigError, FilterError
from windlass.model.state import State

LONGEST_FILTER = 2_000  # characters
LONGEST_QUOTE = 60  # characters of a filter that an error repeats
MOST_TERMS = 20
MOST_VALUES = 50  # of one term
DEEPEST_PATH = 8  # steps
SHORTEST_ID = 6  # hex digits
EXAMPLE = 'queue:mail state:failed,dead type:send input.user_id:42 error:"timed out" age:1h.. -tenant:acme'


class Kind(StrEnum):
    """How a field's value is parsed and compared."""

    NAME = "name"
    STATE = "state"
    NUMBER = "number"
    AGE = "age"
    ID = "id"
    FINGERPRINT = "fingerprint"
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
    "due": (Kind.AGE, "run_at"),
    "error": (Kind.TEXT, "error"),
    "fingerprint": (Kind.FINGERPRINT, "fingerprint"),
    "input": (Kind.JSON, "input"),
    "output": (Kind.JSON, "output"),
}
"""The fields of a filter: the name, how its value is compared, and its column. Nothing else reaches SQL."""

COMPARED = (Kind.NUMBER, Kind.AGE, Kind.JSON)
UNUSABLE = re.compile("[\0\ud800-\udfff]")
COMPARISON = re.compile(r">=|<=|>|<|=")
RANGE = ".."
"""Between two values, or before or after one: the comparison of a term that has a lower and an upper bound."""
NUMBER = re.compile(r"-?\d{1,19}(\.\d{1,19})?", re.ASCII)
WHOLE = range(-(2**63), 2**63)  # the integers of databases
NUMERIC_RANGE = re.compile(rf"(?=.*\d)({NUMBER.pattern})?\.\.({NUMBER.pattern})?", re.ASCII)
JOINED = {
    "OR": "values of one field are listed with commas: state:dead,failed",
    "AND": "all terms have to match, so leave it out: state:dead queue:mail",
    "NOT": "a minus is before the term: -state:dead",
}
"""Words that join the terms of other filters, and what is written here."""
STATES = {state.value: state for state in State}
PARTIAL_ID = re.compile(r"[0-9a-f]{6,32}", re.ASCII)
FINGERPRINT = re.compile(r"[0-9a-f]{12}", re.ASCII)


class Value(msgspec.Struct, frozen=True):
    """One value of a term: the typed text, and its number; an age in seconds."""

    text: str
    quoted: bool = False
    number: int | float | None = None

    @property
    def pieces(self) -> list[str]:
        """The text between the stars. One piece: there is no star; a quoted star is an ordinary letter."""
        return [self.text] if self.quoted else self.text.split("*")


class Term(msgspec.Struct, frozen=True):
    """One condition: any of the values, compared in the same way; a range has its lower and its upper bound."""

    kind: Kind
    column: str
    values: tuple[Value, ...]
    comparison: str = "="
    path: tuple[str, ...] = ()
    negated: bool = False
    text: str = ""  # as the user typed it


class Filter(msgspec.Struct, frozen=True):
    """A parsed filter and its text."""

    text: str
    terms: tuple[Term, ...]

    @property
    def everything(self) -> bool:
        return not self.terms

    def asks(self, column: str) -> bool:
        """Whether a term is about this column."""
        return any(term.column == column for term in self.terms)


def parse(text: str) -> Filter:
    """Parse what a user typed; every error names the place and a correct form."""
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"the filter has {len(text):,} characters; {LONGEST_FILTER:,} is the most")
    try:
        unusable = UNUSABLE.search(text)
        if unusable is not None:
            _refuse(unusable.start(), f"{unusable[0]!a} cannot be in the text of a job; take it out")
        terms = tuple(_Scanner(text).terms())
    except _Misspelt as mistake:
        place = text.find(mistake.typed, mistake.place)
        corrected = f"{text[:place]}{mistake.meant}{text[place + len(mistake.typed) :]}" if mistake.meant else None
        raise FilterError(str(mistake), position=mistake.place, corrected=corrected) from None
    if len(terms) > MOST_TERMS:
        raise FilterError(f"the filter has {len(terms)} terms; {MOST_TERMS} is the most")
    return Filter(text.strip(), terms)


class _Misspelt(Exception):
    """What is wrong at a place, and what was probably meant by what was typed there."""

    def __init__(self, message: str, place: int, typed: str = "", meant: str | None = None) -> None:
        super().__init__(message)
        self.place, self.typed, self.meant = place, typed, meant


def partial_id(text: str) -> str | None:
    """The hex digits of a bare id or of a part of one; None for any other text."""
    digits = text.lower().replace("-", "")
    return digits if PARTIAL_ID.fullmatch(digits) else None


class _Scanner:
    """Reads terms from left to right, and keeps its place in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def terms(self) -> Iterator[Term]:
        while True:
            while self._here().isspace():
                self._place += 1
            if not self._here():
                return
            yield self._term()

    def _term(self) -> Term:
        start = self._place
        negated = self._takes("-")
        head = self._until(':"')
        if self._here() == ":":
            term = self._field(start, head.split("."), [], negated=negated)
        elif self._here() == '"' and head.endswith("."):
            steps = self._quoted_path()
            term = self._field(start, head[:-1].split("."), steps, negated=negated)
        else:
            term = self._bare(start, head, negated=negated)
        if self._here() and not self._here().isspace():
            _refuse(self._place, 'quotes go around a whole value: error:"timed out"')
        return msgspec.structs.replace(term, text=self._text[start : self._place])

    def _bare(self, start: int, text: str, *, negated: bool) -> Term:
        """A value without a field: an id is a term, any other text is an error."""
        digits = partial_id(text)
        if digits is None or self._here() == '"':
            typed = self._text[start:].split(maxsplit=1)[0]
            field, equals, value = typed.removeprefix("-").partition("=")
            if equals and field in FIELDS:
                what = f"{_short(typed)} is not a term; write a colon: {field}:{_short(value)[1:-1]}"
                _refuse(start, what, typed=f"{field}=", meant=f"{field}:")
            if typed.upper() in JOINED:
                _refuse(start, f"{typed} is not a term; {JOINED[typed.upper()]}")
            _refuse(start, f"{_short(typed)} is not a term; write terms like: {EXAMPLE}")
        return Term(Kind.ID, "id", (Value(_id(digits, "id", start)),), negated=negated)

    def _quoted_path(self) -> list[str]:
        """The steps from the first quoted one up to the colon: `."first name".0`."""
        steps: list[str] = []
        while True:
            steps.append(self._quoted() if self._here() == '"' else self._until('.:"'))
            if self._here() == ":":
                return steps
            if not self._takes("."):
                _refuse(self._place, "a path ends with a colon and a value")

    def _field(self, start: int, steps: list[str], more: list[str], *, negated: bool) -> Term:
        field, path = steps[0], (*steps[1:], *more)
        known = FIELDS.get(field.lower())
        if known is None:
            what = f"there is no field {_short(field)}{suggest(field[:LONGEST_QUOTE], FIELDS)}"
            _refuse(start, what, typed=field, meant=_closest(field, FIELDS))
        kind, column = known
        if kind is Kind.JSON and (not path or "" in path):
            _refuse(start, f"write {field}.<name>:<value>, for example {field}.user_id:42")
        if kind is not Kind.JSON and path:
            _refuse(start, f"{field} has nothing inside; write {field}:<value>")
        if len(path) > DEEPEST_PATH:
            _refuse(start, f"a path may have {DEEPEST_PATH} steps, and this one has {len(path)}")
        name = self._text[start : self._place].removeprefix("-")
        self._place += 1  # the colon
        comparison, values = self._values(name, kind)
        return Term(kind, column, values, comparison, path, negated)

    def _values(self, field: str, kind: Kind) -> tuple[str, tuple[Value, ...]]:
        place = self._place
        found = COMPARISON.match(self._text, self._place)
        if found is not None:
            self._place = found.end()
        comparison = found[0] if found is not None else "="
        if comparison != "=" and kind not in COMPARED:
            _refuse(place, f"{field} cannot be compared with {comparison}; only numbers and ages can")
        typed = [self._typed_value(field, kind)]
        while self._takes(","):
            typed.append(self._typed_value(field, kind))
        if len(typed) > MOST_VALUES:
            _refuse(place, f"{field} has {len(typed)} values; {MOST_VALUES} is the most")
        if any(_is_range(value, kind) for _, value in typed):
            if found is not None or len(typed) > 1:
                _refuse(place, f"a range stands alone: {field}:{typed[0][1].text}, without commas and signs beside it")
            return _parse_range(typed[0][1].text, field, kind, place)
        if kind is Kind.AGE and comparison == "=":
            comparison = ">="  # nothing is an hour old to the microsecond
        return comparison, tuple(_parse_value(value, field, kind, comparison, at) for at, value in typed)

    def _typed_value(self, field: str, kind: Kind) -> tuple[int, Value]:
        """A value as it was typed, and its place."""
        place, quoted = self._place, self._here() == '"'
        text = self._quoted() if quoted else self._until(',"')
        if not text:
            _refuse(place, _explain_no_value(field, kind, quoted=quoted))
        return place, Value(text, quoted)

    def _quoted(self) -> str:
        r"""A text between quotes; `\"` is a quote inside it and `\\` a backslash."""
        start = self._place
        letters: list[str] = []
        self._place += 1
        while (letter := self._here()) != '"':
            if not letter:
                _refuse(start, "this quote has no end")
            if letter == "\\" and self._text[self._place + 1 : self._place + 2] in ("\\", '"'):
                self._place += 1
            letters.append(self._here())
            self._place += 1
        self._place += 1
        return "".join(letters)

    def _until(self, stops: str) -> str:
        start = self._place
        while self._here() and not self._here().isspace() and self._here() not in stops:
            self._place += 1
        return self._text[start : self._place]

    def _takes(self, letter: str) -> bool:
        if self._here() != letter:
            return False
        self._place += 1
        return True

    def _here(self) -> str:
        """The letter at this place; empty at the end."""
        return self._text[self._place : self._place + 1]


def _explain_no_value(field: str, kind: Kind, *, quoted: bool) -> str:
    """A number or an age that is missing may have been `>1h`, which a shell takes away."""
    if kind not in COMPARED or quoted:
        return f"{field} has no value here; write terms like: {EXAMPLE}"
    example = "1h" if kind is Kind.AGE else "3"
    return (
        f"{field} has no value here; a shell takes > and < for itself; "
        f"quote the term: '{field}:>{example}', or write {field}:{example}.."
    )


def _is_range(value: Value, kind: Kind) -> bool:
    """In a document, a text may have two dots; only numbers beside them make a range."""
    if value.quoted or RANGE not in value.text:
        return False
    return kind in (Kind.NUMBER, Kind.AGE) or (kind is Kind.JSON and NUMERIC_RANGE.fullmatch(value.text) is not None)


def _parse_range(text: str, field: str, kind: Kind, place: int) -> tuple[str, tuple[Value, ...]]:
    """The comparison and the bounds of `2..4`, `2..` or `..4`; both bounds belong to the range."""
    low, _, high = text.partition(RANGE)
    bounds = tuple(_parse_value(Value(bound), field, kind, RANGE, place) for bound in (low, high) if bound)
    if not bounds:
        example = "1h" if kind is Kind.AGE else "3"
        _refuse(place, f".. needs a value before or after it: {field}:{example}.. or {field}:..{example}")
    if len(bounds) == 1:
        return ">=" if low else "<=", bounds
    if (bounds[0].number or 0) > (bounds[1].number or 0):
        _refuse(place, f"{text} holds nothing; the lower value comes first: {field}:{high}..{low}")
    return RANGE, bounds


def _parse_value(value: Value, field: str, kind: Kind, comparison: str, place: int) -> Value:
    """The value, parsed and checked for its field."""
    match kind:
        case Kind.STATE:
            return Value(_state(value.text.lower(), place))
        case Kind.ID:
            return Value(_id(value.text, field, place))
        case Kind.FINGERPRINT:
            return Value(_fingerprint(value.text.lower(), place))
        case Kind.NUMBER:
            return msgspec.structs.replace(value, number=_number(value, field, place))
        case Kind.AGE:
            return msgspec.structs.replace(value, number=_age(value, field, place))
        case Kind.JSON if comparison != "=":
            return msgspec.structs.replace(value, number=_number(value, field, place))
        case Kind.JSON if not value.quoted and NUMBER.fullmatch(value.text):
            return msgspec.structs.replace(value, number=_number(value, field, place))
        case _:
            return value


def _state(text: str, place: int) -> str:
    if text not in STATES:
        what = f"there is no state {_short(text)}{suggest(text[:LONGEST_QUOTE], STATES)}"
        _refuse(place, what, typed=text, meant=_closest(text, STATES))
    return text


def _id(text: str, field: str, place: int) -> str:
    digits = partial_id(text)
    if digits is None:
        _refuse(place, f"{_short(text)} is not an id; {field} takes a UUID, or {SHORTEST_ID} or more digits of one")
    return str(UUID(digits)) if len(digits) == 32 else digits


def _fingerprint(text: str, place: int) -> str:
    if not FINGERPRINT.fullmatch(text):
        _refuse(place, f"{_short(text)} is not the fingerprint of an error: it has 12 hex digits; see windlass errors")
    return text


def _number(value: Value, field: str, place: int) -> int | float:
    if value.quoted or not NUMBER.fullmatch(value.text):
        _refuse(place, f"{_short(value.text)} is not a number; write it like {field}:3, {field}:3.. or {field}:..3")
    return int(value.text) if "." not in value.text and int(value.text) in WHOLE else float(value.text)


def _age(value: Value, field: str, place: int) -> float:
    try:
        return seconds(value.text, what=field)
    except ConfigError:
        _refuse(
            place, f"{_short(value.text)} is not a time; write it like {field}:1h.., {field}:..30s or {field}:1h..2d12h"
        )


def _refuse(place: int, what: str, *, typed: str = "", meant: str | None = None) -> Never:
    raise _Misspelt(f"at character {place + 1} of the filter: {what}", place, typed, meant)


def _closest(typed: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(typed[:LONGEST_QUOTE], list(known), n=1)), None)


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…")
