"""Enqueue by name: for callers that have a type's name and a JSON object, and not the function itself.

The HTTP API stands on this. A call by name is checked as `send.options(…).enqueue(…)` is, and its error names the place
in the list of calls: `$[17].input.to`, or `$.input.to` in a list of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.blocking import blocking
from windlass.client import Call, Enqueue
from windlass.config import suggest
from windlass.declare.announced import announced_rows, definition_of
from windlass.declare.options import NONE, Options
from windlass.errors import EnqueueError, IdempotencyConflict, InvalidInput, InvalidOption, UnknownType, WindlassError
from windlass.handles.job import JobHandle
from windlass.names import name_problem
from windlass.payload.profile import LARGEST, check_arguments
from windlass.policy.unique import call_fingerprint, call_key

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.config import Settings
    from windlass.declare.registry import Definition, Registry
    from windlass.model.job import NewJob
    from windlass.model.job_types import TypeRow
    from windlass.model.reports.overview import DryCheck
    from windlass.store.protocol import Store

WITHOUT = {
    "conn": "a call by name has no connection of the caller; use the job type's own enqueue",
    "idempotency_key": "one key is for all calls; write: app.enqueue_named(calls, idempotency_key=…)",
}
"""The options of an enqueue that a call by name does not have."""


class NamedCall(msgspec.Struct, frozen=True):
    """A call of a job type or a pipeline by its name: `NamedCall("send", {"to": "a@example.org"}, {"delay": "10m"})`.

    `options` has the options of `send.options(…)`, without `conn` and `idempotency_key`. `run_at` may be text.
    """

    type: str
    input: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}


class NamedEnqueues:
    """The methods of `Windlass` that enqueue by name."""

    _noun = "app"
    settings: Settings
    _client: Client
    _registry: Registry

    # Written out for both kinds of callers: an enqueue inside `ctx.transaction()` runs on the caller's own thread.

    async def aenqueue_named(
        self, calls: Sequence[NamedCall], *, idempotency_key: str | None = None
    ) -> list[JobHandle[Any]]:
        """Enqueue all of these calls or none: `app.enqueue_named([NamedCall("send", {"to": "a@example.org"})])`.

        Each call is checked as `send.options(…).enqueue(…)` checks it. `error.path` of an EnqueueError names the place,
        such as `$[17].input.to`, and `$.input.to` when there is one call.

        The name is that of a job type or a pipeline of this program, or one that a worker on this database has
        announced: then its input is checked by the JSON Schema of its hints. Raises UnknownType for any other name.

        With `idempotency_key`, the same calls return the same jobs, with `handle.existing`. Any other calls with that
        key raise IdempotencyConflict, and nothing is written. The key belongs to the tenant of the calls, and is kept
        for a day (setting `idempotency_window`).
        """
        unknown = self._unknown(calls)
        announced = (
            await self._client.aask(lambda store: read_announced(store, unknown)) if unknown else Announced({}, ())
        )
        jobs, conn, answer = self._prepare(calls, idempotency_key, announced)
        with _whole_key(idempotency_key):
            return answer(await self._client.aenqueue(jobs, conn))

    def enqueue_named(self, calls: Sequence[NamedCall], *, idempotency_key: str | None = None) -> list[JobHandle[Any]]:
        name = "app.aenqueue_named(…)"
        self._client.portal.refuse_on_a_loop(name)
        unknown = self._unknown(calls)
        announced = self._client.ask(lambda store: read_announced(store, unknown)) if unknown else Announced({}, ())
        jobs, conn, answer = self._prepare(calls, idempotency_key, announced)
        with _whole_key(idempotency_key):
            return answer(self._client.enqueue(jobs, conn, async_name=name))

    enqueue_named.__doc__ = aenqueue_named.__doc__

    async def ajob_types(self) -> list[TypeRow]:
        """The job types and pipelines of this program and of all workers: `[row.name for row in app.job_types()]`.

        `row.parameters` is the JSON Schema of the input, `row.workers` the number of live workers that run it, and
        `row.local_only` says why only its own program can enqueue it. Other programs' types are listed from the start
        of their first worker on, and until the history is deleted (setting `history`) after the last one has stopped.
        """
        rows = await self._client.aask(_read_types)
        own = {row.name: row for row in announced_rows(self._registry, self.settings)}
        for row in rows:
            mine = own.get(row.name, row)
            own[row.name] = msgspec.structs.replace(mine, workers=row.workers, announced_at=row.announced_at)
        return sorted(own.values(), key=lambda row: row.name)

    async def adry_run(self, type: str, input: Mapping[str, Any] | None = None, /, **options: Any) -> list[DryCheck]:
        """What an enqueue by name would meet: `[check.said for check in app.dry_run("send", {"to": "ann"})]`.

        The checks: whether the input fits, whether its unique key is free, whether a live worker knows the type, what
        would keep it waiting (a gate, a limit, a hold, a budget, its time), and its place in line. Nothing is written.
        `options` are those of `send.options(…)`; `check.ok` is False where the job would be refused or would wait.
        """
        from windlass.methods.dry_run import refused, try_out

        call = NamedCall(type, {} if input is None else input, options)
        unknown = self._unknown([call])

        async def check(store: Store) -> list[DryCheck]:
            try:
                job, definition = self._check(call, await read_announced(store, unknown))
            except EnqueueError as error:
                return [refused(error)]
            return await try_out(store, job, definition)

        return await self._client.aask(check)

    job_types = blocking(ajob_types)
    dry_run = blocking(adry_run)

    def _unknown(self, calls: Sequence[NamedCall]) -> list[str]:
        """The names that this program does not know."""
        _check_list(calls)
        names = dict.fromkeys(call.type for call in calls if isinstance(call, NamedCall) and isinstance(call.type, str))
        return [name for name in names if self._own(name) is None]

    def _own(self, name: str) -> Definition | None:
        """The definition of a job type, or else of a pipeline."""
        definition = self._registry.get(name)
        if definition is None and name in self._registry.pipelines:
            return self._registry.pipelines[name].definition
        return definition

    def _prepare(
        self, calls: Sequence[NamedCall], key: str | None, announced: Announced
    ) -> Enqueue[list[JobHandle[Any]]]:
        """The checked jobs of all calls; nothing is written yet."""
        jobs: list[NewJob] = []
        definitions: list[Definition | None] = []
        for index, call in enumerate(calls):
            with _located(index, alone=len(calls) == 1):
                job, definition = self._check(call, announced)
            jobs.append(job)
            definitions.append(definition)
        if key is not None:
            jobs = _with_key(jobs, calls, key, self.settings.idempotency_window)
        client = self._client

        def handles(existing: Mapping[UUID, UUID]) -> list[JobHandle[Any]]:
            both = zip(jobs, definitions, strict=True)
            return [JobHandle._of(client, job, definition, existing) for job, definition in both]

        return Enqueue(jobs, None, handles)

    def _check(self, call: NamedCall, announced: Announced) -> tuple[NewJob, Definition | None]:
        """The job of one call, and the definition that decodes its result, where this program has it."""
        if not isinstance(call, NamedCall):
            raise EnqueueError(f'it is {type(call).__name__}, not a call by name; write: NamedCall("send", {{…}})')
        if not isinstance(call.type, str):
            raise UnknownType(f"the type is {type(call.type).__name__}, not the name of a job type")
        own = self._own(call.type)
        if own is not None:
            return self._new_job(call, own), own
        row = announced.rows.get(call.type)
        if row is None:
            raise self._unknown_type(call.type, announced)
        return self._announced_job(call, row), None

    def _new_job(self, call: NamedCall, definition: Definition) -> NewJob:
        options = _options(call.options, definition)
        input = definition.signature.bind((), check_arguments(call.input))
        return Call(definition, input, options, self._registry).new_job(self.settings)

    def _announced_job(self, call: NamedCall, row: TypeRow) -> NewJob:
        if row.local_only is not None:
            raise EnqueueError(f"{row.name!r} is enqueued by its own program only: {row.local_only}")
        if isinstance(call.options, Mapping) and call.options.get("unique") not in (None, False):
            raise InvalidOption(f"unique= needs the program of {row.name!r}; give the key itself: key=…")
        job = self._new_job(call, definition_of(row))
        return msgspec.structs.replace(job, pipeline=row.name, phase=row.phases[0]) if row.phases else job

    def _unknown_type(self, name: str, announced: Announced) -> UnknownType:
        known = dict.fromkeys([*self._registry.types, *self._registry.pipelines, *announced.names])
        hint = suggest(name, known) if known else ""
        return UnknownType(
            f"no job type or pipeline {name!r} in this program, and no worker has announced one{hint}; start a worker "
            "that has it: windlass worker app.py"
        )


class Announced(NamedTuple):
    """The announced types that a call needs."""

    rows: Mapping[str, TypeRow]
    names: Sequence[str]  # of all announced types, when one was not found


async def read_announced(store: Store, wanted: Sequence[str]) -> Announced:
    if not wanted:
        return Announced({}, ())
    rows = {row.name: row for row in await store.types(*wanted)}
    return Announced(rows, () if len(rows) == len(wanted) else [row.name for row in await store.types()])


async def _read_types(store: Store) -> list[TypeRow]:
    rows, workers = await store.types(), await store.workers()
    return [
        msgspec.structs.replace(
            row, workers=sum(worker.serves_queue(row.queue) and row.type in worker.types for worker in workers)
        )
        for row in rows
    ]


# Checks


def _check_list(calls: object) -> None:
    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Sequence):
        raise EnqueueError(
            f"enqueue_named() takes a list of calls, not {type(calls).__name__}; write: "
            'app.enqueue_named([NamedCall("send", {…})])'
        )
    if not calls:
        raise EnqueueError("enqueue_named() was given no calls; skip it when there is nothing to enqueue")


def _options(given: object, definition: Definition) -> Options:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidOption(f"the options are {type(given).__name__}, not an object of options by their names")
    for name, why in WITHOUT.items():
        if given.get(name) is not None:
            raise InvalidOption(f"there is no option {name!r} here: {why}")
    if isinstance(given.get("run_at"), str):
        given = {**given, "run_at": _time(given["run_at"])}
    return NONE.merge(given, definition)


def _time(text: str) -> datetime:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise InvalidOption(
            f"run_at={text!r} is not a time; write it like '2026-01-31T09:30:00Z', or use delay='10m'"
        ) from None


@contextmanager
def _located(index: int, *, alone: bool) -> Iterator[None]:
    """Let an error name the call and the place in it."""
    place = "$" if alone else f"$[{index}]"

    def text(error: Exception) -> str:
        return str(error) if alone else f"call {index}: {error}; nothing was enqueued"

    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(text(error), path=f"{place}.input{error.path[1:]}") from error
    except WindlassError as error:
        located = (type(error) if isinstance(error, EnqueueError) else EnqueueError)(text(error))
        part = ".options" if isinstance(error, InvalidOption) else ".type" if isinstance(error, UnknownType) else ""
        located.path = f"{place}{part}"
        raise located from error


# The key of the whole call


def _with_key(jobs: Sequence[NewJob], calls: Sequence[NamedCall], text: str, window: float) -> list[NewJob]:
    """The jobs, each with an idempotency key that holds a fingerprint of all calls."""
    problem = name_problem(text, longest=LARGEST)
    if problem is not None:
        raise InvalidOption(f"idempotency_key {problem}")
    bodies = [(call.type, msgspec.json.decode(job.input), call.options) for job, call in zip(jobs, calls, strict=True)]
    fingerprint = call_fingerprint(bodies)
    places: dict[str, int] = {}  # counted per tenant: the first job of each has the same key in every call
    keyed: list[NewJob] = []
    for job in jobs:
        place = places[job.tenant] = places.get(job.tenant, -1) + 1
        key = call_key(text, place, tenant=job.tenant, fingerprint=fingerprint, window=window)
        keyed.append(msgspec.structs.replace(job, idempotency=key))
    return keyed


@contextmanager
def _whole_key(key: str | None) -> Iterator[None]:
    """Let a conflict name the key that the caller gave, and not that of one job."""
    try:
        yield
    except IdempotencyConflict as error:
        raise IdempotencyConflict(
            f"the idempotency key {key!r} was used for another request, with other types, inputs, options or another "
            "number or order of jobs; nothing was enqueued; use a new key for a new request"
        ) from error
