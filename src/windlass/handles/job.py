"""What an enqueue returns: a handle for one job, to read it and to act on it.

Each method has an awaited form: `job.status()` blocks, `await job.astatus()` does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from windlass import words
from windlass.blocking import blocking
from windlass.clock import Duration, seconds
from windlass.declare.registry import Definition
from windlass.errors import FlowError, JobCancelled, JobDead, JobNotFound, ResultTimeout, StoreError
from windlass.model.flow import outputs_in
from windlass.model.job import Job, NewJob
from windlass.model.state import FINAL, State, Verb
from windlass.names import name_problem
from windlass.payload.packing import pack
from windlass.store.parts.messages import cancel_message
from windlass.words import answer_words

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.model.reports.overview import DryCheck
    from windlass.model.reports.story import JobStory
    from windlass.model.rows import JobDetails, WaitReason
    from windlass.store.protocol import Store

R_co = TypeVar("R_co", covariant=True)

log = logging.getLogger("windlass")

FIRST_PAUSE = 0.002  # seconds between two reads of a job while waiting for its result; × 1.5 after each …
LONGEST_PAUSE = 0.25  # … up to this
PATIENCE = 3.0  # seconds of waiting before a wait checks whether a live worker serves the job; × 2 after each check
ANSWER_WITHIN = 3.0  # seconds for that check


class JobHandle(Generic[R_co]):
    """One job, by its id: what `send.enqueue(…)` returns, and `app.find(id)`.

    Each method reads or changes the job as it is in the store now. A plain name blocks; `await job.aresult()` and the
    other names with an `a` in front are awaited.
    """

    _noun = "job"

    def __init__(
        self, client: Client, id: UUID, definition: Definition | None = None, *, existing: bool = False
    ) -> None:
        self.id = id
        """The id of the job: `app.find(id)` makes a handle from it in another process."""
        self.existing = existing
        """Whether the enqueue made no new job, because this job held its key already."""
        self._client = client
        self._definition = definition

    @classmethod
    def _of(
        cls, client: Client, job: NewJob, definition: Definition | None, existing: Mapping[UUID, UUID]
    ) -> JobHandle[R_co]:
        """A handle for a new job, or for the existing job that has its key."""
        return cls(client, existing.get(job.id, job.id), definition, existing=job.id in existing)

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = answer_words("the handle of a job", words.HANDLE)

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # The record

    async def arecord(self) -> Job:
        """The whole record as it is now: `job.record().attempt`. Raises JobNotFound."""
        return await self._client.aask(self._find)

    async def astatus(self) -> State:
        """The state that the job is in now: `job.status() == "succeeded"`. Raises JobNotFound."""
        return (await self._client.aask(self._find)).status

    async def alabel(self) -> str:
        """The state as the job's type or pipeline names it by `labels=`: `job.label()`.

        While the job of a pipeline moves on, it is the name of its phase.
        """
        job = await self._client.aask(self._find)
        return job.status.value if self._definition is None else self._definition.label(job)

    async def awhy(self) -> WaitReason | None:
        """Why the job does not start: a paused queue, a spent budget, a full limit, no worker, its time, a signal, …

        `print(job.why().text)` prints `queue mail is paused by ann: the server moves`, and `why.command` is the command
        that helps. None: it runs, it has ended, or a worker may start it now. `app.jobs(…)` has it for each row.
        """
        return await self._client.aask(self._why)

    async def adetails(self) -> JobDetails:
        """What the store holds beside the record: why it waits, its links, steps and signals, its rows of the audit."""
        from windlass.methods.story import read_details

        async def read(store: Store) -> JobDetails:
            return await read_details(store, await self._find(store))

        return await self._client.aask(read)

    async def astory(self) -> JobStory:
        """The job as a page shows it: what happened to it in words, where its time went, and the jobs around it.

        `print(job.story().text)` prints `Failed once: ValueError: no. Retries in 38 s, attempt 2 of 4.` What is read is
        bounded: at most 200 jobs around this one, and 10,000 counted. Raises JobNotFound.
        """
        from windlass.methods.story import read_story

        async def read(store: Store) -> JobStory:
            return await read_story(store, await self._find(store))

        return await self._client.aask(read)

    record = blocking(arecord)
    why = blocking(awhy)
    details = blocking(adetails)
    story = blocking(astory)
    status = blocking(astatus)
    label = blocking(alabel)

    # The result

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job to end and return its result: `job.result(timeout="5s")`.

        Raises JobDead, JobCancelled, or ResultTimeout when the job has not ended after `timeout`; without a timeout it
        waits for as long as it takes.
        """
        return await self._client.aask(self._wait(timeout))

    async def aoutputs(self) -> dict[str, Any]:
        """What each phase of a pipeline returned, by its name: `job.outputs()["analyse"]`.

        Phases that have ended are there while the job moves on, whatever becomes of it, and as long as its history. The
        values are plain JSON, without the handlers' hints.
        """
        return await self._client.aask(self._outputs)

    result = blocking(aresult)
    outputs = blocking(aoutputs)

    # Acting on it

    async def acancel(self) -> State:
        """Cancel the job and the jobs that it spawned: `job.cancel()`. The answer is the state that it is in now.

        A running job is asked to stop and is still `running` here: its handler sees `ctx.cancelled`. Raises
        TransitionRefused for a job that has ended.
        """
        return await self._client.aask(self._operate(Verb.CANCEL)) or State.CANCELLED

    async def aretry(self) -> State | None:
        """Make a failed job due now, without waiting for its delay: `job.retry()`. Raises TransitionRefused."""
        return await self._client.aask(self._operate(Verb.RETRY))

    async def areplay(self) -> State | None:
        """Let a dead job start over, with the same id and attempts from zero: `job.replay()`.

        Raises TransitionRefused for a job that is not dead.
        """
        return await self._client.aask(self._operate(Verb.REPLAY))

    async def aresume(self) -> State | None:
        """Bring a cancelled job back to the queue: `job.resume()`. Raises TransitionRefused."""
        return await self._client.aask(self._operate(Verb.RESUME))

    async def adiscard(self) -> None:
        """Remove a dead job for good: `job.discard()`. The audit keeps a row of it. Raises TransitionRefused."""
        await self._client.aask(self._operate(Verb.DISCARD))

    async def arerun(self, input: Mapping[str, Any] | None = None, *, discard: bool = False) -> JobHandle[R_co]:
        """Enqueue a copy of this job, with attempts from zero and another input if one is given: `job.rerun({"n": 5})`.

        The copy has the same type, queue, tenant, priority and pipeline, and `record().copied_from` is this job's id. A
        pipeline begins with its first phase. A new input replaces the old one and is checked by the type's hints. With
        `discard`, this dead job is discarded in the same transaction; when it is not dead any more, TransitionRefused
        is raised and nothing is written. The same is raised when another job holds the copy's unique key.
        """
        from windlass.handles.rerun import rerun

        client = self._client

        async def copy(store: Store) -> NewJob:
            job = await self._find(store)
            return await rerun(
                store,
                job,
                self._definition,
                client.settings,
                input=input,
                discard=discard,
                actor=client.settings.acting,
            )

        return JobHandle(client, (await client.aask(copy)).id, self._definition)

    async def adry_run(self, input: Mapping[str, Any] | None = None) -> list[DryCheck]:
        """What a rerun with this input would meet, and nothing is written: `job.dry_run({"to": "ann"})[0].said`.

        Without an input it is that of the job, as for a replay. The checks are those of `app.dry_run(…)`. The key of a
        dead job counts as free, because `rerun(…, discard=True)` hands it over.
        """
        from windlass.methods.dry_run import try_copy

        client, definition = self._client, self._definition

        async def check(store: Store) -> list[DryCheck]:
            return await try_copy(store, await self._find(store), definition, client.settings, input)

        return await client.aask(check)

    async def asignal(self, name: str, value: object = None) -> bool:
        """Send the value that `ctx.wait_signal(name)` waits for, or will wait for: `job.signal("approved", True)`.

        False: the job has a signal of that name already, and the first value counts.
        """
        problem = name_problem(name)
        if problem is not None:
            raise FlowError(f"the name of a signal {problem}")
        payload = pack(value, what=f"signal {name!r}")
        actor = self._client.settings.acting
        return await self._client.aask(lambda store: store.signal(self.id, name, payload, actor=actor))

    cancel = blocking(acancel)
    retry = blocking(aretry)
    replay = blocking(areplay)
    resume = blocking(aresume)
    discard = blocking(adiscard)
    rerun = blocking(arerun)
    dry_run = blocking(adry_run)
    signal = blocking(asignal)

    # What they ask the store

    async def _find(self, store: Store) -> Job:
        job = await store.find(self.id)
        if job is None:
            raise JobNotFound(
                f"there is no job {self.id}: its transaction has not committed, it was discarded, or its history was "
                "deleted"
            )
        return job

    def _operate(self, verb: Verb) -> Callable[[Store], Awaitable[State | None]]:
        actor = self._client.settings.acting

        async def operate(store: Store) -> State | None:
            state = await store.operate(verb, self.id, actor=actor)
            if verb is Verb.CANCEL and state is State.RUNNING:
                await store.wake(cancel_message(self.id))
            elif state is State.QUEUED:
                await store.wake((await self._find(store)).queue)
            return state

        return operate

    async def _outputs(self, store: Store) -> dict[str, Any]:
        job = await self._find(store)
        if job.pipeline is None:
            raise FlowError(f"job {job.id} ({job.type}) has no phases; its result is job.result()")
        texts = outputs_in((await store.recall(self.id)).steps)
        if job.status is State.SUCCEEDED:
            texts[job.phase] = job.output or "null"
        plan = None if self._definition is None else self._definition.plan
        places = {} if plan is None else {phase.name: place for place, phase in enumerate(plan.phases)}
        ordered = sorted(texts, key=lambda name: (places.get(name, len(places)), name))
        return {name: msgspec.json.decode(texts[name]) for name in ordered}

    def _wait(self, timeout: Duration | None) -> Callable[[Store], Awaitable[R_co]]:
        limit = None if timeout is None else seconds(timeout, what="timeout")

        async def wait(store: Store) -> R_co:
            pause, patience, began = FIRST_PAUSE, PATIENCE, time.monotonic()
            try:
                async with asyncio.timeout(limit):
                    while (job := await self._find(store)).status not in FINAL:
                        if self._client.runs_by_hand is not None:
                            await self._refuse_to_wait(store, self._client.runs_by_hand)
                        if not self._client.noted_unserved and time.monotonic() - began >= patience:
                            patience *= 2
                            await self._warn_of_reason(store)
                        await asyncio.sleep(pause)
                        pause = min(pause * 1.5, LONGEST_PAUSE)
            except ResultTimeout:
                raise
            except TimeoutError:
                why = _describe(await self._known_reason(store))
                raise ResultTimeout(f"job {self.id} has not ended within {limit:g} s{why}") from None
            return self._result_of(job)

        return wait

    async def _warn_of_reason(self, store: Store) -> None:
        """Once in a process, and the wait goes on: a worker may start, or a gate open, at any time."""
        from windlass.model.rows import WaitKind

        why = await self._known_reason(store)
        stuck = (WaitKind.WORKER, WaitKind.TYPE, WaitKind.GATE, WaitKind.BUDGET)
        if why is not None and why.kind in stuck and not self._client.noted_unserved:
            self._client.noted_unserved = True
            log.warning("the result of job %s is waited for%s", self.id, _describe(why), extra={"job": self.id})

    async def _refuse_to_wait(self, store: Store, how: str) -> None:
        """In a test no worker comes: a job that is not being run now would be waited for without end."""
        from windlass.model.rows import WaitKind
        from windlass.store.reasons import read_reasons

        reasons = (await read_reasons(store, [await self._find(store)]))[self.id]
        if any(why.kind is WaitKind.WORKER for why in reasons):
            raise ResultTimeout(f"job {self.id} has not been run ({reasons[0].text}); in a test, {how}")

    async def _known_reason(self, store: Store) -> WaitReason | None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await self._why(store)
        except (StoreError, JobNotFound, TimeoutError):
            return None

    async def _why(self, store: Store) -> WaitReason | None:
        from windlass.store.reasons import read_reasons

        reasons = await read_reasons(store, [await self._find(store)])
        return next(iter(reasons[self.id]), None)

    def _result_of(self, job: Job) -> R_co:
        if job.status is State.CANCELLED:
            raise JobCancelled(f"job {self.id} ({job.type}) was cancelled; bring it back: job.resume()")
        if job.status is State.DEAD:
            last = job.failure()
            why = "" if last is None or last.message == job.reason else f": {last}"
            raise JobDead(f"job {self.id} ({job.type}) is dead ({job.reason}){why}; start it over: job.replay()")
        text = job.output if job.output is not None else "null"
        result: R_co = (
            msgspec.json.decode(text) if self._definition is None else self._definition.signature.result(text)
        )
        return result


def _describe(why: WaitReason | None) -> str:
    """What keeps a job from starting, and the command that helps, for the end of a sentence."""
    if why is None:
        return " and goes on; wait again, or check: job.status()"
    return f": {why.text}" + (f"; try: {why.command}" if why.command else "")
