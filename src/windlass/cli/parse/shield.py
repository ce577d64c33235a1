"""Arguments that begin with a dash and are no options: negative numbers, and negated terms of a filter.

A character that no argument of a process can contain is put before such an argument, so that click does not take it
for an option, and is removed where the argument is read.
"""

from __future__ import annotations

import re

import click

SHIELD = "\0"
NEGATIVE = re.compile(r"-\.?\d")


class NegativeNumbersCommand(click.Command):
    """A command with arguments that may be negative numbers: `-5` is a number and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = (param for param in self.params if isinstance(param, click.Option) and not param.is_flag)
        wants_value = {name for option in options for name in option.opts}
        words = zip(["", *args], args, strict=False)
        return super().parse_args(
            ctx,
            [SHIELD + word if NEGATIVE.match(word) and before not in wants_value else word for before, word in words],
        )


def remove_shield(word: str) -> str:
    return word.removeprefix(SHIELD)
