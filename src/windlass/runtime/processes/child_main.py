"""What runs in a child process: attempts, one after another, each with a real `Context`, until the worker closes the
socket.

One thread reads from the worker, so that a cancel and the worker's end are noticed while a handler computes.
Coroutines run on this process's event loop, plain handlers on a thread beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from windlass.app import Windlass
from windlass.clock import SystemClock
from windlass.config import Settings
from windlass.declare.pipeline import next_phase
from windlass.declare.registry import Definition, Registry
from windlass.handler.context import BaseContext
from windlass.model.job import Job
from windlass.model.outcome import Ending, Outcome
from windlass.payload.sanitise import describe
from windlass.policy.failure import decide
from windlass.runtime.commit import account, commit, undisturbed
from windlass.runtime.duties.stacks import describe_handler
from windlass.runtime.handler_call import call_coroutine, from_error, in_thread, with_flow
from windlass.runtime.processes import importing
from windlass.runtime.processes.child_store import ChildStore
from windlass.runtime.processes.wire import AttemptDone, Began, StackReport, StopRequest, ToChild, Work, to_child
from windlass.runtime.processes.worker_link import ProgressReporter, WorkerLink, forward_log

CLOSE_SECONDS = 2.0  # to close the store when the worker has closed the socket


def main(sock: socket.socket, settings: Settings, app: Windlass | None) -> None:
    """Serve the worker at the other end of `sock`; `app` is the loaded program's, or None."""
    streams: list[Any] = [sys.stdout, sys.stderr]
    for stream in streams:
        with suppress(Exception):
            stream.reconfigure(line_buffering=True)  # a killed process takes its buffers with it
    link = WorkerLink(sock)
    forward_log(link)
    asyncio.run(AttemptRunner(link, settings, app).serve())
    os._exit(0)  # threads that handlers left behind are not waited for


class AttemptRunner:
    """One attempt at a time, as the worker sends them."""

    def __init__(self, link: WorkerLink, settings: Settings, app: Windlass | None) -> None:
        self._link = link
        self._settings = settings
        self._app = app
        self._used: set[Windlass] = set() if app is None else {app}  # apps through which handlers may have enqueued
        self._clock = SystemClock()
        self._store = ChildStore(settings)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="windlass-handler")
        self._inbox: asyncio.Queue[Work | None] = asyncio.Queue()
        self._busy = False
        self._context: BaseContext | None = None
        self._stop_requested: UUID | None = None
        self._attempting: asyncio.Task[Outcome] | None = None

    async def serve(self) -> None:
        """Attempt after attempt until the worker closes the socket."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), name="windlass-link", daemon=True).start()
        while (work := await self._inbox.get()) is not None:
            # A task of its own, so that a handler's context variables end with it.
            self._attempting = loop.create_task(self._attempt(work))
            outcome = await self._attempting
            self._busy = False
            self._link.send(AttemptDone(msgspec.structs.replace(outcome, exception=None)))
        async with asyncio.timeout(CLOSE_SECONDS):
            await self._store.close()
            for app in self._used:
                await asyncio.to_thread(app._registry.instruments.flush)
                await asyncio.to_thread(app.close)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread. Without its worker the handler must not go on, nor may a child that cannot read any more."""
        try:
            for piece in self._link.frames():
                self._receive(to_child.decode(piece), loop)
            if not self._busy:
                loop.call_soon_threadsafe(self._inbox.put_nowait, None)
                time.sleep(CLOSE_SECONDS)  # the process ends meanwhile, unless a handler blocks its loop
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _receive(self, message: ToChild, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(message, Work):
            self._busy = True
            loop.call_soon_threadsafe(self._inbox.put_nowait, message)
        elif isinstance(message, StopRequest):
            self._stop_requested = message.job
            self._apply_stop(self._context)
        else:
            self._link.send(StackReport(describe_handler(self._attempting)))

    def _apply_stop(self, context: BaseContext | None) -> None:
        """Called from the reading thread, and again when the context is made: one of them comes second."""
        if context is not None and context.job.id == self._stop_requested:
            context._ask_to_stop()

    async def _attempt(self, work: Work) -> Outcome:
        try:
            definition, registry = self._find(work)
        except BaseException as error:
            kind, message, trace = describe(error)
            return Outcome(ending=Ending.RAISED, type=kind, message=message, traceback=trace)
        if registry.instruments:
            registry.instruments.join(work.job, work.trace)
        started = self._clock.monotonic()
        progress = ProgressReporter(self._link, work.job.id)
        context = self._context_for(definition, registry, work, progress)
        self._link.send(Began())
        try:
            outcome = await with_flow(await self._call(definition, work.job, context), definition, context)
        except BaseException as error:  # sys.exit() and CancelledError too: the attempt ended, and the child did not
            outcome = from_error(error, definition)
        if context is not None:
            try:
                outcome = await undisturbed(self._conclude(definition, registry, context, outcome, work, started))
            except BaseException as error:
                outcome = from_error(error, definition)
        self._context = None
        progress.close(context)
        return outcome

    def _find(self, work: Work) -> tuple[Definition, Registry]:
        if self._app is not None:
            return self._app._registry.require(work.job.type), self._app._registry
        found = importing.find(work.module, work.qualname)
        self._used.add(found._app)
        return found._definition, found._app._registry

    def _context_for(
        self, definition: Definition, registry: Registry, work: Work, progress: ProgressReporter
    ) -> BaseContext | None:
        kind: type[BaseContext] | None = definition.signature.context
        if kind is None:
            return None
        context = self._context = kind(
            work.job,
            store=self._store,
            settings=self._settings,
            clock=self._clock,
            registry=registry,
            loop=asyncio.get_running_loop(),
            transaction_limit=self._settings.lease / 3,
            time_limit=definition.limit(self._settings),
            waited=work.waited,
            on_progress=progress.mark,
        )
        self._apply_stop(context)
        return context

    async def _call(self, definition: Definition, job: Job, context: BaseContext | None) -> Outcome:
        if inspect.iscoroutinefunction(definition.fn):
            return await call_coroutine(definition, job, context)
        return await in_thread(self._threads, definition, job, context)

    async def _conclude(
        self,
        definition: Definition,
        registry: Registry,
        context: BaseContext,
        outcome: Outcome,
        work: Work,
        started: float,
    ) -> Outcome:
        """End the attempt's transaction with the outcome: the fenced finish of a success is written right here."""
        scope, job = context._transaction, context.job
        if scope.transaction is None:
            return outcome
        try:
            if outcome.ending is not Ending.SUCCEEDED:
                return outcome
            assert job.worker is not None
            elapsed = self._clock.monotonic() - started
            run = account(job, context, worker=job.worker, waited=work.waited, elapsed=elapsed, trace=work.trace)
            retry = definition.retry_policy(self._settings)
            advance = None if job.pipeline is None else next_phase(registry, job)
            transition = decide(
                run, outcome, retry=retry, settings=self._settings, advance=advance, success=definition.audit
            )
            assert transition is not None, "a success that is not finished has a transition"
            store = await self._store.opened()
            # A child does not know that its lease is lost: its worker kills it then.
            return await commit(
                context, transition, outcome, definition=definition, store=store, clock=self._clock, held=lambda: True
            )
        finally:
            with suppress(Exception):  # a commit stays; what was not committed is rolled back by the database
                await scope.end()
