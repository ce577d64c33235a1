"""What the parts of one worker report to each other: which part sends a signal, and which parts react.

    sender                                     signal              reacts
    ─────────────────────────────────────────  ──────────────────  ─────────────────────────────────────────────────
    worker                                     registered          sweeper: releases what was held; discovery: claims
    execution (runtime/processor.py)           slot_freed          coordinator: starts the next job of the local queue
                                                                   discovery: claims, if the local queue is nearly empty
    health                                     processors_reset    coordinator and discovery: as above
    timers, schedules, listener, gate watcher  jobs_may_be_due     discovery: claims now; relay: publishes now
    completer                                  jobs_due_in         discovery, relay: the same after that many seconds
    completer                                  jobs_unparked       discovery: claims them, or wakes other workers
                                                                   relay: publishes them
    completer                                  store_relieved      discovery, intake: claim again
    completer, listener                        gates_changed       gate watcher: reads gates, budgets and holds
    listener                                   cancel_requested    cancels: reads the requests of jobs that run here
    execution                                  progress_made       progress writer: writes it within a second

With a broker, `slot_freed` and `processors_reset` let the intake claim what it has received, and there are:

    broker link                                broker_changed      discovery: one poll for all that is due, then by the
                                                                   new pace; intake and relay: go on
    intake                                     suspect_delivered   discovery: one poll for all that is due
    intake                                     token_due_in        discovery: the same after that many seconds
    discovery                                  queues_found        intake: receives from these queues as well

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
        self.registered: Signal[()] = Signal()  # the store has a row of this incarnation
        self.slot_freed: Signal[Processor] = Signal()  # an execution ended; its processor is idle, or in error
        self.processors_reset: Signal[()] = Signal()  # processors in error are idle again
        self.jobs_may_be_due: Signal[()] = Signal()  # a wake-up, a tick, a sleep that ended, a gate that opened
        self.jobs_due_in: Signal[float] = Signal()  # seconds until a job that ended here may be claimed again
        self.jobs_unparked: Signal[set[str]] = Signal()  # queues with jobs that slots from here let in
        self.store_relieved: Signal[()] = Signal()  # the backlog of transitions is written: claims may go on
        self.gates_changed: Signal[()] = Signal()  # a gate, a budget or a hold may have changed
        self.cancel_requested: Signal[()] = Signal()  # a message says that a job of this worker is to be cancelled
        self.broker_changed: Signal[()] = Signal()  # deliveries begin or cease to arrive here
        self.suspect_delivered: Signal[()] = Signal()  # a delivery named a job that only a poll may claim
        self.token_due_in: Signal[float] = Signal()  # seconds until a bucket has a token for a delivered job
        self.queues_found: Signal[set[str]] = Signal()  # in which a poll claimed jobs
        self.progress_made: Signal[Execution] = Signal()  # may be sent from a handler's thread
