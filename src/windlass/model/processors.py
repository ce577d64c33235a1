"""Processors: what a worker reports of them with its beat, and the rows that lists show.

A report names each processor that was used. The others are idle, and a list fills them in from the size of the pool: so
the report of a worker that has nothing to do is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import nlargest
from itertools import islice
from uuid import UUID

import msgspec

LISTED = 200
"""The most processors of one worker that are listed by name. Its pools count the others."""


class ProcessorState(StrEnum):
    """What a processor is doing."""

    IDLE = "idle"
    BUSY = "busy"
    ERROR = "error"  # its last handler could not be stopped, or exceeded its time limit; the health check resets it


class UsedProcessor(msgspec.Struct, frozen=True, array_like=True):
    """A processor that had a job, as a worker reports it."""

    number: int
    state: ProcessorState
    age: float | None = None  # seconds in this state; None: its jobs were released before they began
    job: UUID | None = None
    type: str | None = None


class PoolReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The processors of one phase, as a worker reports them."""

    phase: str
    idle: int = 0
    busy: int = 0
    error: int = 0
    waiting: int = 0  # jobs in memory
    used: tuple[UsedProcessor, ...] = ()


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many processors of a worker are idle, busy and in error in one phase, and its jobs in memory."""

    phase: str  # of a pipeline; of jobs without a pipeline, the name of their queue
    idle: int  # that could start a job now; pools without a size of their own share the worker's processors
    busy: int
    error: int
    in_memory: int  # jobs that are claimed and have not started


class ProcessorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A processor of a worker, as the worker reported it with its last beat."""

    name: str  # website-analysis-processor-3
    phase: str
    state: ProcessorState
    job: UUID | None  # of a busy processor; of one in error, the job whose handler did not stop in time
    type: str | None  # of that job
    since: datetime | None  # for how long it has been in this state; None: it was never used


# A report, written and read


def encode_pools(pools: Sequence[PoolReport]) -> str:
    """The report that a worker writes: `LISTED` processors at most. Idle ones are left out first, then short jobs."""
    used = [(pool.phase, each) for pool in pools for each in pool.used]
    if len(used) > LISTED:
        kept = nlargest(
            LISTED, used, key=lambda named: (named[1].state is not ProcessorState.IDLE, named[1].age or 0.0)
        )
        pools = [
            msgspec.structs.replace(pool, used=tuple(each for phase, each in kept if phase == pool.phase))
            for pool in pools
        ]
    return msgspec.json.encode(pools).decode()


def decode_pools(text: str | None) -> list[PoolReport]:
    """The pools of a report; none where there is no report, or where another version wrote it."""
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[PoolReport])
    except msgspec.MsgspecError:
        return []


def pool_rows(pools: Iterable[PoolReport]) -> tuple[PoolRow, ...]:
    return tuple(
        PoolRow(phase=pool.phase, idle=pool.idle, busy=pool.busy, error=pool.error, in_memory=pool.waiting)
        for pool in pools
    )


def processor_rows(pools: Sequence[PoolReport], reported_at: datetime | None) -> tuple[ProcessorRow, ...]:
    """The processors of a report by pool and number, those that were never used included: `LISTED` at most."""
    room = LISTED - sum(len(pool.used) for pool in pools)
    rows: list[ProcessorRow] = []
    for pool in pools:
        filled = list(islice(_unused(pool), max(0, room)))
        room -= len(filled)
        every = sorted([*pool.used, *filled], key=lambda each: each.number)
        rows += [_processor_row(pool.phase, each, reported_at) for each in every]
    return tuple(rows)


def _unused(pool: PoolReport) -> Iterator[UsedProcessor]:
    """The idle processors of a pool that its report does not name."""
    named = {each.number for each in pool.used}
    missing = pool.idle - sum(each.state is ProcessorState.IDLE for each in pool.used)
    number = 0
    while missing > 0:
        number += 1
        if number not in named:
            missing -= 1
            yield UsedProcessor(number, ProcessorState.IDLE)


def _processor_row(phase: str, processor: UsedProcessor, reported_at: datetime | None) -> ProcessorRow:
    since = None
    if reported_at is not None and processor.age is not None:
        since = reported_at - timedelta(seconds=processor.age)
    return ProcessorRow(
        name=f"{phase}-processor-{processor.number}",
        phase=phase,
        state=processor.state,
        job=processor.job,
        type=processor.type,
        since=since,
    )
