"""Results, errors and logs: cleaned and cut, never refused, because a finish must always commit.

Every change is visible: U+FFFD replaces a character, a marker stands where text was cut, and `store_result` names the
first value of a result that is not stored as it is. A result keeps every character that JSON can hold. The text of
errors and logs, which people read on terminals, also loses other control characters.

This code calls methods of the user's classes (`__str__`, `__repr__`, `__iter__`, `model_dump`). It catches everything
that they raise, `SystemExit` included: the description of an attempt must not end its worker.
"""

from __future__ import annotations

import math
import re
import traceback
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.payload.profile import DEEPEST, ENCODER, INT_MAX, INT_MIN, LARGEST, check_extent, step_to, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_MESSAGE = 8 * 1024  # bytes of UTF-8
LONGEST_TRACEBACK = 32 * 1024  # bytes of UTF-8
LONGEST_REPR = 500  # characters
LONGEST_PROBLEM = 500  # bytes of UTF-8
MARKER_ROOM = 64  # bytes that are kept free for a marker

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def store_result(value: object, *, largest: int = LARGEST) -> tuple[str, str | None]:
    """Any value as JSON text inside the profile, and what of it is not stored as it is: None for nearly all values."""
    text, problem = _encode_valid(value), None
    whole = len(text) if text is not None else 0
    if text is None or whole > largest:
        text, problem = _repair(value, largest)
    if len(text) <= largest:
        return text.decode(), problem
    # Half of a document is not JSON, so its beginning is kept as text. Quoting may double its length.
    unknown = "" if whole else "at least "
    kept = text[: (largest - MARKER_ROOM) // 2].decode(errors="ignore")
    cut = f"{unknown}{max(whole, len(text)) - len(kept.encode()):,} bytes cut"
    return ENCODER.encode(f"{kept}… [{cut}]").decode(), f"$ is larger than {largest:,} bytes of JSON: {cut}"


def sanitise_text(text: str, limit: int = LONGEST_MESSAGE) -> str:
    """Text for people: no control characters but tab and newline, at most `limit` bytes of UTF-8."""
    head = text[:limit]  # first of all: a text of 100 MB must not be read to its end
    clean = CONTROL.sub(REPLACEMENT, head.replace("\r\n", "\n"))
    if len(head) == len(text) and len(clean.encode()) <= limit:
        return clean
    kept = clean.encode()[: max(0, limit - MARKER_ROOM)].decode(errors="ignore")
    return f"{kept}… [{len(text) - len(kept):,} characters cut]"


def describe(error: BaseException) -> tuple[str, str, str]:
    """An exception as (type, message, traceback), whatever its own methods do."""
    return _class_name(type(error)), sanitise_text(_message(error), LONGEST_MESSAGE), _traceback(error)


def to_plain(value: object, *, str_keys: bool = False) -> Any:
    """`value` in builtins; raises what msgspec raises for what it does not know."""
    return msgspec.to_builtins(value, str_keys=str_keys, enc_hook=dump_unknown)


def dump_unknown(value: Any) -> object:
    """msgspec's hook for unknown types: dump pydantic models by their own method, subclasses as their builtin."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, str):
        return str.__str__(value)  # str(value) would call a method of the subclass
    for builtin in (int, float, dict, list, tuple):
        if isinstance(value, builtin):
            return cast("Any", builtin)(value)
    kind = type(value)
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be sent as JSON")


def _encode_valid(value: object) -> bytes | None:
    """The encoding of a value that needs no repair, as nearly every result; None if it needs one."""
    try:
        check_extent(value)
        plain = to_plain(value)
        walk(plain, DEEPEST)
        return ENCODER.encode(plain)
    except BaseException:  # OutsideProfile, and anything that methods of the user's classes raise
        return None


def _repair(value: object, largest: int) -> tuple[bytes, str | None]:
    repair = Repair(largest)
    try:
        return ENCODER.encode(repair.clean(value)), repair.problem
    except BaseException:  # the container cannot be iterated
        return ENCODER.encode(_repr(value)), f"$ {_only_repr(value)}"


class Repair:
    """Rebuilds a value inside the profile. It counts items, because a value may contain itself twice on each level."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._left = largest  # items: more items than bytes cannot fit, and the text will be cut anyway
        self._steps: list[str | int] = []  # keys and places that lead to the value that is cleaned
        self.problem: str | None = None  # the first change that loses something, with its path

    def clean(self, value: Any, room: int = DEEPEST) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._changed(value, _clean_text(value, self._largest), "is text that cannot be stored as it is")
        if isinstance(value, int):
            inside = INT_MIN <= value <= INT_MAX
            return int(value) if inside else self._lost(_integer_text(value), "is an integer beyond 64 bits")
        if isinstance(value, float):
            finite = math.isfinite(value)
            return float(value) if finite else self._lost(None, f"is {value}, stored as null")
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            cut = f"[deeper than {DEEPEST} levels: cut]"
            return self._clean_items(value, room) if room else self._lost(cut, "is nested too deep: cut")
        return self._clean_object(value, room)

    def _clean_items(self, value: Any, room: int) -> object:
        if not isinstance(value, dict):
            items = enumerate(self._take_within_limit(value))
            return [self._clean_item(place, item, room) for place, item in items]
        cleaned: dict[str, object] = {}
        for key, item in self._take_within_limit(value.items()):
            name = _clean_key(key)
            if type(key) is not int:  # which is stored as its digits, and read back by a hint such as dict[int, str]
                self._changed(key, name, "has a key that cannot be stored as it is")
            cleaned[name] = self._clean_item(name, item, room)
        return cleaned

    def _clean_item(self, step: str | int, item: object, room: int) -> object:
        self._steps.append(step)
        cleaned = self.clean(item, room - 1)
        self._steps.pop()
        return cleaned

    def _changed(self, value: object, cleaned: object, what: str) -> object:
        return cleaned if cleaned == value else self._lost(cleaned, what)

    def _lost(self, cleaned: object, what: str) -> object:
        """`cleaned`, which is not what the handler returned; the first such place is reported."""
        if self.problem is None:
            path = "".join(f"[{step}]" if isinstance(step, int) else step_to(step) for step in self._steps)
            self.problem = sanitise_text(f"${path} {what}", LONGEST_PROBLEM)
        return cleaned

    def _take_within_limit(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self._left <= 0:
                return
            self._left -= 1
            yield item

    def _clean_object(self, value: object, room: int) -> object:
        try:
            plain = to_plain(value)
        except BaseException:
            plain = value
        if type(plain) is type(value):
            return self._lost(_repr(value), _only_repr(value))
        return self.clean(plain, room)


def _clean_text(text: str, budget: int) -> str:
    """Cut a text that cannot fit, so that the values around it stay unchanged."""
    if len(text) <= budget:
        return UNSTORABLE.sub(REPLACEMENT, text)
    kept = text[: budget // 4]
    return f"{UNSTORABLE.sub(REPLACEMENT, kept)}… [{len(text) - len(kept):,} characters cut]"


def _clean_key(key: object) -> str:
    return _clean_text(key, LONGEST_REPR) if isinstance(key, str) else _repr(key)


def _only_repr(value: object) -> str:
    return f"is a {_class_name(type(value))}, which JSON cannot hold: only its repr() is stored"


def _integer_text(value: int) -> str:
    try:
        return str(int(value))
    except ValueError:  # Python refuses to print more than a few thousand digits
        return f"<an integer of {value.bit_length():,} bits>"


def _repr(value: object) -> str:
    try:
        return sanitise_text(repr(value), LONGEST_REPR)
    except BaseException as error:
        return f"<{type(value).__qualname__} whose repr() raised {type(error).__qualname__}>"


def _class_name(kind: type) -> str:
    try:
        own = kind.__module__ in ("builtins", "__main__")
        return sanitise_text(kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}", LONGEST_REPR)
    except BaseException:  # __module__ may be any object
        return "BaseException" if issubclass(kind, BaseException) else "object"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:
        return f"<{type(error).__qualname__} whose str() raised {type(failure).__qualname__}>"


def _traceback(error: BaseException) -> str:
    """The whole chain of errors. Each piece is cut separately, so that a huge message does not hide the frames."""
    try:
        pieces = traceback.TracebackException.from_exception(error).format()
        text = "".join(sanitise_text(piece, LONGEST_MESSAGE) for piece in pieces)
    except BaseException as failure:
        return f"<no traceback: formatting it raised {type(failure).__qualname__}>"
    if len(text.encode()) <= LONGEST_TRACEBACK:
        return text
    # The middle is cut: the beginning shows where the call started, the end shows where it failed.
    head = text.encode()[: LONGEST_TRACEBACK // 4].decode(errors="ignore")
    tail = text.encode()[-(LONGEST_TRACEBACK * 3 // 4 - 2 * MARKER_ROOM) :].decode(errors="ignore")
    return f"{head}\n… [{len(text) - len(head) - len(tail):,} characters cut] …\n{tail}"
