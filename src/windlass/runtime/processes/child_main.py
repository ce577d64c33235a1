"""What runs in a child process: attempts, one after another, each with a real `Context`, until the worker hangs up.

One thread listens to the worker, so that a cancel is heard and the worker's end is noticed while a handler computes.
Coroutines run on this process's event loop, plain handlers on a thread beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

from windlass.app import Windlass
from windlass.clock import SystemClock
from windlass.config import Settings
from windlass.declare.pipeline import next_phase
from windlass.declare.registry import Definition, Registry
from windlass.handler.context import Context, handler_log
from windlass.model.admission import Grant
from windlass.model.flow import Linked, Memory, Recollection
from windlass.model.job import Job, Lease
from windlass.model.outcome import Ending, Outcome
from windlass.payload import describe, sanitise_text
from windlass.policy.failure import decide
from windlass.runtime.commit import account, commit, undisturbed
from windlass.runtime.handler_call import call_coroutine, from_error, in_thread, with_flow
from windlass.runtime.processes import importing
from windlass.runtime.processes.wire import (
    Advanced,
    Began,
    Done,
    Frames,
    FromChild,
    Said,
    ToChild,
    Work,
    frame,
    to_child,
)
from windlass.store import make_store
from windlass.store.protocol import Store, Transaction

PROGRESS_EVERY = 0.25  # seconds between two words about progress
LONGEST_LINE = 8 * 1024  # bytes of a log line, as `ctx.log` keeps it
END_SECONDS = 2.0  # to close the store when the worker hangs up
READ_BYTES = 64 * 1024


def main(sock: socket.socket, settings: Settings, app: Windlass | None) -> None:
    """Serve the worker at the other end of `sock`; `app` is the loaded program's, or None."""
    streams: list[Any] = [sys.stdout, sys.stderr]
    for stream in streams:
        with suppress(Exception):
            stream.reconfigure(line_buffering=True)  # a killed process takes its buffers with it
    line = Line(sock)
    _forward_log(line)
    asyncio.run(Child(line, settings, app).serve())
    os._exit(0)  # threads that handlers left behind are not waited for


class Child:
    """One attempt at a time, as the worker sends them."""

    def __init__(self, line: Line, settings: Settings, app: Windlass | None) -> None:
        self._line = line
        self._settings = settings
        self._app = app
        self._used: set[Windlass] = set() if app is None else {app}  # apps through which handlers may have enqueued
        self._clock = SystemClock()
        self._store = OwnStore(settings)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="windlass-handler")
        self._inbox: asyncio.Queue[Work | None] = asyncio.Queue()
        self._busy = False
        self._context: Context | None = None
        self._to_heed: UUID | None = None

    async def serve(self) -> None:
        """Attempt after attempt until the worker hangs up."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), name="windlass-line", daemon=True).start()
        while (work := await self._inbox.get()) is not None:
            # A task of its own, so that a handler's context variables end with it.
            outcome = await loop.create_task(self._attempt(work))
            self._busy = False
            self._line.send(Done(outcome))
        async with asyncio.timeout(END_SECONDS):
            await self._store.close()
            for app in self._used:
                await asyncio.to_thread(app.close)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread. When the worker is gone the handler must not go on, wherever it is; nor may a deaf child."""
        try:
            for piece in self._line.frames():
                self._hear(to_child.decode(piece), loop)
            if not self._busy:
                loop.call_soon_threadsafe(self._inbox.put_nowait, None)
                time.sleep(END_SECONDS)  # the process ends meanwhile, unless something holds its loop
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _hear(self, message: ToChild, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(message, Work):
            self._busy = True
            loop.call_soon_threadsafe(self._inbox.put_nowait, message)
        else:
            self._to_heed = message.job
            self._pass_on_stop(self._context)

    def _pass_on_stop(self, context: Context | None) -> None:
        """From the thread that heard it, and again when the context is made: one of them comes second."""
        if context is not None and context.job.id == self._to_heed:
            context.ask_to_stop()

    async def _attempt(self, work: Work) -> Outcome:
        try:
            definition, registry = self._find(work)
        except BaseException as error:
            kind, message, trace = describe(error)
            return Outcome(ending=Ending.RAISED, type=kind, message=message, traceback=trace)
        started = self._clock.monotonic()
        reporter = Reporter(self._line, work.job.id)
        context = self._context_for(definition, registry, work, reporter)
        self._line.send(Began())
        try:
            outcome = await with_flow(await self._call(definition, work.job, context), definition, context)
        except BaseException as error:  # sys.exit() and CancelledError too: the attempt ended, the child did not
            outcome = from_error(error, definition)
        if context is not None:
            try:
                outcome = await undisturbed(
                    self._conclude(definition, registry, context, outcome, work.waited, started)
                )
            except BaseException as error:
                outcome = from_error(error, definition)
        self._context = None
        reporter.close(context)
        return outcome

    def _find(self, work: Work) -> tuple[Definition, Registry]:
        if self._app is not None:
            return self._app.registry.require(work.job.type), self._app.registry
        found = importing.find(work.module, work.qualname)
        self._used.add(found.app)
        return found.definition, found.app.registry

    def _context_for(
        self, definition: Definition, registry: Registry, work: Work, reporter: Reporter
    ) -> Context | None:
        if not definition.signature.wants_context:
            return None
        context = self._context = Context(
            work.job,
            store=self._store,
            settings=self._settings,
            clock=self._clock,
            registry=registry,
            loop=asyncio.get_running_loop(),
            transaction_limit=self._settings.lease / 3,
            time_limit=definition.limit(self._settings),
            waited=work.waited,
            on_progress=reporter.mark,
        )
        self._pass_on_stop(context)
        return context

    async def _call(self, definition: Definition, job: Job, context: Context | None) -> Outcome:
        if inspect.iscoroutinefunction(definition.fn):
            return await call_coroutine(definition, job, context)
        return await in_thread(self._threads, definition, job, context)

    async def _conclude(
        self,
        definition: Definition,
        registry: Registry,
        context: Context,
        outcome: Outcome,
        waited: float,
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
            run = account(job, context, worker=job.worker, waited=waited, elapsed=elapsed)
            retry = definition.retry_policy(self._settings)
            advance = None if job.pipeline is None else next_phase(registry, job)
            transition = decide(
                run, outcome, retry=retry, settings=self._settings, advance=advance, success=definition.audit
            )
            assert transition is not None, "a success that is not finished has a transition"
            store = await self._store.opened()
            # Nobody tells a child that its lease is gone: its worker kills it then.
            return await commit(
                context, transition, definition=definition, store=store, clock=self._clock, held=lambda: True
            )
        finally:
            with suppress(Exception):  # what was committed stays so; what was not is rolled back by the database
                await scope.end()


class OwnStore:
    """The child's store, opened when a handler first begins a transaction, remembers, calls out or asks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.with_(connections=1)  # one attempt, one transaction at a time
        self._store: Store | None = None
        self._opening = asyncio.Lock()

    async def opened(self) -> Store:
        async with self._opening:
            if self._store is None:
                store = make_store(self._settings, SystemClock())
                await store.open()
                self._store = store
            return self._store

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[Transaction]:
        store = await self.opened()
        async with store.transaction(limit=limit) as transaction:
            yield transaction

    async def recall(self, job: UUID) -> Recollection:
        return await (await self.opened()).recall(job)

    async def links(self, job: UUID) -> list[Linked]:
        return await (await self.opened()).links(job)

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return await (await self.opened()).find_many(jobs)

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        return await (await self.opened()).remember(lease, memory)

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        return await (await self.opened()).acquire(bucket, most=most)

    async def hold_back(self, bucket: str, seconds: float) -> None:
        await (await self.opened()).hold_back(bucket, seconds)

    async def held_for(self, bucket: str) -> float:
        return await (await self.opened()).held_for(bucket)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


class Line:
    """The child's end of the socket. Any thread may send; without a worker there is nothing left to do here."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._lock = threading.Lock()

    def send(self, message: FromChild) -> None:
        data = frame(message)
        try:
            with self._lock:
                self._sock.sendall(data)
        except OSError:
            os._exit(1)

    def frames(self) -> Iterator[bytes]:
        frames = Frames()
        while True:
            try:
                data = self._sock.recv(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            yield from frames.feed(data)


class Reporter:
    """Progress and cost on their way out: the first word at once, later ones a few times a second, the last always."""

    def __init__(self, line: Line, job: UUID) -> None:
        self._line = line
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._sent_at = float("-inf")
        self._unsent = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def mark(self, context: Context) -> None:
        """From the handler's thread or loop. A coroutine that never yields is reported too: no timer is needed."""
        if self._closed:
            return
        if time.monotonic() - self._sent_at >= PROGRESS_EVERY:
            self._send(context)
        elif not self._unsent:
            self._unsent = True
            self._loop.call_soon_threadsafe(self._send_later, context)

    def close(self, context: Context | None) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if context is not None and self._unsent:
            self._send(context)

    def _send_later(self, context: Context) -> None:
        if not self._closed:
            self._timer = self._loop.call_later(PROGRESS_EVERY, self._flush, context)

    def _flush(self, context: Context) -> None:
        if self._unsent and not self._closed:
            self._send(context)

    def _send(self, context: Context) -> None:
        self._unsent = False
        self._sent_at = time.monotonic()
        self._line.send(Advanced(self._job, context.total, context.processed, context.failed, context.spent))


class WorkerLink(logging.Handler):
    """Lines of `ctx.log` go to the worker, whose logging shows and keeps them."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        job = getattr(record, "job", None)
        if job is None:
            return
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = f"{record.msg} {record.args!r}"
        self._line.send(Said(UUID(job), record.levelno, sanitise_text(text, LONGEST_LINE)))


def _forward_log(line: Line) -> None:
    handler_log.handlers[:] = [WorkerLink(line)]
    handler_log.propagate = False
    handler_log.disabled = False  # a program's dictConfig() disables what it does not name
    handler_log.setLevel(1)  # which level is shown is for the worker's logging to say
