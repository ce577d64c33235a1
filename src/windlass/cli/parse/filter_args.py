"""A filter as the shell passes it: in words, without the quotes that the user typed around a value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.complete import complete_filter
from windlass.cli.parse.shield import SHIELD, remove_shield

if TYPE_CHECKING:
    from windlass.model.filter import Filter

NEGATED = re.compile(r"-(?=[a-z]+[.:]|[0-9a-fA-F-]{6,36}$)", re.IGNORECASE)


class FilterCommand(click.Command):
    """A command with a filter as its arguments: `-tenant:acme` is a term and no option."""

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
    """Parse the words as a filter. Several ids mean "one of these"."""
    from windlass.model.filter import parse

    plain = [remove_shield(word) for word in words]
    ids = parse_ids(plain)
    return parse(f"id:{','.join(ids)}" if len(ids) > 1 else " ".join(map(_requote, plain)))


def parse_ids(words: Sequence[str]) -> list[str]:
    """The words, if each of them is an id or a part of one; otherwise an empty list."""
    from windlass.model.filter import partial_id

    ids = [partial_id(word) or "" for word in words]
    return [] if "" in ids else ids


def join_words(words: Sequence[str]) -> str:
    """The words, quoted so that the user can type them again."""
    return shlex.join(remove_shield(word) for word in words)


def _requote(word: str) -> str:
    """The shell passes `error:"timed out"` without its quotes; a word that is a valid filter is left as it is."""
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
