"""Which errors belong together: the type of an error, and its message without the parts that change.

A fingerprint is stored with each failure. So it depends on the type and the message only, and not on the process or
the machine. A change of `pattern` puts new failures into new groups, beside those of the stored failures.
"""

from __future__ import annotations

import hashlib
import re

LONGEST_PATTERN = 300  # characters
LONGEST_READ = 4_000  # characters of a message that are read: a message of a megabyte costs as much as its beginning
DIGITS = 12  # of a fingerprint

CHANGING = "…"
"""Stands for every part that changes. One sign for all kinds: the hex digits of an id may happen to be a number."""

# No alternative here, and none below, reads a part again for each character in it: a part is read from its beginning
# only. So the time grows with the length of the text, whatever it contains.
TOKEN = re.compile(
    r"""
      (?P<quoted> "[^"]*" | `[^`]*` | (?<!\w)'[^']*'(?!\w) | “[^“”]*” | ‘[^‘’]*’ | «[^«»]*» )
    | (?P<scheme> [A-Za-z][A-Za-z0-9+.-]{0,19} ) :// (?P<place> [^\s"'`<>]* )
    | (?P<space> \s+ )
    | (?P<mark> [()\[\]{}<>,;=|"'`“”‘’«»] )
    | (?P<chunk> [^\s()\[\]{}<>,;=|"'`“”‘’«»]+ )
    """,
    re.VERBOSE,
)
END_OF_HOST = re.compile(r"[/?#]")
EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)*")
PATH = re.compile(
    r"(?:^|(?<=:))(?:[A-Za-z]:[\\/]|~?/|\.{1,2}[\\/]|\\\\)\w.* | ^[^/]+/[^/]+/.* | ^[^\\]+\\[^\\]+\\.*", re.VERBOSE
)
COLONS = re.compile(r"[0-9A-Fa-f:.]+(?:%\w+)?")  # with two colons: an address of IPv6 or of a network card, or a time
CHANGES = re.compile(
    r"""
      [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}                            # a UUID
    | \d{4}-\d\d-\d\d(?:[T_]\d\d:\d\d(?::\d\d)?(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?      # a time
    | 0[xX][0-9a-fA-F]+
    | (?<![\w.])[+-]?\d+(?:\.\d+)?[eE][+-]?\d+(?!\w)                                  # 1e-05
    | (?<![^\W_])(?=[a-fA-F]*\d)[0-9a-fA-F]{6,}(?![^\W_])                             # a hash, or its beginning
    | (?<![^\W_])[a-fA-F]{16,}(?![^\W_])
    | (?<![^\W_])(?=[^\W\d_]*\d)(?=\d*[^\W\d_])[^\W_]{16,}(?![^\W_])                  # an id of letters and digits
    | (?<![\w.])[+-]?\d+
    | \d+
    """,
    re.VERBOSE,
)
JOINED = re.compile(r"…(?:[-+:._/]*…)+")  # 10.0.0.1:5432
LISTED = re.compile(r"…(?:[\s,;:]*…)+")  # 1, 2, 3


def fingerprint(type: str, message: str) -> str:
    """The group of an error, in 12 hex digits: `fingerprint("TimeoutError", "no answer after 30 s")`."""
    text = f"{type}\0{pattern(message)}"
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:DIGITS]


def pattern(message: str) -> str:
    """The first line of a message, with `…` for each part that changes from job to job; 300 characters at most.

    Such parts are numbers, ids, hex digits, times, quoted texts, paths and queries of URLs, addresses, and paths of
    files. A list of them is one part, however long it is.
    """
    line = message[:LONGEST_READ].lstrip().partition("\n")[0]
    text = LISTED.sub(CHANGING, TOKEN.sub(_replace, line)).strip()
    return text if len(text) <= LONGEST_PATTERN else text[: LONGEST_PATTERN - 1] + CHANGING


def _replace(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "quoted":
            return CHANGING
        case "place":
            return _url(token["scheme"], token["place"])
        case "space":
            return " "
        case "chunk":
            return _chunk(token[0])
        case _:
            return token[0]


def _url(scheme: str, place: str) -> str:
    """The scheme and the host. A user and a password before the host are left out."""
    host, *rest = END_OF_HOST.split(place, maxsplit=1)
    return f"{scheme}://{_chunk(host.rpartition('@')[2])}{'/' + CHANGING if rest else ''}"


def _chunk(text: str) -> str:
    """A text without spaces, quotes and brackets."""
    if text.count(":") > 1 and COLONS.fullmatch(text):
        return CHANGING
    if "@" in text:
        text = EMAIL.sub(CHANGING, text)
    if "/" in text or "\\" in text:
        text = PATH.sub(CHANGING, text)
    return JOINED.sub(CHANGING, CHANGES.sub(CHANGING, text))
