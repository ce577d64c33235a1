"""Whether all is well, as plain values: one sentence, what it rests on, the next commands, and each queue's figures.

`policy/reports/health.py` decides them from rows of the store. `model/reports/overview.py` has the figures of a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from windlass.model.admission import BudgetRow, Gate, GateState, TenantRow
from windlass.model.figures import DepthRow, FigureRow
from windlass.model.rows import DueRow, QueueRow, WorkerRow
from windlass.model.schedule import ScheduleRow


class HealthLevel(StrEnum):
    """How the system is: `bad` and `warning` ask for an operator, `well` and `idle` do not."""

    BAD = "bad"
    WARNING = "warning"
    WELL = "well"
    IDLE = "idle"  # nothing is due and nothing runs


class Trouble(StrEnum):
    """What is wrong, the worst first: the first that applies is the sentence of the health."""

    NO_WORKER = "no worker"  # a queue has due jobs, and no live worker serves it
    STALLED = "stalled"  # no attempt of a queue ends, or none starts
    ERRORS = "errors"  # too many of the jobs that end are dead
    BEHIND = "behind"  # due jobs wait long, and the queue grew for ten minutes
    LATE = "late"  # a tick of a schedule is overdue
    GATE = "gate"  # jobs wait behind a closed gate
    BUDGET = "budget"  # jobs wait for the next window of a budget


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can do about a finding: the label of a button, and the same as a command line."""

    label: str  # `Open gate…`; the three dots mean that it asks before it acts
    command: str  # `windlass gates resume --queue mail`
    kind: str  # `show`: it only reads; `change`: it changes jobs or gates; `copy`: it is run on another machine


class HealthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that needs a look."""

    trouble: Trouble
    level: HealthLevel
    name: str  # of what it is about: `queue:mail`, `schedule:nightly`, `tenant:acme`; empty: all queues
    sentence: str
    evidence: str
    actions: Sequence[NextStep]


class QueueHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with the figures of its last ten minutes. `due` above `counted` means: there are more."""

    queue: str
    gate: GateState  # of the queue, or of everything
    workers: int  # live ones that serve it
    slots: int  # jobs that these workers run at a time; queues that share a worker share its slots
    due: int
    running: int
    dead: int
    counted: int
    oldest: float | None  # seconds for which its oldest due job has waited
    per_second: float  # jobs that ended or went on to their next phase
    dead_share: float | None  # of the jobs that ended or went on to their next phase; None: there was none
    wait_p95: float | None  # seconds
    growing: bool  # its depth grew for ten minutes
    empty_in: float | None  # seconds until no job is due; 0: none is; None: never, or when its gate is opened
    empties: str  # the same in words: `empty`, `7 m 53 s`, `never`, `when opened`
    workers_needed: int | None  # with so many it would keep up; None where it does not grow, or where it is unknown
    trouble: Trouble | None = None  # the worst that was found
    points: tuple[int, ...] = ()  # queued jobs over the range, oldest first; only `app.overview()` reads them


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all is well, in one sentence: the answer of `app.health()`."""

    level: HealthLevel
    sentence: str
    evidence: str
    actions: Sequence[NextStep]
    findings: Sequence[HealthFinding]  # what else needs a look, the worst first; five at most
    queues: Sequence[QueueHealth]  # the worst first
    at: datetime  # the store's time

    @property
    def ok(self) -> bool:
        """Whether nothing needs a look: `app.health().ok`."""
        return self.level in (HealthLevel.WELL, HealthLevel.IDLE)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds about queues, workers, gates, schedules and budgets at one moment."""

    now: datetime  # the store's
    queues: Sequence[QueueRow] = ()
    due: Sequence[DueRow] = ()  # of the queues that have due jobs
    workers: Sequence[WorkerRow] = ()
    gates: Sequence[Gate] = ()
    figures: Sequence[FigureRow] = ()  # of the last hour, in steps of a minute
    depths: Sequence[DepthRow] = ()  # of the last ten minutes
    schedules: Sequence[ScheduleRow] = ()
    budgets: Sequence[BudgetRow] = ()
    tenants: Sequence[TenantRow] = ()  # read only where a tenant's gate is closed or its budget is spent
    cause: str | None = None  # the most frequent error of the newest dead jobs; read only where too many die
