"""Taking the keys of new jobs: who holds one already, and what then becomes of the other.

Generators, driven as `statements.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from windlass.errors import IdempotencyConflict
from windlass.model.job import Key, NewJob
from windlass.store.parts.statements import Statements, run, uuid_of


def take_keys(jobs: Sequence[NewJob]) -> Statements[Mapping[UUID, UUID]]:
    """Take the keys of these jobs; the answer names, by the new id, the jobs that held one.

    Idempotency first: a producer that repeats itself gets its own answer, whatever has become of the unique key. Both
    are upserts that wait for a concurrent holder's transaction and see whether it committed.
    """
    held = yield from _take([(job.id, job.idempotency) for job in jobs if job.idempotency is not None])
    rest = [job for job in jobs if job.id not in held]
    by_unique = yield from _take([(job.id, job.unique) for job in rest if job.unique is not None])
    repeated = [
        {"scope": job.idempotency.scope, "key": job.idempotency.key, "job": by_unique[job.id]}
        for job in rest
        if job.id in by_unique and job.idempotency is not None
    ]
    if repeated:  # the producer's key must lead to the job that is there, not to the one that never was
        yield from run("repoint_keys", repeated)
    return _resolved({**held, **by_unique})


def _resolved(existing: dict[UUID, UUID]) -> dict[UUID, UUID]:
    """A job of this batch that gave way to another which then was refused itself leads to the one that is there."""
    return {job: _last(existing, holder) for job, holder in existing.items()}


def _last(existing: Mapping[UUID, UUID], job: UUID) -> UUID:
    while job in existing:
        job = existing[job]
    return job


def _take(wishes: Sequence[tuple[UUID, Key]]) -> Statements[dict[UUID, UUID]]:
    if not wishes:
        return {}
    wanted: dict[tuple[str, str], list[tuple[UUID, Key]]] = {}
    for job, key in wishes:
        wanted.setdefault((key.scope, key.key), []).append((job, key))
    rows: list[dict[str, object]] = [
        {
            "scope": key.scope,
            "key": key.key,
            "job": job,
            "states": key.states,
            "window": key.window,
            "forever": key.forever,
            "fingerprint": key.fingerprint,
        }
        # Each once, the first of a batch, and in one order: so two batches cannot wait for each other.
        for _, ((job, key), *_rest) in sorted(wanted.items())
    ]
    existing: dict[UUID, UUID] = {}
    for scope, text, holder, fingerprint in (yield from _holders(rows)):
        found = uuid_of(holder)
        for job, key in wanted[scope, text]:
            if key.fingerprint is not None and key.fingerprint != fingerprint:
                raise _conflict(text, found)
            if found != job:
                existing[job] = found
    return existing


def _holders(wanted: list[dict[str, object]]) -> Statements[list[Any]]:
    """Who holds each key now: taken where nobody had it, taken over where that is allowed, else whose it is.

    A key that was held at the insert may be gone at the look: then it is taken once more.
    """
    known: dict[tuple[object, object], Any] = {}
    while missing := [row for row in wanted if (row["scope"], row["key"]) not in known]:
        for statement in ("take_keys", "take_over_keys", "key_holders"):
            rest = [row for row in missing if (row["scope"], row["key"]) not in known]
            if rest:
                known |= {(row[0], row[1]): row for row in (yield from run(statement, rest))}
    return list(known.values())


def _conflict(key: str, holder: UUID) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the idempotency key {key!r} was used for job {holder}, with another type or input; nothing was enqueued; "
        "use a new key for a new request"
    )
