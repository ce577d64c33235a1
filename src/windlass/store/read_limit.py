"""The time limit of reads that people ask for: a list that takes too long must not keep a connection."""

from __future__ import annotations

from windlass.clock import spell
from windlass.errors import ReadTimeout

READ_TIMEOUT = 5.0  # seconds; the default of the setting `read_timeout`


def timed_out(what: str, limit: float) -> ReadTimeout:
    """The error for a read that took longer than its limit."""
    return ReadTimeout(
        f"the store took longer than {spell(limit)} to read {what}, and the read was stopped; narrow it with a filter, "
        "or set a longer WINDLASS_READ_TIMEOUT; see what the database does: windlass doctor"
    )
