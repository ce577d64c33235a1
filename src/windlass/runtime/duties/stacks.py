"""Where every handler of a worker is: SIGUSR1 logs the stack of each attempt and of each thread.

A thread of its own collects and logs them. The signal may interrupt a write to the log, and a second write from inside
the signal's handler would fail. A child process is asked for the stack of its handler, and its answer is logged when it
comes: a thread of the child answers while the handler computes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass.declare.registry import Isolation
from windlass.model.job import Job
from windlass.runtime.handler_call import call_plain

if TYPE_CHECKING:
    from windlass.runtime.processor import Execution
    from windlass.runtime.worker import Worker

log = logging.getLogger("windlass")

DEEPEST = 50  # frames of one stack
PLAIN_CALL: CodeType = call_plain.__code__


def log_stacks_soon(find_worker: Callable[[], Worker]) -> None:
    """Log the stacks from a thread; may be called in the handler of a signal."""
    threading.Thread(target=lambda: log_stacks(find_worker()), name="windlass-stacks", daemon=True).start()


def log_stacks(worker: Worker) -> None:
    """One record for each attempt that runs, and one for each thread."""
    frames = sys._current_frames()
    executions = list(worker.state.leases.executions.values())
    threads = _find_handler_threads(frames)
    log.info("stacks: %d running attempts, %d threads", len(executions), len(frames))
    for execution in executions:
        log_stack(execution.job, execution.processor.name, _describe(worker, execution, threads))
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in frames.items():
        if ident != threading.get_ident():
            log.info("stack of thread %s\n%s", names.get(ident, ident), _format_frame(frame))


def log_stack(job: Job, place: str, frames: str) -> None:
    """Where a handler is; `place` is its processor or its child process."""
    fields = {"kind": "stack", "job": job.id, "type": job.type, "place": place}
    log.info("stack of %s in %s job=%s\n%s", job.type, place, job.id, frames, extra=fields)


def describe_handler(attempt: asyncio.Task[Any] | None) -> str:
    """In a child process: where the handler of its attempt is."""
    threads = list(_find_handler_threads(sys._current_frames()).values())
    return _format_frame(threads[0]) if threads else _format_coroutine(attempt and attempt.get_coro())


def _describe(worker: Worker, execution: Execution, threads: dict[UUID, FrameType]) -> str:
    try:
        match execution.isolation:
            case Isolation.PROCESS:
                pid = worker.state.children.pid_of(execution.job.id)
                if pid is None:
                    return "  its child process has not begun, or has ended"
                worker.state.loop.call_soon_threadsafe(worker.state.children.ask_for_stack, execution.job.id)
                return f"  in the child process {pid}, which is asked for its stack"
            case Isolation.THREAD:
                frame = threads.get(execution.job.id)
                return "  its thread has not begun, or has ended" if frame is None else _format_frame(frame)
            case _:
                return _format_coroutine(None if execution.task is None else execution.task.get_coro())
    except Exception as error:  # the loop goes on meanwhile: a frame may be gone
        return f"  unknown: {type(error).__name__}"


def _find_handler_threads(frames: dict[int, FrameType]) -> dict[UUID, FrameType]:
    """The innermost frame of each thread that runs a handler, by the job: the call of the handler has the job."""
    found: dict[UUID, FrameType] = {}
    for innermost in frames.values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code is PLAIN_CALL:
                found[frame.f_locals["job"].id] = innermost
                break
            frame = frame.f_back
    return found


def _format_frame(frame: FrameType) -> str:
    return "".join(traceback.format_stack(frame)[-DEEPEST:]).rstrip("\n")


def _format_coroutine(coroutine: Any) -> str:
    """The frames of a coroutine and of what it awaits, the outermost first."""
    frames: list[traceback.FrameSummary] = []
    while coroutine is not None and len(frames) < DEEPEST:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        frames += traceback.StackSummary.extract([(frame, frame.f_lineno)])
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return "".join(traceback.format_list(frames)).rstrip("\n") or "  it has not begun, or has ended"
