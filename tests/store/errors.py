"""Helpers for the tests of errors: jobs that fail as a worker's jobs do."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from windlass.model.state import Verb
from windlass.policy.fingerprint import fingerprint
from windlass.store.sqlite.rows import micros

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.model.job import Job

    from .rig import Rig

HOUR = 3_600.0


def failing(message: str, type: str = "ValueError") -> dict[str, Any]:
    """The fields of a transition that has an error."""
    failure = {"type": type, "message": message, "attempt": 1, "attemptedAt": "2026-01-01T12:00:00Z"}
    return {"error": json.dumps(failure), "fingerprint": fingerprint(type, message)}


async def fail(
    rig: Rig,
    message: str,
    *,
    type: str = "ValueError",
    verb: Verb = Verb.FAIL,
    job: Job | None = None,
    delay: float = 7_200.0,
    entry: str | None = None,
    **options: Any,
) -> UUID:
    """A job whose attempt fails with this message: the given one, or a new one."""
    held = job or await rig.running(**options)
    written = await rig.finish(held, verb, attempt=1, delay=delay, entry=entry, **failing(message, type))
    assert written is not None
    return held.id


async def failure_of(rig: Rig, job: UUID, *, ago: float = 0.0) -> tuple[str | None, bool, str | None]:
    """The fingerprint in the job's row, whether it failed so many seconds ago, and the worker."""
    columns = f"SELECT fingerprint, error_at, error_worker FROM {{0}}{{}} WHERE id = '{job}'"
    ((found, at, worker),) = await rig.run(
        " UNION ALL ".join(columns.replace("{}", name) for name in ("jobs", "history"))
    )
    moment = rig.clock.now() - timedelta(seconds=ago)
    return (
        found,
        at == (moment if rig.dialect == "postgres" else micros(moment)),
        None if worker is None else str(worker),
    )
