"""What could stand at the cursor of a filter: keys with a word of help, values with their counts, and what is wrong.

typed = term_at("state:dead error:4", 18)        # the term that is being typed, and what stands around it
suggest_keys(typed), suggest_values(typed, {"HTTPStatusError: 429": 318})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from windlass.errors import FilterError
from windlass.model.filter import FIELDS, Kind
from windlass.model.reports.overview import Suggestion
from windlass.model.state import State

MOST = 12  # suggestions
SPECIAL = set(' \t\n,"*\\')
HELP = {
    "state": "queued, running, waiting, failed, succeeded, dead or cancelled",
    "queue": "the queue",
    "type": "the job type",
    "tenant": "the tenant",
    "error": "contained in the type or message of the last error",
    "age": "when it was created: ..1h is the last hour, 1h.. is before it",
    "touched": "when it last changed",
    "due": "when it was or will be due",
    "attempt": "counted attempts, such as 2..",
    "priority": "the priority",
    "input.": "a value in the input, such as input.user_id:42",
    "output.": "a value in the output",
    "reason": "why it is dead",
    "key": "its unique key",
    "phase": "the phase of a pipeline",
    "pipeline": "the pipeline",
    "id": "its id, or six digits of it",
    "parent": "the job that created it",
    "worker": "the worker that runs it",
    "crashes": "deaths of workers that ran it",
    "cost": "cents that it cost",
}
"""The keys of the language, the usual ones first, each with a word of help."""
AGES = {"age": "created", "touched": "changed", "due": "due"}


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """The term at the cursor."""

    start: int
    end: int
    negated: bool
    field: str | None  # None: no colon was typed yet
    lead: str  # the term up to the value that is being typed: `-state:failed,`
    partial: str  # what was typed of the key or the value, without its quote
    rest: str  # the filter with spaces in place of the term: places stay the same

    def alone(self, text: str) -> str:
        """The term of a suggested value without a minus and without the values before it: `-error:a,b` is `error:b`."""
        return f"{self.field}:{text.removeprefix(self.lead)}"


def term_at(text: str, cursor: int) -> Typed:
    """The term that ends or stands at the cursor; an empty one between terms."""
    cursor = max(0, min(cursor, len(text)))
    start, quoted = 0, False
    for place, letter in enumerate(text[:cursor]):
        if letter == '"' and (place == 0 or text[place - 1] != "\\"):
            quoted = not quoted
        elif letter.isspace() and not quoted:
            start = place + 1
    end = cursor
    while end < len(text) and (quoted or not text[end].isspace()):
        quoted = quoted != (text[end] == '"')
        end += 1
    typed = text[start:cursor]
    head, colon, value = typed.partition(":")
    values = value.split(",") if value.count('"') % 2 == 0 else [value]
    partial = values[-1].lstrip('"') if colon else head.removeprefix("-")
    return Typed(
        start=start,
        end=end,
        negated=typed.startswith("-"),
        field=head.removeprefix("-").lower() if colon else None,
        lead=f"{head}:{''.join(f'{each},' for each in values[:-1])}" if colon else "-" * typed.startswith("-"),
        partial=partial.rstrip('"'),
        rest=f"{text[:start]}{' ' * (end - start)}{text[end:]}",
    )


def suggest_mistake(error: FilterError, text: str, typed: Typed) -> Suggestion:
    """The place and the words of what is wrong; its text is the whole filter as it was probably meant.

    The mistake may have been found in the rest, where spaces stand for the term: the term is put back.
    """
    corrected = error.corrected
    if corrected is not None and error.position is not None and len(typed.rest) == len(text):
        moved = len(corrected) - len(text) if error.position < typed.start else 0
        start, end = typed.start + moved, typed.end + moved
        if not corrected[start:end].strip():
            corrected = f"{corrected[:start]}{text[typed.start : typed.end]}{corrected[end:]}"
    return Suggestion(
        text=corrected or "",
        kind="mistake",
        count=None,
        said=str(error),
        start=0 if error.corrected is not None or error.position is None else error.position,
        end=len(text),
    )


def suggest_keys(typed: Typed) -> list[Suggestion]:
    """The keys that begin with what was typed, then those that contain it; else a search in errors and types."""
    wanted = typed.partial.lower()
    begin = [key for key in HELP if key.startswith(wanted)]
    inside = [key for key in HELP if wanted in key and key not in begin]
    found = [_suggestion(typed, f"{key}:" if key[-1] != "." else key, "key", HELP[key]) for key in begin + inside]
    if not found and typed.partial:
        found = [
            _suggestion(typed, f"error:{quoted(typed.partial)}", "value", f"contains “{typed.partial}” in its error"),
            _suggestion(typed, f"type:*{typed.partial}*", "value", f"its type contains “{typed.partial}”"),
        ]
    return found[:MOST]


def suggest_values(typed: Typed, counts: Mapping[str, int]) -> list[Suggestion]:
    """The values of the key that contain what was typed, with their counts; then what else it may mean."""
    assert typed.field is not None
    kind, wanted = FIELDS[typed.field][0], typed.partial.lower()
    if kind is Kind.STATE:
        counts = {state.value: counts.get(state.value, 0) for state in State}
    known = sorted(counts, key=lambda value: not value.lower().startswith(wanted))  # in their order otherwise
    matching = [value for value in known if wanted in value.lower()]
    found = [
        _suggestion(typed, quoted(value), "value", "", count=None if typed.negated else counts[value])
        for value in matching[: MOST - 2]
    ]
    return [*found, *_readings(typed, kind)][:MOST]


def _readings(typed: Typed, kind: Kind) -> Iterator[Suggestion]:
    """What the user can say without a known value."""
    field, partial = typed.field or "", typed.partial
    match kind:
        case Kind.TEXT if partial:
            yield _suggestion(typed, quoted(partial), "value", f"contains “{partial}”, in type or message")
        case Kind.NAME if partial and "*" not in partial and not SPECIAL & set(partial):
            yield _suggestion(typed, f"{partial}*", "value", f"begins with “{partial}”")
        case Kind.NUMBER:
            number = partial if partial.isdigit() else "2"
            yield _suggestion(typed, number, "value", f"is {number}")
            yield _suggestion(typed, f"{number}..", "value", f"is {number} or more")
            yield _suggestion(typed, f"..{number}", "value", f"is {number} or less")
        case Kind.AGE:
            for span, words in (("10m", "10 minutes"), ("1h", "hour"), ("1d", "day")):
                yield _suggestion(typed, f"..{span}", "value", f"{AGES[field]} in the last {words}")
            yield _suggestion(typed, "1d..", "value", f"{AGES[field]} a day ago or earlier")


def quoted(value: str) -> str:
    """The value as a filter has it: with quotes where a space, comma, star or quote would end or change it."""
    if value and not SPECIAL & set(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _suggestion(typed: Typed, text: str, kind: str, said: str, *, count: int | None = None) -> Suggestion:
    return Suggestion(text=f"{typed.lead}{text}", kind=kind, count=count, said=said, start=typed.start, end=typed.end)
