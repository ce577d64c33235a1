"""Instruments: what tracing and error tracking need beside events, because an event cannot wrap a handler.

An instrument is called when jobs are enqueued, and around each attempt, inside the attempt's own task: what it sets in
context variables is what the handler sees. It observes: the one value of it that is stored is the job's trace. An error
of an instrument is counted and logged once, and the job goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from windlass.model.job import Job, NewJob
from windlass.observe.events import AttemptEnded

T = TypeVar("T")

log = logging.getLogger("windlass")


class Watch:
    """What an instrument keeps of one attempt."""

    trace: str | None = None
    """The traceparent of the attempt; it is stored with the attempt, and a child process continues it."""

    def fail(self) -> None:
        """The attempt failed: called before its transition is made, which stores `trace`, and before `end`."""

    def end(self, end: AttemptEnded) -> None:
        """The attempt ended; perhaps on another thread or in another task than it began."""


class SendWatch:
    """What an instrument keeps of one enqueue."""

    def __init__(self, trace: str | None) -> None:
        self.trace = trace  # the traceparent to store with the jobs

    def end(self, error: BaseException | None) -> None:
        """The jobs are written, or `error` was raised."""


class Instrument:
    """Watches one program. A subclass overrides what it needs; each method here does nothing."""

    name = "an instrument"

    def send(self, jobs: Sequence[NewJob], incoming: str | None) -> SendWatch | None:
        """Jobs are about to be written. `incoming` is the traceparent of the HTTP request that enqueues them."""
        return None

    def begin(self, job: Job) -> Watch | None:
        """An attempt begins, in the task in which its handler will run."""
        return None

    def start(self) -> None:
        """A worker starts: called in the context of which each of its attempts gets a copy."""

    def join(self, job: Job, trace: str | None) -> None:
        """In a child process: an attempt begins, which the worker watches under this traceparent."""

    def current(self) -> str | None:
        """The traceparent that a job would have which is written here and now."""
        return None

    def flush(self) -> None:
        """Send what waits in memory: this process ends."""


class Instruments:
    """The instruments of one program, called so that none of them can fail a job."""

    def __init__(self) -> None:
        self._each: list[Instrument] = []
        self.failures: Counter[str] = Counter()  # errors, by the name of the instrument

    def __bool__(self) -> bool:
        return bool(self._each)

    def add(self, instrument: Instrument) -> None:
        """Add an instrument, in the place of one of the same name."""
        self._each[:] = [*(each for each in self._each if each.name != instrument.name), instrument]

    def count_failures(self) -> Counter[str]:
        """Errors of each instrument, by its name; 0 for one that never failed. From any thread."""
        counts = Counter(dict.fromkeys((each.name for each in self._each.copy()), 0))
        counts.update(self.failures.copy())
        return counts

    def sending(self, jobs: Sequence[NewJob], incoming: str | None) -> Sending:
        """`with instruments.sending(jobs, None) as jobs: …` writes the jobs with their trace."""
        return Sending(self, jobs, incoming)

    def begin(self, job: Job) -> WatchedAttempt | None:
        """An attempt begins; None where no instrument watches it."""
        watches = self.ask(lambda each: each.begin(job))
        return WatchedAttempt(self, watches) if watches else None

    def start(self) -> None:
        self.ask(lambda each: each.start())

    def join(self, job: Job, trace: str | None) -> None:
        self.ask(lambda each: each.join(job, trace))

    def current(self) -> str | None:
        """The traceparent that a job would have which is written here and now; None where no instrument traces."""
        return next((trace for _, trace in self.ask(lambda each: each.current())), None)

    def flush(self) -> None:
        self.ask(lambda each: each.flush())

    def ask(self, question: Callable[[Instrument], T | None]) -> list[tuple[Instrument, T]]:
        """What each instrument answers, without those that answer None or fail."""
        answers = ((each, self.guard(each, question, each)) for each in self._each)
        return [(each, answer) for each, answer in answers if answer is not None]

    def guard(self, instrument: Instrument, call: Callable[..., T], *args: Any) -> T | None:
        """What the call returns; None when it fails, which is counted, and logged the first time."""
        try:
            return call(*args)
        except KeyboardInterrupt:  # meant for the process
            raise
        except BaseException as error:
            self.failures[instrument.name] += 1
            if self.failures[instrument.name] == 1:
                text = "%s failed; jobs go on, and its later errors are only counted"
                log.error(text, instrument.name, exc_info=error)
            return None


class WatchedAttempt:
    """One attempt, as all instruments watch it."""

    def __init__(self, instruments: Instruments, watches: list[tuple[Instrument, Watch]]) -> None:
        self._instruments = instruments
        self._watches = watches

    @property
    def trace(self) -> str | None:
        """The traceparent of the attempt, where one has it."""
        return next((watch.trace for _, watch in self._watches if watch.trace is not None), None)

    def fail(self) -> None:
        for instrument, watch in self._watches:
            self._instruments.guard(instrument, watch.fail)

    def end(self, end: AttemptEnded) -> None:
        for instrument, watch in self._watches:
            self._instruments.guard(instrument, watch.end, end)


class Sending:
    """One enqueue, as all instruments watch it. Inside the block the jobs have their trace."""

    def __init__(self, instruments: Instruments, jobs: Sequence[NewJob], incoming: str | None) -> None:
        self._instruments = instruments
        self._jobs = jobs
        self._incoming = incoming
        self._sent: list[tuple[Instrument, SendWatch]] = []

    def __enter__(self) -> Sequence[NewJob]:
        trace = self._incoming
        if self._instruments:
            self._sent = self._instruments.ask(lambda each: each.send(self._jobs, self._incoming))
            trace = next((sent.trace for _, sent in self._sent if sent.trace is not None), trace)
        return self._jobs if trace is None else [msgspec.structs.replace(job, trace=trace) for job in self._jobs]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for instrument, sent in self._sent:
            self._instruments.guard(instrument, sent.end, error)
