"""What the services of one process share about their database: when it last answered, and which of them wait to retry.

After an outage each service would wait out a pause of its own, of up to ten seconds. So the first answer that any of
them gets ends the pauses of all. While the beat succeeds, the pauses are short: the database answers, and the failure
has another reason.

An outage is logged here, once for the process and not by each service: its first failure, then its length at growing
intervals, then its end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random

from windlass.clock import Clock, spell, wait
from windlass.errors import StoreBusy

log = logging.getLogger("windlass")

FIRST_PAUSE = 0.1  # seconds after the first failure in a row
LONGEST_PAUSE = 10.0  # seconds
LONGEST_WHILE_ANSWERED = 1.0  # seconds
FIRST_REPORT = 10.0  # seconds from the first line about an outage to the second; each interval doubles …
LONGEST_REPORT = 600.0  # … up to this
CALM = 60.0  # seconds without a failure, after which the intervals begin anew
QUIET = 1.0  # seconds between two wake-ups of the waiting services; an older answer does not prove contact now


class Contact:
    """The store records each answer here, and the beat whether it succeeded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        self._woke_at = -math.inf
        self.answered_at = -math.inf  # on the monotonic clock
        self.beating = False  # the last beat got through
        self._outage = Outage()

    def answered(self) -> None:
        """The database answered: every service that waits to retry does it now.

        At most once a second: a service that fails alone would otherwise retry as often as the others succeed.
        """
        self.answered_at = self._clock.monotonic()
        if self._outage.since is not None:
            self._outage.end(self.answered_at)
        if self._waiting and self.answered_at - self._woke_at >= QUIET:
            self._wake()

    def failed(self, error: Exception, what: str) -> None:
        """The database cannot be used now, as this part of the worker found. A busy database is no outage."""
        if isinstance(error, StoreBusy):
            log.warning("%s: %s; trying again", what, error)
        else:
            log.debug("%s: %s", what, error)
            self._outage.record(error, self._clock.monotonic())

    def beat(self, *, through: bool) -> None:
        """Record the last beat. The first one that succeeds again ends all pauses, however recent the last wake-up."""
        back, self.beating = through and not self.beating, through
        if through:
            self.answered()
        if back:
            self._wake()

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        answers = self.beating or self._clock.monotonic() - self.answered_at < QUIET
        return jittered(failures, LONGEST_WHILE_ANSWERED if answers else LONGEST_PAUSE)

    async def hold_off(self, seconds: float | None, event: asyncio.Event | None = None) -> None:
        """Wait so many seconds, or until the database answers another service, or until the event is set."""
        event = event or asyncio.Event()
        self._waiting.add(event)
        try:
            await wait(self._clock, event, seconds)
        finally:
            self._waiting.discard(event)

    def _wake(self) -> None:
        self._woke_at = self._clock.monotonic()
        for event in self._waiting:
            event.set()


class Outage:
    """What is logged of a time in which the database, or a broker, cannot be used; by the monotonic clock."""

    def __init__(self, what: str = "the database") -> None:
        self._what = what  # that is away
        self.since: float | None = None  # None: no outage
        self._failures = 0
        self._failed_at = -math.inf
        self._reported = False
        self._report_at = -math.inf  # no line before this time, also not about a new outage
        self._interval = FIRST_REPORT

    def record(self, error: Exception, now: float) -> None:
        if now - self._failed_at > CALM:
            self._interval, self._report_at = FIRST_REPORT, now
        self.since = now if self.since is None else self.since
        self._failed_at = now
        self._failures += 1
        if now < self._report_at:
            return
        why = str(error) or type(error).__name__
        if self._reported:
            log.warning(
                "%s is away for %s, after %d tries: %s", self._what, spell(now - self.since), self._failures, why
            )
        else:
            log.warning("%s is away: %s; trying again until it answers", self._what, why)
        self._reported, self._report_at = True, now + self._interval
        self._interval = min(self._interval * 2, LONGEST_REPORT)

    def end(self, now: float) -> None:
        if self._reported and self.since is not None:
            tries = "1 try" if self._failures == 1 else f"{self._failures} tries"
            log.warning("%s answers again, after %s and %s", self._what, spell(now - self.since), tries)
            if now - self.since >= FIRST_REPORT:  # not one of many short ones: the next outage has its own line soon
                self._interval, self._report_at = FIRST_REPORT, min(self._report_at, now + FIRST_REPORT)
        self.since, self._failures, self._reported = None, 0, False


def jittered(failures: int, longest: float) -> float:
    """Full jitter: a random pause up to a bound that doubles, so that many workers do not retry at the same moment."""
    return random.uniform(0.01, min(longest, FIRST_PAUSE * 2 ** min(failures, 10)))
