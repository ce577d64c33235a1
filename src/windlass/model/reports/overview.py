"""What an overview shows, as plain values: figures of a range, steps of a chart, facets and suggestions of a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from windlass.model.reports.health import Health, QueueHealth
from windlass.model.rows import COUNTED, AuditRow


class OverviewFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a range, the same figure of the range before, and its course."""

    name: str  # due, running, ended, errors, wait or run
    value: float | None  # None: nothing to tell it from, as the error rate when no job ended
    before: float | None  # of the range before; of due and running jobs: when the range began
    points: tuple[float | None, ...]  # at most 40, oldest first; None: nothing is known of that part
    unit: str  # jobs, per second, share, or seconds
    said: str  # one line about it: `26,640 in the last hour`


class OverviewStep(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in one step of the range."""

    at: datetime  # the start of the step
    succeeded: int
    failed: int  # failures after which the job is tried again
    dead: int
    cancelled: int
    wait_p50: float | None  # seconds
    wait_p95: float | None


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """The first start of a worker with a version of the program: the setting `version` names it."""

    at: datetime
    version: str


class GateChange(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that an operator closed or opened."""

    at: datetime
    said: str  # `mail paused`


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the whole system over a range: the answer of `app.overview()`."""

    at: datetime  # the store's time
    range: float  # seconds
    step: float  # seconds of one of the steps
    health: Health
    figures: Sequence[OverviewFigure]  # due, running, ended, errors, wait, run
    slots: int  # jobs that all live workers run at a time
    steps: Sequence[OverviewStep]  # 60 at most, oldest first; the last one is not over
    deploys: Sequence[Deploy]  # in the range, oldest first, as far as the rows of workers tell
    gates: Sequence[GateChange]  # in the range, oldest first, among the last 100 actions of operators
    queues: Sequence[QueueHealth]  # the worst first, each with 30 points of its depth
    changes: Sequence[AuditRow]  # the last five actions of operators


class Facets(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs that match a filter have each value: the answer of `app.facets(filter)`."""

    count: int  # jobs that match; a number above `counted` means: there are more
    states: Mapping[str, int]  # all seven, in their order
    queues: Mapping[str, int]  # the most frequent first
    types: Mapping[str, int]
    tenants: Mapping[str, int]
    reasons: Mapping[str, int]  # why dead jobs are dead
    complete: bool  # False: more jobs match, or may match, than were counted
    counted: int = COUNTED


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """What could stand in a filter in place of the term that is typed: one of the answers of `app.suggest(…)`."""

    text: str  # the whole term, quoted where it needs quotes: `error:"timed out"`
    kind: str  # key, value, or mistake
    count: int | None  # jobs that match with it, among those that match so far; None: they were not counted
    said: str  # in words: what the key is, what the value means, what is wrong
    start: int  # the characters of the filter that `text` replaces
    end: int


class DryCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a dry run: what an enqueue or a replay would meet."""

    ok: bool  # False: it would be refused, or would wait
    said: str
    kind: str  # input, key, worker, wait, or place
    command: str | None = None  # the command that helps
