"""Hides secrets in what people read about jobs: in inputs, outputs, errors, logs and reasons.

The database has every value, and a program reads it as it is. Only what leaves through the HTTP API is redacted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from windlass.errors import InvalidInput
from windlass.model.filter import Filter, Kind, Term
from windlass.payload.redact import HIDDEN, Secrets

DOCUMENTS = ("input", "output", "error", "attempts", "follow_ups")
"""The fields of a job whose own names are compared. The other fields are the engine's; only their texts are read."""
SHORTEST_ECHO = 6  # characters of a hidden value that is also hidden where a text repeats it
MOST_ECHOES = 200  # values of one job; the longest ones
DEEPEST = 200  # levels of containers: more than a stored document has
PAIR_NAMES = ("name", "key", "header", "field")
PLAIN_STEP = str.isidentifier

Step = str | int
Path = tuple[Step, ...]


class Redaction:
    """Hides the values of secret names and secrets in texts: `Redaction(["iban"]).value({"iban": "DE02"})`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._secrets = Secrets(names)

    def value(self, document: Any) -> Any:
        """A copy of JSON values in which everything below a secret name is "[redacted]", and texts are as in `text`."""
        return _RedactedCopy(self._secrets).of(document)

    def text(self, message: str) -> str:
        """A message, traceback or log line without the secrets that can be recognised in it."""
        return self._secrets.text(message)

    def texts_about(self, input: str | None, *texts: str) -> list[str]:
        """Texts about a job, such as its error, without secrets and without the hidden values of its input (JSON)."""
        hidden = _RedactedCopy(self._secrets)
        try:
            hidden.of(json.loads(input or "null"))
        except ValueError:  # a row that another program wrote
            pass
        copy = _RedactedCopy(self._secrets, hidden.echoes())
        return [copy.texts(text, ()) for text in texts]

    def job(self, document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """A copy of `job.document()` without secrets, and the paths of what was hidden: `["input.password"]`.

        A value that is hidden in one place is also hidden where another text of the job repeats it: a handler often
        writes its arguments into the error.
        """
        hidden = _RedactedCopy(self._secrets)
        for name in DOCUMENTS:
            hidden.of(document.get(name), (name,))
        copy = _RedactedCopy(self._secrets, hidden.echoes())
        copied = {
            name: copy.of(value, (name,)) if name in DOCUMENTS else copy.texts(value, (name,))
            for name, value in document.items()
        }
        return copied, [_spell(path) for path in copy.paths]

    def about(self, document: dict[str, Any], told: Any) -> Any:
        """What is told about a job, without the hidden values of that job, which its texts may repeat."""
        return self.job({**document, "about": told})[0]["about"]

    def restored(self, document: dict[str, Any], edited: Any, *, may_reveal: bool) -> Any:
        """An edited input of `job.document()` in which each value that stands as it was hidden is the job's own again.

        Whether a value is hidden depends on the values beside it, and where it is used does, too: `password` goes to
        `host`. So an actor that may not reveal it keeps hidden values only by changing nothing. What others keep must
        be hidden again in the new input, for its other readers.

        InvalidInput: a hidden value may not be kept, or was moved, or stands inside of another text: nothing tells
        which one is meant.
        """
        shown = self.job(document)[0]["input"]
        kept: list[Path] = []
        restored = _restored(document["input"], shown, edited, (), kept)
        place = next((path for path in _hidden_in(restored) if not _holds_hidden(document["input"], path)), None)
        if place is not None:
            raise _not_kept(place, "has a hidden value that was moved or changed: type the value itself")
        if kept and not may_reveal and edited != shown:
            raise _not_kept(kept[0], "is hidden, and the input was changed: type the value itself, or ask an admin")
        again = self.job({"input": restored})[0]["input"]
        place = next((path for path in kept if _at(again, path) != _at(edited, path)), None)
        if place is not None:
            raise _not_kept(place, "would not be hidden in the new input: type the value itself")
        return restored

    def refused_term(self, filter: Filter) -> Term | None:
        """The first term that compares a hidden value, with which a reader could guess it; None: there is none."""
        return next((term for term in filter.terms if term.kind is Kind.JSON and self._compares_hidden(term)), None)

    def _compares_hidden(self, term: Term) -> bool:
        numbers = all(value.number is not None for value in term.values)
        return any(self._secrets.hides(step) and not (numbers and self._secrets.counts(step)) for step in term.path)


def _restored(own: Any, shown: Any, edited: Any, path: Path, kept: list[Path]) -> Any:
    """The edited value, with the job's own where it equals what was shown instead of it; `kept` has those places."""
    if isinstance(edited, str) and edited == shown and HIDDEN in edited:
        if own != shown:
            kept.append(path)
        return own
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(own, dict):
        both = shown.keys() & own.keys()
        return {
            name: _restored(own[name], shown[name], item, (*path, name), kept) if name in both else item
            for name, item in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and isinstance(own, list) and len(edited) == len(shown):
        # A changed item may be another one: when the first was deleted, the second stands where its secret was.
        return [
            _restored(own[n], shown[n], item, (*path, n), kept) if item == shown[n] else item
            for n, item in enumerate(edited)
        ]
    return edited


def _not_kept(path: Path, problem: str) -> InvalidInput:
    return InvalidInput(f"{_spell(('input', *path))} {problem}", path=f"$.{_spell(path)}")


def _hidden_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places of what looks hidden. A deeper value is refused by all stores."""
    if len(path) > DEEPEST:
        return
    if isinstance(value, str) and HIDDEN in value:
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from [path] if HIDDEN in name else _hidden_in(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _hidden_in(item, (*path, place))


def _holds_hidden(own: Any, path: Path) -> bool:
    """Whether the job itself has such a text at this place: its own "[redacted]" is no hidden value."""
    return HIDDEN in str(_at(own, path))


def _at(value: Any, path: Path) -> Any:
    """The value at this place; None: there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


class _RedactedCopy:
    """Copies one document, and notes the path of each value that it hides."""

    def __init__(self, secrets: Secrets, echoes: Iterable[str] = ()) -> None:
        self._secrets = secrets
        self._echoes = tuple(echoes)
        self._hidden: list[Any] = []
        self.paths: list[Path] = []

    def of(self, value: Any, path: Path = ()) -> Any:
        """The copy of a value, whose names are compared."""
        if len(path) > DEEPEST:
            return self._hide(value, path)
        if isinstance(value, dict):
            return self._dict(value, path)
        if isinstance(value, list | tuple):
            return [self._item(item, (*path, place)) for place, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def texts(self, value: Any, path: Path) -> Any:
        """The copy of a value of the engine: names are not compared, and ids and times have no secrets."""
        if isinstance(value, dict):
            return {name: self.texts(item, (*path, name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.texts(item, (*path, place)) for place, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def echoes(self) -> list[str]:
        """The hidden values that texts may repeat, as they are and as `repr`, JSON and URLs write them."""
        found = {str(leaf) for value in self._hidden for leaf in _leaves(value)}
        longest = sorted((text for text in found if len(text) >= SHORTEST_ECHO), key=len, reverse=True)[:MOST_ECHOES]
        forms = {form for text in longest for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1], _quoted(text))}
        return sorted(forms, key=len, reverse=True)

    def _dict(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        pair = any(isinstance(value.get(name), str) and self._secrets.hides(value[name]) for name in PAIR_NAMES)
        for key, item in value.items():
            name = self._clean(str(key))
            if name in copied:  # two names differed in what was hidden
                name = f"{name} ({len(copied)})"
            place = (*path, name)
            hidden = self._hides(str(key), item) or (pair and key in ("value", "values"))
            copied[name] = self._hide(item, place) if hidden else self.of(item, place)
        return copied

    def _item(self, item: Any, path: Path) -> Any:
        """An item of a list; headers are often lists of a name and a value."""
        named = isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)
        if named and self._hides(item[0], item[1]):
            return [item[0], self._hide(item[1], (*path, 1))]
        return self.of(item, path)

    def _hides(self, name: str, value: Any) -> bool:
        return self._secrets.hides(name) and not (self._secrets.counts(name) and _is_count(value))

    def _hide(self, value: Any, path: Path) -> str:
        self._hidden.append(value)
        self.paths.append(path)
        return HIDDEN

    def _text(self, text: str, path: Path) -> str:
        cleaned = self._clean(text)
        if cleaned != text:
            self.paths.append(path)
        return cleaned

    def _clean(self, text: str) -> str:
        for echo in self._echoes:
            text = text.replace(echo, HIDDEN)
        return self._secrets.text(text)


def _is_count(value: Any) -> bool:
    """Numbers, or an object of numbers, as language models report their use of tokens."""
    if isinstance(value, dict):
        return all(_is_count(item) for item in value.values())
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _leaves(value: Any) -> Iterator[Any]:
    """The texts and numbers inside a hidden value, and the names of its objects."""
    below = [value]
    while below:
        item = below.pop()
        if isinstance(item, dict):
            below += item.values()
        elif isinstance(item, list | tuple):
            below += item
        elif isinstance(item, str | int | float) and not isinstance(item, bool):
            yield item


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _spell(path: Path) -> str:
    """The path as a filter has it: `input.items.0."first name"`."""
    return ".".join(str(step) if isinstance(step, int) or PLAIN_STEP(step) else json.dumps(step) for step in path)
