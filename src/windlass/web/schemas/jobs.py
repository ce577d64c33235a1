"""The bodies of requests and answers about jobs, as the OpenAPI document shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, StrictBool

from windlass.declare.registry import PRIORITIES
from windlass.model.rows import WaitKind
from windlass.model.state import State
from windlass.web.schemas.base import (
    NAME,
    Answer,
    Body,
    Name,
    Span,
    both,
)

MOST_JOBS = 1_000  # of one request
BulkVerb = Literal["cancel", "retry", "replay", "resume", "discard"]

# Enqueue


class NewJobBody(Body):
    """A job to enqueue, at once, after `delay` or at `run_at`."""

    model_config = ConfigDict(json_schema_extra={"not": both("delay", "run_at")})

    type: Name
    input: dict[str, Any] = Field(default_factory=dict)
    queue: Name | None = None
    tenant: Name | None = None
    priority: int | None = Field(default=None, ge=PRIORITIES.start, lt=PRIORITIES.stop, strict=True)
    max_attempts: int | None = Field(default=None, ge=1, lt=2**31, strict=True)
    delay: Span | None = None
    run_at: AwareDatetime | None = None
    key: str | None = Field(default=None, min_length=1, max_length=10_000, pattern=NAME)


class NewJobsBody(Body):
    """Jobs to enqueue in one transaction."""

    jobs: list[NewJobBody] = Field(min_length=1, max_length=MOST_JOBS)


class Accepted(Answer):
    """A job that is stored. `existing`: it held the key already, and no new job was made."""

    id: UUID
    url: str
    existing: bool
    state: State


class AcceptedJobs(Answer):
    """The stored jobs, in the order of the request."""

    jobs: list[Accepted]


# Jobs


class Why(Answer):
    """Why a job does not start."""

    kind: WaitKind
    name: str
    text: str
    until: datetime | None
    command: str | None


class JobProgress(Answer):
    """How far a job is."""

    total: int | None
    processed: int
    failed: int


class JobSummary(Answer):
    """A job in a list: without its input, output and attempts. `error` has the type and the message."""

    id: UUID
    type: str
    state: State
    label: str | None
    queue: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int
    retries: int
    crashes: int
    rescues: int
    reason: str | None
    cancel_requested: bool
    worker: UUID | None
    fence: int
    key: str | None
    parent: UUID | None
    copied_from: UUID | None
    pipeline: str | None
    phase: str
    trace: str | None
    cost_cents: int
    limits: list[str]
    parked_on: str | None
    progress: JobProgress
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    error: Any = None
    why: Why | None = None


class JobRowDocument(JobSummary):
    """A job in a list. `hint` tells it from its neighbours; `life` is where its time went, in milliseconds."""

    hint: str | None
    life: dict[str, Any]


class JobDocument(JobSummary):
    """A job. `redacted` lists the places whose values are hidden; `trace_url` is where its trace is shown."""

    trace_url: str | None
    input: Any
    output: Any
    attempts: Any
    follow_ups: Any
    redacted: list[str]
    left_out: dict[str, int] | None = None


class JobPage(Answer):
    """A page of jobs, newest first. `next` is the `below` of the next page; null: this is the last one."""

    filter: str
    jobs: list[JobRowDocument]
    next: UUID | None


class AuditEntry(Answer):
    """How a job ended, or what an operator did."""

    number: int
    at: datetime
    action: str
    actor: str | None
    job: UUID | None
    type: str | None
    queue: str | None
    tenant: str | None
    reason: str | None
    subject: str | None


class AuditPage(Answer):
    """A page of the audit, newest first."""

    audit: list[AuditEntry]
    next: int | None


class JobLinkDocument(Answer):
    """A job that another one knows by name."""

    name: str
    id: UUID
    state: State | None


class JobDetailsDocument(Answer):
    """What is known about a job beside its own row."""

    why: Why | None
    reasons: list[Why]
    waits: dict[str, Any] | None
    links: list[JobLinkDocument]
    steps: list[str]
    signals: list[str]
    audit: list[AuditEntry]


class JobResult(Answer):
    """The end of a job, or its state now: `ended` tells which."""

    id: UUID
    state: State
    ended: bool
    output: Any = None
    error: Any = None
    reason: str | None = None


class Changed(Answer):
    """The state of a job after a change; null: it was discarded."""

    id: UUID
    state: State | None


class RerunBody(Body):
    """Run a job again as a new one, perhaps with another input; `discard` removes the dead original."""

    input: dict[str, Any] | None = None
    discard: StrictBool = False


class SignalBody(Body):
    """A signal for `ctx.wait_signal(name)`."""

    name: Name
    value: Any = None


class Sent(Answer):
    """Whether the signal was stored; false: the job had one of that name."""

    id: UUID
    name: str
    sent: bool


# Bulk


class BulkStart(Body):
    """Change every job that matches, on the server, also when the caller has gone."""

    verb: BulkVerb
    filter: str = Field(default="", max_length=2_000)
    expected: int | None = Field(
        default=None, ge=0, strict=True, description="refuse with 409 if another number of jobs matches"
    )


class BulkBody(BulkStart):
    """Change every job that matches. `dry_run` counts them and changes nothing."""

    dry_run: StrictBool = False


class Refusal(Answer):
    """A job that refused a bulk action, and its state; null: it is gone."""

    id: UUID
    state: State | None


class BulkAnswer(Answer):
    """What a bulk action did, or would do (`dry_run`)."""

    verb: BulkVerb
    filter: str
    dry_run: bool
    matched: int
    changed: int
    asked: int
    refused: int
    refusals: list[Refusal]
    types: dict[str, int]
    states: dict[str, int]
    done: bool


class BulkActionDocument(Answer):
    """A bulk action of this server: how far it is, or how it ended."""

    id: UUID
    verb: BulkVerb
    filter: str
    actor: str
    began_at: datetime
    ended_at: datetime | None
    state: Literal["running", "done", "stopped", "failed"]
    problem: str | None
    matched: int
    changed: int
    asked: int
    refused: int


class BulkActionDetails(BulkActionDocument):
    """A bulk action with the first 1,000 jobs that refused it."""

    refusals: list[Refusal]


class BulkActionList(Answer):
    """The bulk actions of this server that run, and those that ended last."""

    actions: list[BulkActionDocument]
