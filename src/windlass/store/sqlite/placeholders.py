"""`$1` as PostgreSQL has it, `?1` as SQLite has it: handlers write one SQL for both stores."""

from __future__ import annotations

import re
from functools import lru_cache

TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'        # a string
    | "(?:[^"]|"")*"        # a quoted name
    | `[^`]*` | \[[^\]]*\]  # …as other databases quote it
    | --[^\n]*              # a comment
    | /\*.*?(?:\*/|\Z)      # …over several lines
    | \w+\$\w*              # a name may hold a dollar
    | \$(\d+)               # a parameter
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=512)
def numbered(sql: str) -> str:
    """`sql` with `?n` for every `$n` that is a parameter."""
    return TOKEN.sub(lambda token: token[0] if token[1] is None else f"?{token[1]}", sql)
