"""`$1` as PostgreSQL has it, `:p1` with a name as sqlite3 wants it: handlers write one SQL for both stores."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'        # a string
    | "(?:[^"]|"")*"        # a quoted name
    | `[^`]*` | \[[^\]]*\]  # …as other databases quote it
    | --[^\n]*              # a comment
    | /\*.*?(?:\*/|\Z)      # …over several lines
    | \w+\$\w*              # a name may hold a dollar
    | [$?](\d+)            # a parameter
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=512)
def numbered(sql: str) -> str:
    """`sql` with a name for every `$n` or `?n` that is a parameter: a sequence for `?n` raises from Python 3.14 on."""
    return TOKEN.sub(lambda token: token[0] if token[1] is None else f":p{token[1]}", sql)


def named(values: Iterable[object]) -> dict[str, object]:
    """The values under the names that `numbered` gives."""
    return {f"p{place}": value for place, value in enumerate(values, start=1)}
