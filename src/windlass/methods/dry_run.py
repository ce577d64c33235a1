"""What an enqueue or a replay would meet, without writing anything: `app.dry_run("send", {"to": "ann"})`.

The checks are those of the enqueue itself, and the reasons those of `job.why()`, for a job that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import EnqueueError
from windlass.model.job import COLUMNS, Job, NewJob
from windlass.model.reports.overview import DryCheck
from windlass.model.state import State

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.config import Settings
    from windlass.declare.registry import Definition
    from windlass.model.rows import DueRow, WaitReason, WorkerRow
    from windlass.store.protocol import Store

MISSING = ("worker", "type")  # kinds of reasons that the check of the workers has told
ORDINALS = {1: "st", 2: "nd", 3: "rd"}


async def try_copy(
    store: Store, job: Job, definition: Definition | None, settings: Settings, input: Mapping[str, Any] | None
) -> list[DryCheck]:
    """As `try_out`, for a copy of a job with another input."""
    from windlass.handles.rerun import copy_of

    try:
        new = await copy_of(store, job, definition, settings, input)
    except EnqueueError as error:
        return [refused(error)]
    # A dead job is replaced by its copy, and its key with it. Any other job keeps its key and refuses the copy.
    return await try_out(store, new, definition, job.id if job.status is State.DEAD else None)


async def try_out(store: Store, new: NewJob, definition: Definition | None, own: UUID | None = None) -> list[DryCheck]:
    """The checks of a job whose input fits; `own` is the job that it replaces, whose key it may take over."""
    from windlass.store.reasons import explain, read_hindrances

    names = msgspec.json.decode(new.input) if definition is None else definition.signature.names
    name = new.type if new.pipeline is None else new.pipeline
    job = await _imagined(store, new)
    found = await read_hindrances(store, [job])
    return [
        DryCheck(ok=True, said=f"The input fits {name}({', '.join(names)}).", kind="input"),
        *await _check_key(store, new, own),
        _check_workers(new, found.workers),
        *_check_waits(explain(job, found)),
        _check_place(new, await store.count_due()),
    ]


async def _imagined(store: Store, new: NewJob) -> Job:
    """The record that an enqueue would write now."""
    from datetime import timedelta

    now = await store.now()
    due = new.run_at or now + timedelta(seconds=new.delay or 0.0)
    zero = dict.fromkeys(("cost_cents", "attempt", "crashes", "rescues", "fence", "processed", "failed"), 0)
    given = msgspec.structs.asdict(new) | {"phase": new.phase or new.queue, "limits": list(new.limits) or None}
    values = {**given, **zero, "status": State.QUEUED, "run_at": due, "created_at": now, "updated_at": now}
    record: dict[str, Any] = {column: values.get(column) for column in COLUMNS}
    return Job(**record)


async def _check_key(store: Store, new: NewJob, own: UUID | None) -> list[DryCheck]:
    keys = [key for key in (new.unique, new.idempotency) if key is not None]
    if not keys:
        return []
    held = await store.held_keys(keys)
    for key in keys:
        holder = held.get((key.scope, key.key))
        if holder is not None and holder != own:
            text = f"Its key {new.key or key.key} is held by job {holder}: no second job would be written."
            return [DryCheck(ok=False, said=text, kind="key", command=f"windlass jobs show {holder}")]
    return [DryCheck(ok=True, said=f"Its key {new.key or keys[0].key} is free.", kind="key")]


def _check_workers(new: NewJob, workers: Sequence[WorkerRow]) -> DryCheck:
    import shlex

    from windlass.policy.reports.health import spell_number

    serving = [worker for worker in workers if worker.serves_queue(new.queue)]
    knowing = sum(new.type in worker.types for worker in serving)
    if knowing:
        text = f"{spell_number(knowing)} worker{' knows' if knowing == 1 else 's know'} this type."
        return DryCheck(ok=True, said=text, kind="worker")
    lacks = f"knows the type {new.type}" if serving else f"serves queue {new.queue}"
    command = f"windlass worker app.py --queue {shlex.quote(new.queue)}"
    return DryCheck(ok=False, said=f"No live worker {lacks}.", kind="worker", command=command)


def _check_waits(reasons: Iterator[WaitReason]) -> Iterator[DryCheck]:
    for why in reasons:
        if why.kind not in MISSING:
            yield DryCheck(ok=False, said=f"It would wait: {why.text}.", kind="wait", command=why.command)


def _check_place(new: NewJob, due: Sequence[DueRow]) -> DryCheck:
    """Behind all due jobs of its queue, which is true unless its priority or its tenant's weight is higher."""
    row = next((row for row in due if row.queue == new.queue), None)
    attempts = f"{new.max_attempts:,} attempt{'' if new.max_attempts == 1 else 's'}"
    if row is not None and row.due > row.counted:
        place = f"More than {row.counted:,} jobs of queue {new.queue} are before it"
    else:
        place = f"{_ordinal((0 if row is None else row.due) + 1)} in line of queue {new.queue}"
    return DryCheck(ok=True, said=f"{place}, with {attempts} from zero.", kind="place")


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else ORDINALS.get(number % 10, "th")
    return f"{number:,}{ending}"


def refused(error: EnqueueError) -> DryCheck:
    """The only check of a job that would not be written."""
    text = str(error)
    return DryCheck(ok=False, said=f"{text[:1].upper()}{text[1:].rstrip('.')}.", kind="input")
