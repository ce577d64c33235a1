"""What a transition causes for other jobs, written once for both stores: keys, spawns, joins, follow-ups, children.

In:   transitions that were just written, new jobs, the operation of an operator
Out:  the statements that write everything they cause
Next: none; a job that becomes claimable by it is a new start at runtime/discovery.py

These are generators of statements (see `statements.py`). A store runs them inside the transaction that writes the
transition, so that the consequences commit together with it or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.errors import TransitionRefused
from windlass.model import audit
from windlass.model.flow import Flow, Memory, Moment, follow_ups_in, redirected
from windlass.model.job import Lease, NewJob, new_id
from windlass.model.outcome import Transition
from windlass.model.state import FINAL, State, Verb
from windlass.policy.failure import EXHAUSTED
from windlass.store.parts.encoding import encode_jobs
from windlass.store.parts.joins import begin_waits, count_ends, reopen_waits, wake_due_waits, wake_jobs
from windlass.store.parts.keys import take_keys
from windlass.store.parts.statements import Statement, Statements, encoder, run, uuid_of

log = logging.getLogger("windlass")


# Enqueue


def is_simple(job: NewJob) -> bool:
    """Whether one row is all that an enqueue of this job writes."""
    return job.unique is None and job.idempotency is None and job.wait is None and job.parent is None and not job.links


def enqueue_jobs(jobs: Sequence[NewJob], *, awaited: frozenset[UUID] = frozenset()) -> Statements[Mapping[UUID, UUID]]:
    """Write new jobs; returns, by the new id, the job that already held its key. Jobs in `awaited` have a waiter."""
    existing: Mapping[UUID, UUID] = {}
    keyed = [job for job in jobs if job.unique is not None or job.idempotency is not None]
    if keyed:
        existing = yield from take_keys(keyed)
    fresh = [job for job in jobs if job.id not in existing]
    awaited |= {edge.awaited for job in fresh if job.wait is not None for edge in job.wait.edges}
    if fresh:
        at_once = frozenset(job.queue for job in fresh if job.is_due_at_once)
        yield Statement("enqueue", encode_jobs(fresh, awaited), enqueues=at_once)
    parents = {job.parent for job in fresh if job.parent is not None} - {job.id for job in fresh}
    if parents:
        yield from run("mark_followed", sorted(parents))  # a cancel of the parent also cancels its children
    if any(job.links for job in fresh):
        yield from run("insert_links", [_link(job.id, name, existing.get(to, to), place) for job in fresh
                                for place, (name, to) in enumerate(job.links)])  # fmt: skip
    waits = {job.id: redirected(job.wait, existing) for job in fresh if job.wait is not None}
    if waits:
        begun = yield from begin_waits(waits, fence=0, new=frozenset(job.id for job in fresh))
        yield from propagate(begun.ended)
    return existing


def _link(job: UUID, name: str, target: UUID, place: int) -> dict[str, object]:
    return {"job": job, "name": name, "target": target, "place": place}


# After a batch of transitions


def write_flow(written: Iterable[tuple[Transition, State]]) -> Statements[Mapping[UUID, State]]:
    """Write what these transitions cause; returns the jobs that changed their state again, with the new one."""
    pairs = list(written)
    changed: dict[UUID, State] = {}
    dropped = (State.DEAD, State.FAILED, State.CANCELLED)
    flows = [(t.lease, state, t.flow) for t, state in pairs if t.flow is not None and state not in dropped]
    memories = [_step(lease.job, memory) for lease, _, flow in flows for memory in flow.memories]
    if memories:
        yield from run("record_steps", memories)
    for lease, state, flow in flows:
        yield from _write_one_flow(lease, flow, waits=state is State.WAITING, changed=changed)
    yield from propagate([transition.job for transition, state in pairs if state in FINAL])
    return changed


def _write_one_flow(lease: Lease, flow: Flow, *, waits: bool, changed: dict[UUID, State]) -> Statements[None]:
    job = lease.job
    existing: Mapping[UUID, UUID] = {}
    awaited = frozenset(edge.awaited for edge in flow.wait.edges) if flow.wait is not None else frozenset()
    if flow.spawns:
        existing = yield from enqueue_jobs([spawn.job for spawn in flow.spawns], awaited=awaited)
        yield from run("insert_links", [_link(job, spawn.name, existing.get(spawn.job.id, spawn.job.id), place)
                                for place, spawn in enumerate(flow.spawns)])  # fmt: skip
    if flow.links:
        links = [_link(job, link.name, link.target, place) for place, link in enumerate(flow.links)]
        yield from run("insert_links", links)
    if waits and flow.wait is not None:
        yield from run("mark_followed", [job])  # a cancel of the job also ends its wait
        new = frozenset(spawn.job.id for spawn in flow.spawns if spawn.job.id not in existing) & awaited
        begun = yield from begin_waits({job: redirected(flow.wait, existing)}, fence=lease.fence, new=new)
        changed.update(dict.fromkeys(begun.woken, State.QUEUED) | dict.fromkeys(begun.ended, State.DEAD))
        yield from propagate(begun.ended)


def _step(job: UUID, memory: Memory) -> dict[str, object]:
    return {"job": job, "name": memory.name, "value": msgspec.Raw(memory.value.encode())}


def propagate(ended: Iterable[UUID]) -> Statements[None]:
    """Write everything that the end of these jobs causes, and what the ends caused by that cause, until none is left.

    Per ended job: its keys are freed, its follow-up is enqueued, its children are cancelled if it was cancelled, its
    own waits are deleted, and its arrival is counted for every job that waits for it.
    """
    waiting = sorted(ended)
    while waiting:
        rows = [EndedJob(*row) for row in (yield from run("ended_jobs", waiting))]
        waiting = []
        if not rows:
            return
        yield from run("free_keys", [{"job": row.id, "status": row.status} for row in rows])
        follow_ups = [job for row in rows if (job := _follow_up(row)) is not None]
        if follow_ups:
            yield from enqueue_jobs(follow_ups)
        cancelled = [{"job": row.id, "tenant": row.tenant} for row in rows if row.status == State.CANCELLED]
        if cancelled:
            waiting += yield from _cancel_children(cancelled)
        yield from run("delete_edges", [row.id for row in rows])
        yield from run("delete_waits", [row.id for row in rows])
        waiting += yield from count_ends({uuid_of(row.id): row.status == State.SUCCEEDED for row in rows})
        waiting.sort()


def _cancel_children(parents: Sequence[dict[str, object]]) -> Statements[list[UUID]]:
    """Cancel the children of cancelled jobs: a running child is asked to stop, any other ends here.

    A child of another tenant goes on: an operator of one tenant changes no job of another, and a parent that runs is
    cancelled by its worker later, when it is not known any more who asked for it.
    """
    children = [uuid_of(row[0]) for row in (yield from run("children", parents))]
    if not children:
        return []
    rows = yield from run("cancel_many", [{"id": child, "reason": "its parent was cancelled"} for child in children])
    return [uuid_of(row[0]) for row in rows]


# Follow-ups


class EndedJob(NamedTuple):
    """A job that ended: one row of the statement `ended_jobs`."""

    id: Any
    status: str
    tenant: str
    trace: str | None
    input: str
    output: str | None
    error: str | None
    follow_ups: str | None


def _follow_up(job: EndedJob) -> NewJob | None:
    if job.follow_ups is None:
        return None
    known = follow_ups_in(job.follow_ups)
    if not known:
        log.warning("the follow-ups of job %s cannot be read, so none is enqueued: %s", job.id, job.follow_ups[:200])
    follow_up = known.get(Moment(job.status))
    if follow_up is None:
        return None
    given = {
        "id": encoder.encode(job.id).decode(),
        "input": job.input,
        "output": job.output or "null",
        "error": job.error or "null",
    }
    values = {name: msgspec.Raw(given[name].encode()) for name in follow_up.names}
    return NewJob(
        id=new_id(),
        type=follow_up.type,
        input=encoder.encode(values).decode(),
        queue=follow_up.queue,
        tenant=job.tenant,
        priority=follow_up.priority,
        max_attempts=follow_up.max_attempts,
        trace=job.trace,
        follow_ups=encoder.encode(follow_up.then).decode() if follow_up.then else None,
        limits=follow_up.limits,
    )


def bury_crashed(jobs: Iterable[tuple[UUID, str]]) -> Statements[None]:
    """Jobs that a sweep marked dead, with the reason: too many of their workers died, or one in the last attempt."""
    dead = dict(sorted(jobs))
    if dead:
        actions = [
            {"action": audit.action(Verb.BURY_CRASHED, exhausted=reason == EXHAUSTED), "actor": None, "job": job}
            for job, reason in dead.items()
        ]
        yield from run("record_job_action", actions)
        yield from propagate(list(dead))


# Signals


def send_signal(job: UUID, name: str, payload: str, actor: str | None) -> Statements[bool]:
    """Store a signal, and wake the job if it waits for it. The job has not ended, and its row is locked.

    Returns False when a signal of this name was stored before: the first one stays.
    """
    row = {"job": job, "name": name, "payload": msgspec.Raw(payload.encode())}
    kept = yield from run("insert_signal", [row])
    if not kept:
        return False
    yield from record_job_action(audit.SIGNALLED, actor, job)
    if (yield from run("awaits_signal", [{"job": job, "name": name}])):
        yield from wake_jobs([job])
    return True


def wake_due_jobs(page: int) -> Statements[int]:
    """Wake the jobs at the end of their timers, and decide waits that no arrival decided; returns how many woke."""
    woken, ended = yield from wake_due_waits(page)
    yield from propagate(ended)
    return woken


# Operators


def record_job_action(action: str, actor: str | None, job: UUID) -> Statements[bool]:
    """Write a row of the audit for an operation; the statement copies queue, type and tenant from the job's row.

    Returns False where there is no such job.
    """
    return bool((yield from run("record_job_action", [{"action": action, "actor": actor, "job": job}])))


def after_operation(verb: Verb, job: UUID, state: State | None, actor: str | None) -> Statements[None]:
    """Write what an operator's change, which was just written, causes."""
    if verb is Verb.CANCEL and state is not State.RUNNING:
        yield from record_job_action(audit.CANCELLED, actor, job)
        yield from propagate([job])
    elif verb is not Verb.DISCARD:  # a discard is recorded before it, while the job's row is still there
        yield from record_job_action(audit.OPERATIONS[verb], actor, job)
    if verb in (Verb.REPLAY, Verb.RESUME):
        yield from _retake_key(verb, job)
        yield from run("delete_expired_waits", [job])
        yield from reopen_waits(job)
    elif verb is Verb.DISCARD:
        yield from run("free_keys", [{"job": job, "status": "discarded"}])


def copy_job(new: NewJob, old: UUID) -> Statements[None]:
    """Write the copy of an old job; a key that another job holds refuses it."""
    for holder in (yield from enqueue_jobs([new])).values():
        also = "; discard the old job with it" if holder == old else ""
        raise TransitionRefused(
            f"cannot re-run job {old}: the unique key {new.key!r} of its copy belongs to job {holder}{also}; nothing "
            "was written"
        )


def _retake_key(verb: Verb, job: UUID) -> Statements[None]:
    """A job that becomes claimable again needs its unique key again; another job may hold it by now."""
    if (yield from run("retake_keys", [job])):
        return
    for key, holder in (yield from run("key_holder", [job])):
        if uuid_of(holder) != job:
            raise TransitionRefused(
                f"cannot {verb.value} job {job}: its unique key {key!r} belongs to job {holder} now, which does "
                "its work; discard this one, or enqueue it under another key"
            )
