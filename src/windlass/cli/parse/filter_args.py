"""A filter as a shell hands it over: in words, without the quotes that somebody typed around a value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from windlass.model.filter import Filter

NEGATED = re.compile(r"-(?=[a-z]+[.:]|[0-9a-fA-F-]{6,36}$)", re.IGNORECASE)
SHIELD = "\0"  # before a negated term, which would be an option; no argument of a process can contain it


class FilterCommand(click.Command):
    """A command whose arguments are a filter: `-tenant:acme` is a term and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(_shield, args[:end]), *args[end:]])


def _shield(word: str) -> str:
    from windlass.model.filter import FIELDS, partial_id

    if NEGATED.match(word) is None:
        return word
    field = re.split(r"[.:]", word[1:], maxsplit=1)[0].lower()
    return SHIELD + word if field in FIELDS or partial_id(word[1:]) else word


def filter_argument(command: Any) -> Any:
    return click.argument("words", nargs=-1, metavar="[FILTER]…", shell_complete=complete_filter)(command)


def parse_filter(words: Sequence[str]) -> Filter:
    """The filter that these words are. Ids beside each other mean "one of them"."""
    from windlass.model.filter import parse

    plain = [word.removeprefix(SHIELD) for word in words]
    ids = parse_ids(plain)
    return parse(f"id:{','.join(ids)}" if len(ids) > 1 else " ".join(map(_requote, plain)))


def parse_ids(words: Sequence[str]) -> list[str]:
    """The words, when each of them is an id or a part of one; else nothing."""
    from windlass.model.filter import partial_id

    ids = [partial_id(word) or "" for word in words]
    return [] if "" in ids else ids


def join_words(words: Sequence[str]) -> str:
    """The words as they can be typed again."""
    return shlex.join(word.removeprefix(SHIELD) for word in words)


def _requote(word: str) -> str:
    """`error:"timed out"` reaches us without its quotes; a word that is a filter by itself stays as it is."""
    from windlass.errors import FilterError
    from windlass.model.filter import parse

    if not re.search(r"\s", word) or '"' in word:
        return word
    try:
        parse(word)
        return word
    except FilterError:
        field, colon, value = word.partition(":")
        return f'{field}:"{value}"' if colon else word


def complete_filter(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: fields, and the states."""
    from windlass.model.filter import FIELDS
    from windlass.model.state import State

    if incomplete.startswith("state:"):
        head, comma, last = incomplete.removeprefix("state:").rpartition(",")
        return [f"state:{head}{comma}{state.value}" for state in State if state.value.startswith(last)]
    return [f"{field}:" for field in FIELDS if field.startswith(incomplete)]
