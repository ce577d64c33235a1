"""The second step of a sweep, for both stores: dead workers' jobs (orphans) become claimable, a page at a time.

One row that cannot be rescued (a trigger refuses it, or a value in it has an unexpected shape) must not keep the
others from it. So after a refused page every orphan is tried alone, then with the smallest possible write. An orphan
that is refused even then stays as it is: the log names it, and `windlass doctor` finds it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from windlass import failpoints
from windlass.model.state import State
from windlass.policy.fingerprint import fingerprint

log = logging.getLogger("windlass")

CRASH = ("WorkerDied", "the worker that held this job died or lost its lease")
"""The type and the message of the error that a rescue writes. PostgreSQL has them in windlass.crash()."""
CRASH_FINGERPRINT = fingerprint(*CRASH)


class CrashRules(NamedTuple):
    """What the death of a worker means for its jobs."""

    max_crashes: int
    crash_counts: bool  # the interrupted attempt counts, and a job is dead when it was the last one
    blames: bool  # a crash is counted; not after an outage, when workers are silent for another reason than their jobs


class RescuePart:
    """The rescue of a store, which supplies three statements: a page, the list of orphans, and the smallest write."""

    async def _rescue(self, rules: CrashRules, page: int, jobs: Collection[UUID], *, only: bool) -> list[State]:
        """Give back one page of orphans: with `only`, of these jobs, else of all but these. Returns their states."""
        raise NotImplementedError

    async def _orphans(self, page: int, but: Collection[UUID]) -> list[UUID]:
        """The ids of one page of orphans, without those in `but`."""
        raise NotImplementedError

    async def _rescue_bare(self, rules: CrashRules, job: UUID) -> list[State]:
        """Give back one orphan with the smallest possible write: its attempts and its error stay as they are."""
        raise NotImplementedError

    async def _rescue_all(self, rules: CrashRules, page: int) -> Counter[State]:
        total: Counter[State] = Counter()
        stuck: set[UUID] = set()
        while True:
            if failpoints.armed:
                failpoints.hit("sweep.before_rescue")
            try:
                states = await self._rescue(rules, page, stuck, only=False)
            except Exception as error:
                orphans = await self._orphans(page, stuck)
                if getattr(error, "of_database", False) or not orphans:
                    raise
                for job in orphans:
                    total.update(await self._rescue_alone(rules, job, stuck))
                continue
            total.update(states)
            if len(states) < page:
                return total

    async def _rescue_alone(self, rules: CrashRules, job: UUID, stuck: set[UUID]) -> list[State]:
        try:
            return await self._rescue(rules, 1, {job}, only=True)
        except Exception as error:
            if getattr(error, "of_database", False):
                raise
            log.warning("job %s of a dead worker cannot be rescued as others are: %r", job, error)
        try:
            return await self._rescue_bare(rules, job)
        except Exception as error:
            if getattr(error, "of_database", False):
                raise
            log.error("job %s of a dead worker cannot be rescued at all: %r", job, error)
            stuck.add(job)
            return []
