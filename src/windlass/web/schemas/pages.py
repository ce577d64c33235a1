"""The answers that are made for a page: health, overview, facets, suggestions, error groups, phases, stories."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from windlass.model.admission import GateState
from windlass.model.state import State
from windlass.web.schemas.base import Answer, Body
from windlass.web.schemas.jobs import AuditEntry


class StepDocument(Answer):
    """What an operator can do: the label of a button, and the same as a command."""

    label: str
    command: str
    kind: Literal["show", "change", "copy"]


class FindingDocument(Answer):
    """One thing that needs a look."""

    trouble: str
    level: Literal["bad", "warning", "well", "idle"]
    name: str
    sentence: str
    evidence: str
    actions: list[StepDocument]


class QueueHealthDocument(Answer):
    """A queue with the figures of its last ten minutes. `due` above `counted` means: there are more."""

    queue: str
    gate: GateState
    workers: int
    slots: int
    due: int
    running: int
    dead: int
    counted: int
    oldest: float | None
    per_second: float
    dead_share: float | None
    wait_p95: float | None
    growing: bool
    empty_in: float | None
    empties: str
    workers_needed: int | None
    trouble: str | None
    points: list[int]


class HealthDocument(Answer):
    """Whether all is well, in one sentence."""

    ok: bool
    level: Literal["bad", "warning", "well", "idle"]
    sentence: str
    evidence: str
    actions: list[StepDocument]
    findings: list[FindingDocument]
    queues: list[QueueHealthDocument]
    at: datetime


class OverviewFigureDocument(Answer):
    """One figure of a range, the same figure of the range before, and its course."""

    name: str
    value: float | None
    before: float | None
    points: list[float | None]
    unit: str
    said: str


class OverviewStepDocument(Answer):
    """What ended in one step of the range."""

    at: datetime
    succeeded: int
    failed: int
    dead: int
    cancelled: int
    wait_p50: float | None
    wait_p95: float | None


class DeployDocument(Answer):
    """The first start of a worker with a version of the program."""

    at: datetime
    version: str


class GateChangeDocument(Answer):
    """A gate that was closed or opened in the range."""

    at: datetime
    said: str


class OverviewDocument(Answer):
    """The state of the whole system over a range."""

    at: datetime
    range: float
    step: float
    health: HealthDocument
    figures: list[OverviewFigureDocument]
    slots: int
    steps: list[OverviewStepDocument]
    deploys: list[DeployDocument]
    gates: list[GateChangeDocument]
    queues: list[QueueHealthDocument]
    changes: list[AuditEntry]


class FacetsDocument(Answer):
    """How many jobs that match have each value. `count` above `counted` means: there are more."""

    count: int
    counted: int
    states: dict[str, int]
    queues: dict[str, int]
    types: dict[str, int]
    tenants: dict[str, int]
    reasons: dict[str, int]


class SuggestionDocument(Answer):
    """What could stand in a filter, in place of the characters from `start` to `end`."""

    text: str
    kind: Literal["key", "value", "mistake"]
    count: int | None
    said: str
    start: int
    end: int


class Suggestions(Answer):
    """The best first."""

    suggestions: list[SuggestionDocument]


class Share(Answer):
    """How many jobs of a group have this value."""

    name: str
    count: int


class ErrorGroupDocument(Answer):
    """Jobs that failed in the same way. `more`: older failures were not read, and every count may be too low."""

    fingerprint: str
    type: str
    message: str
    count: int
    counted: int
    more: bool
    states: dict[State, int]
    queues: list[Share]
    types: list[Share]
    tenants: list[Share]
    workers: list[Share]
    first: datetime
    last: datetime
    points: list[int]
    newest: UUID


class ErrorGroups(Answer):
    """The largest group first."""

    errors: list[ErrorGroupDocument]


class PhaseDocument(Answer):
    """A phase of a pipeline, or a queue with its jobs that are in no pipeline."""

    pipeline: str | None
    phase: str
    due: int
    running: int
    in_memory: int
    idle: int
    busy: int
    error: int
    per_minute: float
    run_p50: float | None
    run_p95: float | None
    wait_p50: float | None
    wait_p95: float | None
    succeeded: int
    failed: int
    dead: int
    cancelled: int
    retries: int
    success_rate: float | None
    failure_rate: float | None
    error_rate: float | None
    counted: int


class Phases(Answer):
    """Pipelines in the order of their phases, then queues."""

    phases: list[PhaseDocument]


class StoryDocument(Answer):
    """A job in words, where its time went in milliseconds, and the jobs around it."""

    story: str
    life: dict[str, Any]
    next_at: datetime | None
    next_kind: str | None
    actions: list[str]
    links: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    more: bool
    graph: dict[str, Any] | None
    phases: dict[str, Any] | None
    now: datetime


class DryRunBody(Body):
    """The input with which a job would run again; without it, its own."""

    input: dict[str, Any] | None = None


class CheckDocument(Answer):
    """What a replay would meet."""

    ok: bool
    said: str
    kind: str
    command: str | None


class Checks(Answer):
    """Nothing was written."""

    checks: list[CheckDocument]


class LiveLists(Answer):
    """Live lists by their names, each with its rows by key."""

    lists: dict[str, dict[str, Any]]
