"""What the parts of one worker report to each other: which part sends a signal, and which parts react.

    sender                                     signal              reacts
    ─────────────────────────────────────────  ──────────────────  ─────────────────────────────────────────────────
    execution (runtime/processor.py)           slot_freed          coordinator: starts the next job of the local queue
                                                                   discovery: claims, if the local queue is nearly empty
    health                                     processors_reset    coordinator and discovery: as above
    timers, schedules, listener, gate watcher  jobs_may_be_due     discovery: claims now
    completer                                  jobs_due_in         discovery: claims after that many seconds
    completer                                  jobs_unparked       discovery: claims them, or wakes other workers
    completer                                  store_relieved      discovery: claims again
    completer, listener                        gates_changed       gate watcher: reads gates, budgets and holds
    execution                                  progress_made       progress writer: writes it within a second

A part subscribes in its constructor. Subscribers are called in the order in which they were made: the coordinator
comes before discovery, so that discovery counts only the jobs that still wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVarTuple

if TYPE_CHECKING:
    from windlass.runtime.pool import Processor
    from windlass.runtime.processor import Execution

News = TypeVarTuple("News")


class Signal(Generic[*News]):
    """One kind of news. It is sent by a call, on the worker's event loop; that calls every subscriber at once."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[[*News], None]] = []

    def subscribe(self, subscriber: Callable[[*News], None]) -> None:
        self._subscribers.append(subscriber)

    def __call__(self, *news: *News) -> None:
        for subscriber in self._subscribers:
            subscriber(*news)


class WorkerSignals:
    """The signals of one worker."""

    def __init__(self) -> None:
        self.slot_freed: Signal[Processor] = Signal()  # an execution ended; its processor is idle, or in error
        self.processors_reset: Signal[()] = Signal()  # processors in error are idle again
        self.jobs_may_be_due: Signal[()] = Signal()  # a wake-up, a tick, a sleep that ended, a gate that opened
        self.jobs_due_in: Signal[float] = Signal()  # seconds until a job that ended here may be claimed again
        self.jobs_unparked: Signal[set[str]] = Signal()  # queues with jobs that slots from here let in
        self.store_relieved: Signal[()] = Signal()  # the backlog of transitions is written: claims may go on
        self.gates_changed: Signal[()] = Signal()  # a gate, a budget or a hold may have changed
        self.progress_made: Signal[Execution] = Signal()  # may be sent from a handler's thread
