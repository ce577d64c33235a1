"""Rows as JSON objects: one function per row, the same object on the command line (`--json`) and in the HTTP API.

docs/cli.md lists the fields. Values may be ids, times and enums: `msgspec.json.encode` writes them as text. A job has
its own: `JobRow.document()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.policy.cron import describe, list_fires

if TYPE_CHECKING:
    from windlass.model.admission import BudgetRow, Gate, LimitRow, TenantRow
    from windlass.model.figures import PhaseRow
    from windlass.model.job import Job
    from windlass.model.reports.error_groups import ErrorGroup, ErrorShare
    from windlass.model.reports.health import Health
    from windlass.model.reports.overview import Overview
    from windlass.model.reports.story import JobGraph, JobStory, Life
    from windlass.model.rows import AuditRow, JobDetails, LimitUse, QueueRow, WorkerRow
    from windlass.model.schedule import ScheduleRow, TickRow

Document = dict[str, Any]

EDITABLE = ("timing", "catch_up", "overlap", "queue", "priority")  # of a schedule
AUDIT_SHOWN = 20  # rows of the audit with a job's details


def queue_document(row: QueueRow) -> Document:
    return {
        "queue": row.queue,
        "queued": row.queued,
        "running": row.running,
        "failed": row.failed,
        "waiting": row.waiting,
        "dead": row.dead,
        "lag": row.lag,
        "workers": row.workers,
        "gate": row.gate,
        "due": row.due,
        "counted": row.counted,
    }


def error_document(group: ErrorGroup) -> Document:
    return {
        "fingerprint": group.fingerprint,
        "type": group.type,
        "message": group.message,
        "count": group.count,
        "counted": group.counted,
        "more": group.more,
        "states": dict(group.states),
        "queues": _shares(group.queues),
        "types": _shares(group.types),
        "tenants": _shares(group.tenants),
        "workers": _shares(group.workers),
        "first": group.first,
        "last": group.last,
        "points": group.points,
        "newest": group.newest,
    }


def _shares(shares: Sequence[ErrorShare]) -> list[Document]:
    return [{"name": share.name, "count": share.count} for share in shares]


def health_document(health: Health) -> Document:
    """The sentence first, then what it rests on."""
    return {"ok": health.ok, **msgspec.structs.asdict(health)}


def overview_document(overview: Overview) -> Document:
    return {
        **msgspec.structs.asdict(overview),
        "health": health_document(overview.health),
        "changes": [audit_document(row) for row in overview.changes],
    }


def worker_document(row: WorkerRow) -> Document:
    return {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "queues": row.queues,
        "types": row.types,
        "running": row.running,
        "concurrency": row.concurrency,
        "started_at": row.started_at,
        "alive_until": row.alive_until,
        "version": row.version,
        "windlass": row.windlass,
        "reported_at": row.reported_at,
        "in_memory": row.in_memory,
        "pools": [msgspec.structs.asdict(pool) for pool in row.pools],
        "processors": [msgspec.structs.asdict(processor) for processor in row.processors],
        "unlisted": row.unlisted,
    }


def phase_document(row: PhaseRow) -> Document:
    return {
        "pipeline": row.pipeline,
        "phase": row.phase,
        "due": row.due,
        "running": row.running,
        "in_memory": row.in_memory,
        "idle": row.idle,
        "busy": row.busy,
        "error": row.error,
        "per_minute": row.per_minute,
        "run_p50": row.run_p50,
        "run_p95": row.run_p95,
        "wait_p50": row.wait_p50,
        "wait_p95": row.wait_p95,
        "succeeded": row.succeeded,
        "failed": row.failed,
        "dead": row.dead,
        "cancelled": row.cancelled,
        "retries": row.retries,
        "success_rate": row.success_rate,
        "failure_rate": row.failure_rate,
        "error_rate": row.error_rate,
        "counted": row.counted,
    }


def gate_document(gate: Gate) -> Document:
    return {
        "kind": gate.kind,
        "name": gate.name,
        "state": gate.state,
        "reason": gate.reason,
        "actor": gate.actor,
        "since": gate.since,
    }


def limit_document(row: LimitRow) -> Document:
    return {
        "key": row.key,
        "name": row.name,
        "most": row.most,
        "used": row.used,
        "period": row.period,
        "burst": row.burst if row.period is not None else None,
        "waiting": row.waiting,
        "free_in": row.room_in,
        "held": row.held,
    }


def limit_use_document(use: LimitUse) -> Document:
    return {
        **limit_document(use.limit),
        "holders": [_holder_document(use, job) for job in use.holders],
        "waiters": [_waiter_document(job) for job in use.waiters],
    }


def _holder_document(use: LimitUse, job: Job) -> Document:
    return {
        "id": job.id,
        "type": job.type,
        "tenant": job.tenant,
        "queue": job.queue,
        "worker": job.worker,
        "worker_name": None if job.worker is None else use.workers.get(job.worker),
        "since": job.claimed_at,
    }


def _waiter_document(job: Job) -> Document:
    return {
        "id": job.id,
        "type": job.type,
        "tenant": job.tenant,
        "queue": job.queue,
        "priority": job.priority,
        "run_at": job.run_at,
    }


def budget_document(row: BudgetRow) -> Document:
    return {
        "kind": row.kind,
        "name": row.name,
        "cents": row.cents,
        "seconds": row.seconds,
        "spent": row.spent,
        "left": row.left,
        "open": not row.is_spent,
        "until": row.until,
    }


def tenant_document(row: TenantRow) -> Document:
    return {
        "tenant": row.name,
        "weight": row.weight,
        "queued": row.queued,
        "running": row.running,
        "parked": row.parked,
        "lag": row.lag,
        "cents": row.cents,
        "due": row.due,
        "counted": row.counted,
    }


def schedule_document(row: ScheduleRow) -> Document:
    timing, job = row.timing, row.job
    return {
        "name": row.name,
        "when": describe(timing),
        "cron": timing.cron,
        "every": timing.every,
        "at": timing.at,
        "tz": timing.tz if timing.cron is not None else None,
        "catch_up": row.catch_up,
        "overlap": row.overlap,
        "type": job.type,
        "input": msgspec.Raw(job.input.encode()),
        "queue": job.queue,
        "tenant": job.tenant,
        "priority": job.priority,
        "edited": [] if row.edited is None else [name for name in EDITABLE if getattr(row.edited, name) is not None],
        "edited_by": row.edited_by,
        "paused": row.paused,
        "paused_by": row.paused_by,
        "paused_at": row.paused_at,
        "reason": row.reason,
        "next": list_fires(row),
        "late": row.late,
        "last_at": row.last_at,
        "last_job": row.last_job,
    }


def tick_document(tick: TickRow) -> Document:
    return {
        "at": tick.at,
        "outcome": tick.outcome,
        "job": tick.job,
        "noted_at": tick.noted_at,
        "reason": tick.reason,
    }


def audit_document(row: AuditRow) -> Document:
    return {
        "number": row.number,
        "at": row.at,
        "action": row.action,
        "actor": row.actor,
        "job": row.job,
        "type": row.type,
        "queue": row.queue,
        "tenant": row.tenant,
        "reason": row.reason,
        "subject": row.subject,
    }


def details_document(details: JobDetails) -> Document:
    """What is known about a job beside its own row."""
    reasons = [msgspec.structs.asdict(reason) for reason in details.reasons]
    return {
        "why": reasons[0] if reasons else None,
        "reasons": reasons,
        "waits": None if details.waits is None else msgspec.structs.asdict(details.waits),
        "links": [{"name": link.name.strip(), "id": link.id, "state": link.status} for link in details.links],
        "steps": details.steps,
        "signals": details.signals,
        "audit": [audit_document(row) for row in details.audit[:AUDIT_SHOWN]],
    }


def story_document(story: JobStory) -> Document:
    """A job as its page shows it. Durations of a life are whole milliseconds: `[["wait", 2100], ["run", 10900]]`."""
    return {
        "story": story.text,
        "life": life_document(story.life),
        "next_at": story.next_at,
        "next_kind": story.next_kind,
        "actions": list(story.actions),
        "links": [
            {**msgspec.structs.asdict(link), "life": None if link.life is None else life_document(link.life)}
            for link in story.links
        ],
        "groups": [msgspec.structs.asdict(group) for group in story.groups],
        "more": story.more,
        "graph": None if story.graph is None else graph_document(story.graph),
        "phases": None if story.phases is None else graph_document(story.phases),
        "now": story.now,
    }


def life_document(life: Life) -> Document:
    """Where the time of a job went. The milliseconds of the parts add up to the total."""
    ends = [round(end * 1000) for end in accumulate(span for _, span in life.parts)]
    return {
        "parts": [[kind, end - begin] for (kind, _), begin, end in zip(life.parts, [0, *ends], ends, strict=False)],
        "sums": {kind: round(span * 1000) for kind, span in life.sums.items()},
        "total": ends[-1] if ends else 0,
        "began_at": life.began_at,
        "open": life.open,
        "runs": life.runs,
        "failures": life.failures,
        "text": life.text,
    }


def open_life_document(life: Life) -> Document:
    """A life as a list shows it. What grows with every second is null: otherwise each row would differ in each read,
    and a live list would send all of them. The last part of an open life ends now."""
    document = life_document(life)
    if not life.open:
        return document
    done, last = document["parts"][:-1], document["parts"][-1:]
    return {**document, "parts": [*done, *([kind, None] for kind, _ in last)], "sums": {}, "total": None, "text": ""}


def graph_document(graph: JobGraph) -> Document:
    return {**msgspec.structs.asdict(graph), "nodes": [msgspec.structs.asdict(node) for node in graph.nodes]}
