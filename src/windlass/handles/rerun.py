"""A new job made of an old one: `job.rerun({"to": "ann@example.org"})`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.client import Call
from windlass.declare.announced import definition_of
from windlass.declare.options import Options
from windlass.errors import InvalidInput, UnknownType
from windlass.model.job import Job, NewJob, new_id
from windlass.payload.profile import check_arguments, encode
from windlass.policy.unique import shorten_key, text_of

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.declare.registry import Definition
    from windlass.store.protocol import Store


async def rerun(
    store: Store,
    job: Job,
    definition: Definition | None,
    settings: Settings,
    *,
    input: Mapping[str, Any] | None,
    discard: bool,
    actor: str,
) -> NewJob:
    """Write a copy of the job; `definition` is that of its type or pipeline, where the program has it."""
    new = await copy_of(store, job, definition, settings, input)
    await store.rerun(new, discard=discard, actor=actor)
    return new


async def copy_of(
    store: Store, job: Job, definition: Definition | None, settings: Settings, input: Mapping[str, Any] | None
) -> NewJob:
    """The copy with another input, checked and not written."""
    row = None
    if definition is not None and job.pipeline != (None if definition.plan is None else definition.plan.name):
        definition = None  # the program has the type of this phase, and not the pipeline
    if definition is None:
        row = next(iter(await store.types(job.pipeline or job.type)), None)
        definition = None if row is None or row.local_only is not None else definition_of(row)
    if definition is None:
        new = _plain_copy(job, input)
    else:
        new = _checked_copy(job, input, definition, settings)
        if row is not None and row.phases:
            new = msgspec.structs.replace(new, pipeline=row.name, phase=row.phases[0])
    return new


def _plain_copy(job: Job, input: Mapping[str, Any] | None) -> NewJob:
    """A copy without the program: the input is checked by the JSON profile only, and keys stay as they are.

    No unique key is taken: only the program knows in which states it refuses.
    """
    if job.phase_rank > 0:
        raise UnknownType(
            f"job {job.id} is in phase {job.phase!r}, and its copy begins with the first phase of pipeline "
            f"{job.pipeline!r}, which this program does not know; run this in its program, or start a worker of it"
        )
    return NewJob(
        id=new_id(),
        type=job.type,
        input=job.input if input is None else encode(dict(check_arguments(input))),
        queue=job.queue,
        tenant=job.tenant,
        priority=job.priority,
        max_attempts=job.max_attempts,
        key=job.key,
        pipeline=job.pipeline,
        phase=None if job.pipeline is None else job.phase,
        copied_from=job.id,
        follow_ups=job.follow_ups,
        limits=tuple(job.limits or ()),
    )


def _checked_copy(job: Job, input: Mapping[str, Any] | None, definition: Definition, settings: Settings) -> NewJob:
    """A copy whose input fits the hints. A new input has the keys that it makes; an old one keeps its own."""
    text = job.input if input is None else definition.signature.bind((), check_arguments(input))
    begins_here = job.phase_rank == 0  # later phases of a pipeline have the queue and the attempts of their own types
    options = Options(
        tenant=job.tenant,
        priority=job.priority,
        queue=job.queue if begins_here else None,
        max_attempts=job.max_attempts if begins_here else None,
        key=_own_key(job, definition),
        unique=False if job.key is None else None,
    )
    # The follow-ups are on the old job, as its enqueue made them.
    new = Call(msgspec.structs.replace(definition, follow_ups=()), text, options).new_job(settings)
    limits = tuple(job.limits or ()) if input is None and begins_here else new.limits
    return msgspec.structs.replace(new, copied_from=job.id, follow_ups=job.follow_ups, limits=limits)


def _own_key(job: Job, definition: Definition) -> str | None:
    """The key that its enqueue gave; None where the key is made of the input."""
    if job.key is None or definition.unique is None:
        return job.key
    try:
        made = shorten_key(text_of(definition.unique, definition.signature, job.input))
    except InvalidInput:  # an input of an older program
        return None
    return None if made == job.key else job.key
