"""The JSON profile: the values that every store, transport and parser can hold without changing them.

UTF-8 without U+0000 (PostgreSQL's jsonb and text refuse it) and without lone surrogates; finite numbers; integers of 64
bits; text as keys; at most 64 levels deep, because deep input crashes parsers; at most 256 KiB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Any

import msgspec

from windlass.errors import InvalidInput

DEEPEST = 64  # levels of containers
LARGEST = 256 * 1024  # bytes of UTF-8
TOO_DEEP = f"is nested deeper than {DEEPEST} levels; send it flatter, or as a reference"
CONTAINERS = frozenset({dict, list, tuple, set, frozenset})
SIMPLE = frozenset({int, str, bool, float, type(None)})
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

ENCODER = msgspec.json.Encoder()


class OutsideProfile(Exception):
    """A value outside the profile. Each level adds its step to the path: a valid value pays for no path."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        return root + "".join(reversed(self.steps))


def encode(value: object, *, path: str = "$", largest: int = LARGEST) -> str:
    """`value` as JSON text; raises InvalidInput if it does not fit the profile or is too large."""
    check(value, path=path)
    text = ENCODER.encode(value)
    if len(text) > largest:
        raise InvalidInput(
            f"{path} is {len(text):,} bytes of JSON, and {largest:,} is the most; store it elsewhere and "
            "send a reference, such as a key or a URL",
            path=path,
        )
    return text.decode()


def check_arguments(input: object) -> Mapping[str, Any]:
    """An input that a caller gave as a whole: an object of arguments by their names."""
    if not isinstance(input, Mapping):
        raise InvalidInput(f"the input is {type(input).__name__}, not an object of arguments by their names")
    for name in input:
        if not isinstance(name, str):
            raise InvalidInput(f"the input has the key {_shorten(name)}, and the names of arguments are text")
    return input


def check(value: object, *, path: str = "$") -> None:
    """Refuse a value outside the profile, with the path of the first problem."""
    try:
        walk(value, DEEPEST)
    except OutsideProfile as problem:
        place = problem.path(path)
        raise InvalidInput(f"{place} {problem}", path=place) from None


def check_extent(value: object, *, path: str = "$") -> None:
    """Refuse containers that are too deep or too many, before any code recurses into them or copies them.

    The check goes level by level and does not recurse: a value may contain itself, or the same half twice on each of
    forty levels.
    """
    level: dict[int, tuple[object, int]] = {id(value): (value, 1)}
    total = 0
    for _ in range(DEEPEST + 1):
        inner: dict[int, tuple[object, int]] = {}
        for outer, paths in level.values():
            for item in _containers(outer):
                inner[id(item)] = (item, paths + inner.get(id(item), (item, 0))[1])
            total += paths * (len(outer) if isinstance(outer, Sized) else 1)
        if total > LARGEST:
            raise InvalidInput(
                f"{path} has more than {LARGEST:,} values, and as many bytes of JSON is the most; store it "
                "elsewhere and send a reference, such as a key or a URL",
                path=path,
            )
        if not inner:
            return
        level = inner
    raise InvalidInput(f"{path} {TOO_DEEP}", path=path)


def _containers(value: object) -> list[object]:
    kind = type(value)
    if kind is dict:
        return [item for item in value.values() if type(item) in CONTAINERS]  # type: ignore[attr-defined]
    if kind in CONTAINERS:
        return [item for item in value if type(item) in CONTAINERS]  # type: ignore[attr-defined]
    return []


def walk(value: object, room: int) -> None:
    """Raise `OutsideProfile` at the first problem; `room` is how many levels may still follow."""
    kind = type(value)
    if kind is str:
        check_text(value)  # type: ignore[arg-type]
    elif kind is int:
        if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
            raise OutsideProfile("is an integer beyond 64 bits; send it as text")
    elif value is None or kind is bool:
        return
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise OutsideProfile(f"is {value}, which JSON cannot hold; send null or text")
    elif kind is dict:
        _walk_object(value, room)  # type: ignore[arg-type]
    elif kind is list or kind is tuple:
        _walk_array(value, room)  # type: ignore[arg-type]
    else:
        raise OutsideProfile(f"is a {kind.__module__}.{kind.__qualname__}, which is not JSON")


def check_text(text: str) -> None:
    """Refuse NUL and lone surrogates."""
    if "\0" in text:
        raise OutsideProfile("contains U+0000, which PostgreSQL cannot store; remove it")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise OutsideProfile(
                "contains half a surrogate pair, which is not text; decode it properly first"
            ) from None


def _walk_object(value: dict[object, object], room: int) -> None:
    if room == 0:
        raise OutsideProfile(TOO_DEEP)
    for key, item in value.items():
        if type(key) is not str:
            raise OutsideProfile(f"has the key {_shorten(key)}, and keys in JSON are text; use str({_shorten(key)})")
        try:
            check_text(key)
        except OutsideProfile as problem:
            raise OutsideProfile(f"has the key {key!a}, which {problem}") from None
        try:
            walk(item, room - 1)
        except OutsideProfile as problem:
            problem.steps.append(step_to(key))
            raise


def step_to(key: str) -> str:
    """The step of a path that leads to a key of an object: `.name` or `['two words']`."""
    return f".{key}" if key.isidentifier() else f"[{key!a}]"


def _walk_array(value: list[object], room: int) -> None:
    if room == 0:
        raise OutsideProfile(TOO_DEEP)
    for place, item in enumerate(value):
        try:
            walk(item, room - 1)
        except OutsideProfile as problem:
            problem.steps.append(f"[{place}]")
            raise


def _shorten(key: object) -> str:
    try:
        return ascii(key)[:80]
    except Exception:
        return f"<{type(key).__qualname__}>"
