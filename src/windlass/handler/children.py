"""The jobs that a handler spawns and waits for: a later run of the handler finds them again by name.

A spawn is kept in memory. It is written with the wait or the finish of this run, in the same transaction, and dropped
when the attempt fails. That write first reads which names an earlier run has written, for all names at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from windlass.client import Call
from windlass.config import Settings
from windlass.declare.registry import Definition, Registry
from windlass.errors import ChildrenFailed, FlowError, JobNotFound
from windlass.handler.memory import APART, RunMemory, check_name
from windlass.handles.job import JobHandle
from windlass.model.flow import Link, Linked, Spawn
from windlass.model.job import Failure, Job, NewJob, parse_id
from windlass.model.state import FINAL, State
from windlass.policy.unique import merge_repeated

if TYPE_CHECKING:
    from windlass.declare.jobtype import TypedCall

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

LONGEST_LIST = 10  # jobs that an error names

ENDED_BADLY = frozenset({State.DEAD, State.CANCELLED, None})


class Child(Generic[R_co]):
    """A spawned job, or an existing job that is waited for. `ctx.wait` sets its status, result and error."""

    __slots__ = ("_definition", "_error", "_new", "_output", "_stored", "call", "id", "name", "status")

    def __init__(self, name: str, *, call: Call | None = None, id: UUID | None = None) -> None:
        self.name = name
        """The name in this run; of an existing job, its id."""
        self.call = call
        """The call that was spawned; None for an existing job."""
        self.id = id
        """None until it is stored: with a unique key it may be the id of an existing job."""
        self.status: State | None = None
        """As the last `ctx.wait` read it; None before that, and when the job is gone."""
        self._definition: Definition | None = None if call is None else call.definition
        self._new: NewJob | None = None
        self._stored = False
        self._output: str | None = None
        self._error: str | None = None

    def __repr__(self) -> str:
        return f"<child {self.name!r}: {self._state()}>"

    @property
    def result(self) -> R_co | None:
        """The result of the job; None unless it succeeded."""
        return decode_output(self._output, self._definition) if self.status is State.SUCCEEDED else None

    @property
    def error(self) -> Failure | None:
        """The last error of the job, if it had one."""
        return None if self._error is None else msgspec.json.decode(self._error, type=Failure)

    @property
    def gone(self) -> bool:
        """Whether the job was discarded, or its history was deleted."""
        return self._stored and self.status is None

    @property
    def ended(self) -> bool:
        """Whether the job has ended: succeeded, dead, cancelled or gone. Dead and cancelled jobs may come back."""
        return self._stored and (self.status is None or self.status in FINAL)

    @property
    def unsuccessful(self) -> bool:
        """Whether the job ended dead or cancelled, or is gone."""
        return self._stored and self.status in ENDED_BADLY

    def _set_state(self, id: UUID, status: State | None, output: str | None, error: str | None) -> None:
        """Set what was read from the store."""
        self.id, self.status, self._output, self._error = id, status, output, error
        self._stored = True

    def _summary(self) -> str:
        """For an error message: `fetch (dead: ValueError)`.

        The message of the child's error is left out. It may repeat a secret of the child's input, which is hidden where
        the child is shown, and the child may be another tenant's.
        """
        why = "" if self.error is None else f": {self.error.type.rpartition('.')[2]}"
        return f"{self.name} ({self._state()}{why})"

    def _state(self) -> str:
        if not self._stored:
            return "not stored yet"
        return "gone" if self.status is None else self.status.value


def decode_output(output: str | None, definition: Definition | None) -> Any:
    """A job's output, decoded by the return hint of its handler where that is known."""
    if output is None:
        return None
    return msgspec.json.decode(output) if definition is None else definition.signature.result(output)


class Children:
    """The jobs that one run spawned, and the states of the jobs it waits for."""

    def __init__(self, memory: RunMemory, *, settings: Settings, registry: Registry | None) -> None:
        self._memory = memory
        self._settings = settings
        self._registry = registry
        self._spawned: dict[str, Child[Any]] = {}
        self._links: dict[str, Linked] | None = None  # None: not read yet

    # Spawning

    def spawn(self, name: str, call: TypedCall[R]) -> Child[R]:
        check_name(name, "child")
        return self._add(name, call)

    def spawn_many(self, name: str, calls: Iterable[TypedCall[R]]) -> list[Child[R]]:
        check_name(name, "child")
        return [self._add(f"{name}[{place}]", call) for place, call in enumerate(calls)]

    def _add(self, name: str, call: TypedCall[R]) -> Child[R]:
        if not isinstance(call, Call):
            raise FlowError(f"child {name!r} is given {type(call).__name__}, not a call; write: fetch.call(…)")
        if call.options.conn is not None:
            raise FlowError(f"child {name!r} has a conn=, and is written with this run's wait or finish; leave it out")
        if call.options.idempotency_key is not None:  # a conflict would be found only after the run
            raise FlowError(
                f"child {name!r} has an idempotency_key, and a child is found again by its name; leave it out, or make "
                "the job type unique"
            )
        if name in self._spawned:
            raise FlowError(
                f"this run has spawned a child {name!r} already, and a child is found again by its name; give each its "
                'own, or spawn them together: ctx.spawn_many("page", calls)'
            )
        child: Child[R] = Child(name, call=call)
        self._spawned[name] = child
        return child

    async def new_spawns(self) -> tuple[tuple[Spawn, ...], Mapping[UUID, UUID]]:
        """The spawns that no run has written yet, and the ids of spawns whose unique key another spawn has.

        Of several spawns with one key the first is written; the next run finds the others to be the same job.
        """
        if not self._spawned:
            return (), {}
        await self._read_links()
        new = {self._new_job(child).id: name for name, child in self._spawned.items() if not child._stored}
        fresh, same = merge_repeated([self._new_job(self._spawned[name]) for name in new.values()])
        return tuple(Spawn(name=self._link_name(new[job.id]), job=job) for job in fresh), same

    def _new_job(self, child: Child[Any]) -> NewJob:
        if child._new is None:
            job, call = self._memory.job, child.call
            assert call is not None
            if call.options.tenant is None:
                call = msgspec.structs.replace(call, options=msgspec.structs.replace(call.options, tenant=job.tenant))
            made = call.new_job(self._settings)
            instruments = None if self._registry is None else self._registry.instruments
            # No span of its own: the spawn is written with the finish of this attempt, or not at all.
            current = instruments.current() if instruments else None
            child._new = msgspec.structs.replace(made, parent=job.id, trace=current or job.trace)
        return child._new

    # Waiting

    def check_awaited(self, jobs: Iterable[object]) -> list[Child[Any]]:
        """The children of the jobs that the handler gave to `ctx.wait`."""
        if isinstance(jobs, str) or not isinstance(jobs, Iterable):
            raise FlowError(f"ctx.wait() takes a list of jobs, not {type(jobs).__name__}; write: ctx.wait([child])")
        children = [self._child(job) for job in jobs]
        seen: set[str] = set()
        for child in children:
            if child.name in seen:
                raise FlowError(f"ctx.wait() was given job {child.name} twice; name each once")
            seen.add(child.name)
        return children

    def _child(self, job: object) -> Child[Any]:
        if isinstance(job, Child):
            if job.call is not None and self._spawned.get(job.name) is not job:
                raise FlowError(f"child {job.name!r} was spawned by another run; spawn it by its name in this one")
            return job
        if isinstance(job, JobHandle):
            child: Child[Any] = Child(str(job.id), id=job.id)
            child._definition = job._definition
            return child
        if isinstance(job, (UUID, str)):
            id = parse_id(job)
            return Child(str(id), id=id)
        raise FlowError(f"ctx.wait() takes children, handles and ids of jobs, not {type(job).__name__}")

    async def read_states(self, awaited: Sequence[Child[Any]]) -> tuple[Link, ...]:
        """Read the states of these jobs; the answer has links to existing jobs, for later runs."""
        if all(child.status is State.SUCCEEDED for child in awaited):
            return ()
        await self._read_links(again=True)
        existing = [child for child in awaited if child.call is None]
        links = await self._find(existing) if existing else ()
        if any(self._is_oneself(child) for child in awaited):
            raise FlowError(f"job {self._memory.job.id} would wait for itself, for ever; take it out of ctx.wait()")
        return links

    def _is_oneself(self, child: Child[Any]) -> bool:
        """Whether the child is the waiting job: by its id, or because it has the unique key of its parent."""
        job = self._memory.job
        if child._stored:
            return child.id == job.id
        new = self._new_job(child)
        return new.unique is not None and (new.type, new.tenant, new.key) == (job.type, job.tenant, job.key)

    async def _read_links(self, *, again: bool = False) -> None:
        """Read what earlier runs wrote under the names of this run. The first run of a job has nothing to read."""
        if self._memory.is_first_run:
            self._links = {}
        elif self._links is None or again:
            self._links = {linked.name: linked for linked in await self._memory.store.links(self._memory.job.id)}
        for name, child in self._spawned.items():  # always: a child may have been spawned since the names were read
            linked = self._links.get(self._link_name(name))
            if linked is not None:
                child._set_state(linked.id, linked.status, linked.output, linked.error)

    async def _find(self, existing: list[Child[Any]]) -> tuple[Link, ...]:
        ids = {child.id: child for child in existing if child.id is not None}
        found = await self._memory.store.find_many(list(ids))
        links: list[Link] = []
        for id, child in ids.items():
            name = f"{APART}{APART}{id}"
            known = name in (self._links or {})
            job = found.get(id)
            if job is None and not known:
                raise JobNotFound(f"ctx.wait(): there is no job {id}; it was discarded, or its history was deleted")
            if job is None:
                child._set_state(id, None, None, None)
                continue
            child._set_state(id, job.status, job.output, job.error)
            child._definition = child._definition or self.definition_of(job)
            if not known:
                links.append(Link(name, id))
        return tuple(links)

    def id_to_await(self, child: Child[Any], same: Mapping[UUID, UUID]) -> UUID:
        """The id of the job to wait for; `same` comes from `new_spawns`."""
        id = child.id if child._stored else self._new_job(child).id
        assert id is not None
        return same.get(id, id)

    def definition_of(self, job: Job) -> Definition | None:
        return None if self._registry is None else self._registry.get(job.type)

    # Dependencies

    async def dependencies(self) -> dict[str, Any]:
        """The results, by name, of the jobs that a graph's node depends on; None for a job without a result."""
        store, job = self._memory.store, self._memory.job
        linked = [link for link in await store.links(job.id) if not link.name.startswith(APART)]
        found = await store.find_many([link.id for link in linked]) if linked else {}
        results: dict[str, Any] = {}
        for link in linked:
            record = found.get(link.id)
            succeeded = link.status is State.SUCCEEDED
            definition = None if record is None else self.definition_of(record)
            results[link.name] = decode_output(link.output, definition) if succeeded else None
        return results

    def _link_name(self, name: str) -> str:
        return APART + self._memory.key_of(name)


def count_needed(need: object, total: int) -> int:
    """How many of `total` jobs have to succeed, or to end."""
    if need in ("all", "ended"):
        return total
    if total == 0:
        raise FlowError(f"ctx.wait(need={need!r}) was given no jobs; skip it when there is nothing to wait for")
    if need == "any":
        return 1
    if isinstance(need, bool) or not isinstance(need, int):
        close = difflib.get_close_matches(str(need), ("all", "any", "ended"), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise FlowError(f'ctx.wait(need={need!r}): write "all", "any", "ended" or a number{hint}')
    if not 1 <= need <= total:
        jobs = "1 job" if total == 1 else f"{total} jobs"
        raise FlowError(f"ctx.wait(need={need}) of {jobs} can never be met; write a number from 1 to {total}")
    return need


def refuse_hopeless(awaited: Sequence[Child[Any]], count: int) -> None:
    """Raise when too few of the jobs can still succeed."""
    bad = [child for child in awaited if child.unsuccessful]
    if len(awaited) - len(bad) >= count:
        return
    named = ", ".join(child._summary() for child in bad[:LONGEST_LIST])
    more = f" and {len(bad) - LONGEST_LIST} more" if len(bad) > LONGEST_LIST else ""
    raise ChildrenFailed(
        f"{len(bad)} of {len(awaited)} awaited jobs did not succeed, and {count} had to: {named}{more}; replay or "
        'resume them, or wait until all have ended: ctx.wait(…, need="ended")'
    )
