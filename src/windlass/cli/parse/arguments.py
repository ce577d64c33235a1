"""A job's arguments as the user types them in a shell: `2`, `hello`, `'{"a": [1]}'`, `name=value`.

The handler's type hints decide whether `2` is a number or a text. Each argument is first read as JSON; where the hints
refuse that value, the argument is passed as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.payload.signature import Signature

KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
STEP = re.compile(r"\$\.(\w+)")


def parse_arguments(signature: Signature, words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments that fit the signature, or `InvalidInput`."""
    typed = _TypedArguments(words)
    refused: dict[str, InvalidInput] = {}
    while True:
        args, kwargs = typed.values()
        try:
            signature.bind(args, kwargs)
            return args, kwargs
        except InvalidInput as error:
            name = _parameter_of(error)
            if name in refused:
                raise refused[name] from None  # the error about the JSON value helps more than the one about the text
            if name is None or not typed.take_as_text(name, signature.names):
                raise
            refused[name] = error


class _TypedArguments:
    """The words of a command line; each is read as JSON or as text."""

    def __init__(self, words: Sequence[str]) -> None:
        self._positional: list[str] = []
        self._keywords: dict[str, str] = {}
        self._as_text: set[str | int] = set()
        for word in words:
            found = KEYWORD.fullmatch(word)
            if found is None:
                self._positional.append(word)
            elif found[1] in self._keywords:
                raise InvalidInput(f"{found[1]}= is given twice", path=f"$.{found[1]}")
            else:
                self._keywords[found[1]] = found[2]

    def values(self) -> tuple[list[Any], dict[str, Any]]:
        args = [self._read(index, word) for index, word in enumerate(self._positional)]
        return args, {name: self._read(name, word) for name, word in self._keywords.items()}

    def take_as_text(self, name: str, names: Sequence[str]) -> bool:
        """Read this parameter's word as text from now on; False when it is read so already, or was not given."""
        place: str | int = name
        if name not in self._keywords:
            if name not in names or names.index(name) >= len(self._positional):
                return False
            place = names.index(name)
        if place in self._as_text:
            return False
        self._as_text.add(place)
        return True

    def _read(self, place: str | int, word: str) -> Any:
        if place in self._as_text:
            return word
        try:
            return msgspec.json.decode(word)
        except (msgspec.DecodeError, RecursionError):
            return word


def _parameter_of(error: InvalidInput) -> str | None:
    """The parameter that an error's path begins with."""
    found = STEP.match(error.path)
    return found[1] if found else None
