"""What the page of one job shows: where its time went, its story in words, and the jobs around it as a graph.

These are values only. `policy/reports/` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.model.state import State


class LifeKind(StrEnum):
    """What a job did in one part of its life."""

    WAIT = "wait"  # it was due and waited for a processor
    RUN = "run"
    BACKOFF = "backoff"  # after a failed attempt, until the next one
    SLEEP = "sleep"  # it was not due yet: a delay, a snooze or a sleep
    LIMIT = "limit"  # a limit or rate had no room
    HOLD = "hold"  # a limit or rate was held back
    GATE = "gate"  # an operator paused everything, its queue, its type or its tenant
    BUDGET = "budget"  # the budget of its tenant or queue was spent
    JOBS = "jobs"  # it waited for other jobs
    SIGNAL = "signal"  # it waited for a signal
    OTHER = "other"  # it ran and waited for jobs, a signal or a time, and the row does not tell for which
    ENDED = "ended"  # it was dead or cancelled, until an operator brought it back


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a job went, from its enqueue to its end or until now. The parts add up to the total."""

    parts: tuple[tuple[LifeKind, float], ...]
    """At most 12 parts of a kind and a duration in seconds, in their order; none is negative."""
    sums: dict[LifeKind, float]  # seconds of each kind that has any; the largest parts are not always the first
    total: float  # seconds
    began_at: datetime
    open: bool  # the job has not ended: the last part grows
    runs: int  # how many attempts the row knows of, the running one included
    failures: int  # how many of them failed
    text: str  # the same in words, for readers who do not see the line


class NextKind(StrEnum):
    """What happens to a job at `next_at`."""

    RETRY = "retry"  # the next attempt is due
    START = "start"  # the first attempt is due, or the one after a snooze
    ROOM = "room"  # its limit or rate has room again, or the hold on it ends
    BUDGET = "budget"  # its budget opens
    WAKE = "wake"  # its sleep is over
    TIMEOUT = "timeout"  # it stops to wait for jobs or a signal
    CHILD = "child"  # a job that it waits for is tried again


class Relation(StrEnum):
    """How another job is related to this one."""

    CHILD = "child"  # this job spawned it, or is the callback of its batch
    PARENT = "parent"  # it spawned this job, or is the callback of this job's batch
    BEFORE = "before"  # this job depends on it, directly or over other jobs
    AFTER = "after"  # it waits for this job, directly or over other jobs
    BESIDE = "beside"  # it is in the same graph


class Relative(msgspec.Struct, frozen=True):
    """A job next to another one, as a store has it: known to it by name, or waiting for it now."""

    job: UUID
    name: str | None  # None: `other` waits for `job`
    other: UUID


class JobLink(msgspec.Struct, frozen=True, kw_only=True):
    """A job around this one, with its own life."""

    relation: Relation
    name: str  # by which this job knows it; its type where it has no name
    id: UUID
    type: str | None = None  # None: the job no longer exists
    state: State | None = None
    tenant: str | None = None  # may differ from this job's: a spawn may name another one
    attempt: int = 0
    max_attempts: int = 0
    total: int | None = None  # progress: see `ctx.progress`
    processed: int = 0
    error: str | None = None  # of a job that is failed or dead: the last error on one line
    run_at: datetime | None = None
    why: str | None = None  # why it does not start
    life: Life | None = None


class LinkGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that this one knows by similar names: `match[0]` to `match[2559]` are one group per type and state."""

    name: str  # without the number at its end; may be empty
    type: str | None  # None: the jobs no longer exist
    state: State | None
    child: bool  # this job spawned them, or is the callback of their batch
    count: int


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A job, a group of jobs or a phase, and its place: `x` counts columns from the left, `y` rows from the top."""

    key: str  # unique in its graph; edges name it
    name: str
    type: str | None = None
    state: State | None = None  # of a group: the one that asks most for a look; None: not begun, or gone
    id: UUID | None = None  # None: a group or a phase
    count: int = 1
    dead: int = 0  # how many of them are dead
    current: bool = False  # the job that the graph is about, or the phase that it is in
    text: str = ""  # of a group: `match × 2,560, 3 dead`
    x: float = 0.0
    y: float = 0.0


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs as a graph from left to right, at most 60 nodes: above that, jobs of one name and type are one node."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str], ...]  # keys of nodes: the first is before the second
    grouped: bool = False
    width: float = 0.0  # the number of columns
    height: float = 0.0  # the number of rows


class JobStory(msgspec.Struct, frozen=True, kw_only=True):
    """One job as a page shows it: `job.story().text`, where its time went, what is next, and the jobs around it."""

    text: str  # one or two sentences
    life: Life
    next_at: datetime | None  # when something happens by itself, where that is known
    next_kind: NextKind | None
    actions: tuple[str, ...]  # what an operator may do in this state; the most useful first
    links: Sequence[JobLink]  # at most 200 jobs around this one
    groups: Sequence[LinkGroup]  # all jobs that it knows by name, counted; at most 10,000 of them
    more: bool  # there are more than 10,000
    graph: JobGraph | None  # None: the job stands alone
    phases: JobGraph | None  # of a pipeline, in one row
    now: datetime  # the store's, by which all durations are reckoned
