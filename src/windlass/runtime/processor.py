"""One execution: an attempt in a processor, as a list of named steps.

In:   a claimed job and an idle processor
Out:  an outcome, and the fenced transition that follows from it
Next: runtime/completer.py, which writes transitions in batches

    run = begin → execute → conclude            execute is one of: coroutine, thread, child process

Every exception of the handler, also one that is no Exception, arrives in `run` and goes on to `conclude`, the one place
where an attempt ends. The end of its transaction is shielded: a handler may have cancelled its own task.

Everything that can end an attempt from outside (a time limit, a cancel, a shutdown, a lost lease) goes through `stop`.
A coroutine is cancelled and a child is killed; a thread can only be fenced out: its late result is refused, and its
processor stays in error until it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum

import msgspec

from windlass import failpoints
from windlass.clock import spell
from windlass.declare.registry import Definition, Isolation
from windlass.handler.context import BaseContext
from windlass.model.flow import Advance
from windlass.model.job import Job
from windlass.model.outcome import Ending, Outcome, Transition
from windlass.model.state import State, Verb
from windlass.observe.events import AttemptEnded, AttemptStarted, JobChanged
from windlass.observe.instruments import WatchedAttempt
from windlass.payload.sanitise import describe
from windlass.policy.failure import decide
from windlass.runtime.commit import account, commit, undisturbed
from windlass.runtime.completer import Completer
from windlass.runtime.handler_call import call_coroutine, from_error, in_thread, with_flow, without_bare_bucket
from windlass.runtime.pool import Processor
from windlass.runtime.refused_transitions import burial_without_transition
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")


class Stop(StrEnum):
    """Why an attempt is stopped from outside."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LOST = "lost"


class Execution:
    """A job that a processor runs."""

    __slots__ = (
        "_cancel_timer",
        "_concluded",
        "_concluding",
        "_started",
        "_stopping",
        "_thread",
        "_watched",
        "advance",
        "completer",
        "context",
        "definition",
        "isolation",
        "job",
        "processor",
        "state",
        "task",
    )

    def __init__(
        self,
        job: Job,
        definition: Definition,
        processor: Processor,
        state: WorkerState,
        completer: Completer,
        advance: Advance | None = None,
    ) -> None:
        self.job = job
        self.definition = definition
        self.processor = processor
        self.state = state
        self.completer = completer
        self.advance = advance  # where a success leads: the next phase of its pipeline
        self.context: BaseContext | None = None
        self.task: asyncio.Task[None] | None = None
        self.isolation = state.children.isolation(job, definition)
        self._started: float | None = None
        self._stopping: Stop | None = None
        self._concluding = False
        self._concluded = False
        self._cancel_timer: Callable[[], object] | None = None
        self._thread: asyncio.Future[Outcome] | None = None
        self._watched: WatchedAttempt | None = None

    @property
    def trace(self) -> str | None:
        """The traceparent of this attempt, where an instrument traces it."""
        return None if self._watched is None else self._watched.trace

    @property
    def still_runs(self) -> bool:
        """Whether the handler may still do something, stopped or not."""
        busy = self.task is not None and not self.task.done()
        return busy or (self._thread is not None and not self._thread.done())

    def start(self) -> None:
        """Begin; the rest happens in a task and in a context of its own: a handler's context variables end with it.

        The end of one attempt starts the next, so that a copy of the current context would have the other handler's
        variables, and its trace.
        """
        self.state.leases.executions[self.job.id] = self
        context = self.state.context.copy()
        self.task = self.state.loop.create_task(self._run(), name=self.processor.name, context=context)

    async def _run(self) -> None:
        interrupt: KeyboardInterrupt | None = None
        try:
            self._begin()
            outcome = self._stop_outcome() or await self._execute()
            if not outcome.finished:  # it returned after a stop: whatever the outcome, it stopped half-way
                outcome = self._stop_outcome() or outcome
        except asyncio.CancelledError as error:
            # Without a reason of ours it is the handler's own: it awaited something that was cancelled.
            outcome = self._stop_outcome() or from_error(error, self.definition)
        except KeyboardInterrupt as error:  # meant for the process, which goes on with it after this attempt's end
            interrupt, outcome = error, from_error(error, self.definition)
        except GeneratorExit as error:
            if self._is_being_closed():
                raise
            outcome = from_error(error, self.definition)
        except BaseException as error:  # a fault of the engine must not lose the processor
            log.error("processor %s failed:\n%s", self.processor.name, describe(error)[2])
            outcome = from_error(error, self.definition)
        if failpoints.armed:
            failpoints.hit("process.after")
        if self._concluded:  # the handler did not stop and was fenced out; its end only frees the processor
            self.processor.stuck = False
        else:
            await self._conclude(outcome)
        if interrupt is not None:
            raise interrupt

    def _is_being_closed(self) -> bool:
        """Whether this task's coroutine is being closed, because its loop is gone, and may await nothing any more."""
        try:
            return asyncio.current_task() is not self.task
        except RuntimeError:  # no loop runs here
            return True

    def _begin(self) -> None:
        state = self.state
        self._started = self.processor.since = state.clock.monotonic()
        if state.registry.instruments:
            self._watched = state.registry.instruments.begin(self.job)
        limit = self.definition.limit(state.settings)
        if limit is not None:
            self._cancel_timer = state.later(limit, lambda: self.stop(Stop.TIMEOUT))
        kind: type[BaseContext] | None = self.definition.signature.context
        if kind is not None:
            self.context = kind(
                self.job,
                store=state.store,
                settings=state.settings,
                clock=state.clock,
                registry=state.registry,
                loop=state.loop,
                transaction_limit=state.settings.lease / 3,
                time_limit=limit,
                waited=self._waited(self._started),
                on_progress=lambda context: state.signals.progress_made(self),
            )
        if state.subscribers.wants(AttemptStarted):
            state.emit(AttemptStarted(self.job, self.processor.name))
        if failpoints.armed:
            failpoints.hit("process.before")

    async def _execute(self) -> Outcome:
        if self.isolation is Isolation.PROCESS:
            return await self.state.children.run(self, waited=self._waited(self._started or 0.0))
        if self.isolation is Isolation.COROUTINE:
            outcome = await call_coroutine(self.definition, self.job, self.context)
        else:
            self._thread = in_thread(self.state.threads, self.definition, self.job, self.context)
            outcome = await asyncio.shield(self._thread)
        if self.job.suspect:  # no child could run it: it had this worker for itself, and the worker did not die
            outcome = msgspec.structs.replace(outcome, harmless=True)
        return await with_flow(outcome, self.definition, self.context)

    def stop(self, why: Stop) -> None:
        """Stop from outside; the first reason counts. Once it concludes, the store's fence decides alone."""
        if self._concluding or self._concluded or (self._stopping is not None and why is not Stop.LOST):
            return
        self._stopping = why
        if self.context is not None:
            self.context._ask_to_stop()
        if self.isolation is Isolation.PROCESS and why is Stop.CANCEL:
            self.state.children.ask_to_stop(self.job.id)
        if self._started is None or self.task is None:
            return  # _run checks before it executes
        if self.isolation is not Isolation.COROUTINE and why is Stop.CANCEL and self.context is not None:
            self.state.later(self.state.settings.cancel_grace, self._end_by_force)
            return
        self.task.cancel()
        if self.isolation is Isolation.COROUTINE:
            self.state.later(self.state.settings.cancel_grace, self._abandon)

    def _end_by_force(self) -> None:
        """The thread or child was asked to stop and did not end: fence out the thread, kill the child."""
        if not self._concluding and self.task is not None:
            self.task.cancel()

    def _abandon(self) -> None:
        """The coroutine was cancelled and goes on: write the finish without it, and keep the processor in error."""
        outcome = self._stop_outcome()
        if not self._concluding and outcome is not None:
            log.warning("job %s (%s) ignores its cancellation; fenced out", self.job.id, self.job.type)
            self._concluding = self._concluded = True
            if self.context is not None:
                self.state.loop.create_task(self.context._close())  # it may hold locks that other transactions wait for
            self._end(outcome, stuck=True)

    def _stop_outcome(self) -> Outcome | None:
        """The outcome of an attempt that was stopped; None while it was not."""
        match self._stopping:
            case None:
                return None
            case Stop.TIMEOUT:
                limit = self.definition.limit(self.state.settings) or 0.0
                return Outcome(
                    ending=Ending.TIMED_OUT,
                    type="Timeout",
                    message=f"the time limit of {spell(limit)} has passed",
                )
            case Stop.CANCEL:
                return Outcome(ending=Ending.CANCELLED)
            case Stop.SHUTDOWN:
                return Outcome(ending=Ending.RELEASED)
            case Stop.LOST:
                return Outcome(ending=Ending.LOST)

    async def _conclude(self, outcome: Outcome) -> None:
        """End the attempt's transaction with the outcome, hand the transition over, free the processor."""
        self._concluding = True
        if self.context is not None:
            ending = self._end_transaction(self.context, outcome)
            opened = self.context._transaction.transaction is not None or self.context._steps.has_open
            try:
                # Without a transaction nothing waits, and no task is made for it: nearly every attempt.
                outcome = await undisturbed(ending) if opened else await ending
            except BaseException as error:
                log.error("the transaction of job %s could not be ended:\n%s", self.job.id, describe(error)[2])
                if outcome.ending is Ending.SUCCEEDED:
                    outcome = from_error(error, self.definition)
        self._concluded = True
        self._end(outcome, stuck=self._thread is not None and not self._thread.done())

    async def _end_transaction(self, context: BaseContext, outcome: Outcome) -> Outcome:
        """Committed with the finish when the attempt succeeded; rolled back with any other outcome."""
        try:
            succeeded = outcome.ending is Ending.SUCCEEDED and not outcome.finished
            opened = context._transaction.transaction is not None
            return await self._commit(context, outcome) if succeeded and opened else outcome
        finally:
            await context._close()

    async def _commit(self, context: BaseContext, outcome: Outcome) -> Outcome:
        """Write the finish into the handler's own transaction and commit both: all of it, or nothing."""
        transition = self._decide(outcome)
        assert transition is not None
        return await commit(
            context,
            transition,
            outcome,
            definition=self.definition,
            store=self.state.store,
            clock=self.state.clock,
            held=lambda: self.state.leases.holds(self.job.lease),
        )

    def _end(self, outcome: Outcome, *, stuck: bool) -> None:
        state = self.state
        if self._cancel_timer is not None:
            self._cancel_timer()
        if state.leases.executions.get(self.job.id) is self:  # else the same job runs here again, under a new lease
            del state.leases.executions[self.job.id]
        transition = self._make_transition(outcome)
        if outcome.problem is not None:
            text, job = "the result of %s: %s job=%s", self.job
            log.warning(text, job.type, outcome.problem, job.id, extra={"job": job.id})
        wanted = state.subscribers.wants(AttemptEnded) or state.subscribers.wants(JobChanged)
        if wanted or self._watched is not None:
            self._emit_end(outcome, transition)
        state.local_queue.complete(self.processor.name)
        if self.context is not None and self.context.spent:
            state.closures.charge(self.job, self.context.spent)
        if transition is not None:
            self.completer.submit(transition)
        else:
            state.leases.forget([self.job.lease])
        if stuck or outcome.ending is Ending.TIMED_OUT:
            if stuck and self._thread is not None:
                self._thread.add_done_callback(self._on_thread_ended)
            state.pools.fail(self.processor, stuck=stuck)
        else:
            state.pools.release(self.processor)
        state.signals.slot_freed(self.processor)

    def _on_thread_ended(self, thread: asyncio.Future[Outcome]) -> None:
        """The fenced-out thread ended; the health check may reset its processor."""
        self.processor.stuck = False
        if not thread.cancelled():
            thread.exception()  # retrieved, so that asyncio does not warn about it

    def _make_transition(self, outcome: Outcome) -> Transition | None:
        """What is written. When that cannot be decided, the job is buried: it must not stay running for ever."""
        try:
            return self._decide(outcome)
        except Exception as error:
            log.exception("the transition of job %s cannot be made", self.job.id)
            return burial_without_transition(self.job, outcome, error, self.state.clock)

    def _decide(self, outcome: Outcome) -> Transition | None:
        state = self.state
        now = self.processor.since = state.clock.monotonic()
        started = now if self._started is None else self._started
        if self._watched is not None and outcome.ending.is_failure:
            self._watched.fail()
        waited, elapsed = self._waited(started), now - started
        run = account(self.job, self.context, worker=state.worker, waited=waited, elapsed=elapsed, trace=self.trace)
        return decide(
            run,
            without_bare_bucket(outcome, state.registry),
            retry=self.definition.retry_policy(state.settings),
            settings=state.settings,
            advance=self.advance if outcome.ending is Ending.SUCCEEDED else None,
            success=self.definition.audit,
        )

    def _waited(self, started: float) -> float:
        """Seconds from the claim's answer to the start.

        Not from the sending: the job's `claimed_at` is the database's time, which is later, and an attempt would start
        after its own end.
        """
        answered = self.state.leases.answered_at(self.job.lease)
        return 0.0 if answered is None else started - answered

    def _emit_end(self, outcome: Outcome, transition: Transition | None) -> None:
        elapsed = self.state.clock.monotonic() - (self._started or 0.0)
        end = AttemptEnded(
            job=self.job,
            processor=self.processor.name,
            ending=outcome.ending,
            elapsed=elapsed,
            waited=self._waited(self._started or 0.0),
            delay=None if transition is None else transition.delay,
            flow=None if transition is None else transition.flow,
        )
        if outcome.type is not None:
            end = self._with_error(end, outcome, transition)
        if self._watched is not None:
            self._watched.end(end)
        self.state.emit(end)
        if outcome.finished:
            state = State.SUCCEEDED if self.advance is None else State.QUEUED
            self.state.emit(JobChanged(self.job.id, state))

    def _with_error(self, end: AttemptEnded, outcome: Outcome, transition: Transition | None) -> AttemptEnded:
        retry_at = None
        if transition is not None and transition.verb is Verb.FAIL and self.job.claimed_at is not None:
            since_claim = self._waited(self._started or 0.0) + end.elapsed
            retry_at = self.job.claimed_at + timedelta(seconds=since_claim + (transition.delay or 0.0))
        return msgspec.structs.replace(
            end,
            error_type=outcome.type,
            message=outcome.message,
            traceback=outcome.traceback,
            exception=outcome.exception,
            retry_at=retry_at,
        )
