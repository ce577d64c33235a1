"""The trace of a job: a W3C traceparent, which is one text in the job's row."""

from __future__ import annotations

import re
from typing import NamedTuple

FORM = re.compile(r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
LATER = re.compile(r"-.*", re.DOTALL)  # what a later version of the standard may add


class Traceparent(NamedTuple):
    """The parts of a traceparent, as hex digits."""

    trace_id: str
    span_id: str
    flags: str = "01"  # sampled

    def __str__(self) -> str:
        """The text that is stored, always of version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def read_traceparent(text: str | None) -> Traceparent | None:
    """The parts of a traceparent; None for a text that is none. A caller may send anything, and no job fails by it."""
    found = None if text is None else FORM.match(text)
    if text is None or found is None or found["version"] == "ff" or not int(found["trace"], 16):
        return None
    rest = text[found.end() :]
    if not int(found["span"], 16) or (rest and (found["version"] == "00" or not LATER.fullmatch(rest))):
        return None
    return Traceparent(found["trace"], found["span"], found["flags"])
