"""The unique and idempotency keys of new jobs: taken if they are free, else the job that holds the key is named.

These are generators of statements (see `statements.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from windlass.errors import IdempotencyConflict
from windlass.model.job import Key, NewJob
from windlass.store.parts.statements import Statements, run, uuid_of


def take_keys(jobs: Sequence[NewJob]) -> Statements[Mapping[UUID, UUID]]:
    """Take the keys of these jobs; returns, by the new id, the job that already holds its key.

    Idempotency keys come first: a producer that repeats a request gets the job of that request, whatever has become of
    the unique key. Both are upserts: they wait for the transaction of a concurrent holder and see whether it committed.
    """
    held = yield from _take([(job.id, job.idempotency) for job in jobs if job.idempotency is not None])
    rest = [job for job in jobs if job.id not in held]
    by_unique = yield from _take([(job.id, job.unique) for job in rest if job.unique is not None])
    repeated = [
        {"scope": job.idempotency.scope, "key": job.idempotency.key, "job": by_unique[job.id]}
        for job in rest
        if job.id in by_unique and job.idempotency is not None
    ]
    if repeated:  # the producer's key must lead to the existing job, not to the one that is not written
        yield from run("repoint_keys", repeated)
    return _resolved({**held, **by_unique})


def _resolved(existing: dict[UUID, UUID]) -> dict[UUID, UUID]:
    """By new id the job that exists: a holder of this batch that is not written itself leads on to its own holder."""
    return {job: _last(existing, holder) for job, holder in existing.items()}


def _last(existing: Mapping[UUID, UUID], job: UUID) -> UUID:
    while job in existing:
        job = existing[job]
    return job


def _take(keys: Sequence[tuple[UUID, Key]]) -> Statements[dict[UUID, UUID]]:
    if not keys:
        return {}
    wanted: dict[tuple[str, str], list[tuple[UUID, Key]]] = {}
    for job, key in keys:
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
        # Each key once, for the first job of the batch, and sorted: two batches then cannot deadlock.
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
    """The holder of each key: this job where the key was free or may be taken over, else the job that has it.

    A key that was held when the insert ran may be gone when its holder is read: then it is tried again.
    """
    known: dict[tuple[object, object], Any] = {}
    while missing := [row for row in wanted if (row["scope"], row["key"]) not in known]:
        for statement in ("take_keys", "take_over_keys", "key_holders"):
            rest = [row for row in missing if (row["scope"], row["key"]) not in known]
            if rest:
                known |= {(row[0], row[1]): row for row in (yield from run(statement, rest))}
    return list(known.values())


def encode_keys(keys: Sequence[Key]) -> str:
    """The parameter of `held_keys`."""
    return msgspec.json.encode([{"scope": key.scope, "key": key.key} for key in keys]).decode()


def _conflict(key: str, holder: UUID) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the idempotency key {key!r} was used for job {holder}, with another type or input; nothing was enqueued; "
        "use a new key for a new request"
    )
