"""A job as a JSON object: the same fields wherever a command prints a job with `--json`. docs/cli.md lists them."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.job import Failure, Job
from windlass.model.rows import JobRow

LISTED = 120  # characters of an error in a list


def job_document(job: Job, label: str | None = None) -> dict[str, Any]:
    """Everything about a job except its lease's token. `label` is the program's own name for the state."""
    return {
        "id": job.id,
        "type": job.type,
        "state": job.status,
        "label": label,
        "queue": job.queue,
        "tenant": job.tenant,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "retries": job.retries,
        "crashes": job.crashes,
        "rescues": job.rescues,
        "reason": job.reason,
        "cancel_requested": job.cancel_requested,
        "worker": job.worker,
        "fence": job.fence,
        "key": job.key,
        "parent": job.parent,
        "copied_from": job.copied_from,
        "pipeline": job.pipeline,
        "phase": job.phase,
        "trace": job.trace,
        "cost_cents": job.cost_cents,
        "limits": job.limits or [],
        "parked_on": job.parked_on,
        "progress": {"total": job.total, "processed": job.processed, "failed": job.failed},
        "created_at": job.created_at,
        "run_at": job.run_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "updated_at": job.updated_at,
        "input": _document(job.input),
        "output": _document(job.output),
        "error": _document(job.error),
        "attempts": _document(job.attempts or "[]"),
        "follow_ups": _document(job.follow_ups or "{}"),
    }


def row_document(row: JobRow) -> dict[str, Any]:
    """A job in a list: the job, and why it does not start."""
    return {**job_document(row, row.label), "why": None if row.why is None else msgspec.structs.asdict(row.why)}


def summarize_failure(failure: Failure) -> str:
    """An error on one line: its type, and the first line of its message."""
    first = failure.message.strip().partition("\n")[0]
    text = f"{failure.type.rpartition('.')[2]}: {first}" if first else failure.type
    return text if len(text) <= LISTED else f"{text[:LISTED]}…"


def _document(text: str | None) -> msgspec.Raw | str | None:
    """A stored text as the JSON document that it is, and not as a string; a text that is no JSON stays a string."""
    if text is None:
        return None
    try:
        msgspec.json.format(text)
    except (msgspec.MsgspecError, ValueError):
        return text
    return msgspec.Raw(text.encode())
