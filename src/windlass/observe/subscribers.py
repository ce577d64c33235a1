"""Subscribers: what `app.on_event(…)` makes of a function, and all subscribers of one worker.

A subscriber cannot stop the work. What it raises is counted, and logged once. It is called on the worker's event loop,
and Python cannot interrupt it there: while it hangs, this worker starts and finishes nothing. That is reported, by the
thread of the beat, with the subscriber's name; the worker keeps its leases, and `/readyz` says that it is not ready.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any
from uuid import UUID

from windlass.errors import RegistrationError
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.observe.events import AttemptEnded, Detail, Event, JobChanged, LeasesLost

log = logging.getLogger("windlass")

EVENTS: tuple[type, ...] = typing.get_args(Event)
DETAILS: tuple[type, ...] = typing.get_args(Detail)
MOST_UNCOMMITTED = 10_000  # ended attempts that wait for their commit; beyond this number the oldest is dropped
SLOW = 1.0  # seconds: a subscriber that took longer is reported once

Subscribed = Callable[[Any], object]
"""A function that is called with events. Its attribute `kinds` names them; without one it gets all but details."""


class Subscribers:
    """All subscribers of one worker. Which of them want an event is known before the event is made."""

    def __init__(self, subscribers: Iterable[Subscribed] = ()) -> None:
        self._all = list(subscribers)
        self._by_kind: dict[type, tuple[Subscribed, ...]] = {}
        self._reported: set[str] = set()
        self._inside: tuple[Subscribed, float] | None = None  # which one is being called, since when
        self.failures: Counter[str] = Counter()  # events that a subscriber failed at, by its name
        self.slow: Counter[str] = Counter()  # calls that took longer than SLOW

    def append(self, subscriber: Subscribed) -> None:
        self._all.append(subscriber)
        self.refresh()

    def refresh(self) -> None:
        """Ask again what each subscriber wants: the level of a log may have changed."""
        self._by_kind = {}

    def wants(self, kind: type) -> bool:
        """Whether an event of this kind has to be made."""
        return bool(self._of(kind))

    def __call__(self, event: Event | Detail) -> None:
        ended = time.monotonic()
        for subscriber in self._of(type(event)):
            began = ended
            self._inside = subscriber, began
            try:
                subscriber(event)
            except KeyboardInterrupt:  # meant for the process
                raise
            except BaseException as error:  # sys.exit() in a subscriber must not end an attempt half-way
                self._record_failure(subscriber, event, error)
            finally:
                self._inside = None
            ended = time.monotonic()
            if ended - began > SLOW:
                self._record_slow(subscriber, ended - began)

    def count_failures(self) -> Counter[str]:
        """Events that each subscriber failed at, by its name; 0 for one that never failed. From any thread."""
        counts = Counter(dict.fromkeys(map(name_of, self._all.copy()), 0))
        counts.update(self.failures.copy())
        return counts

    def report_hanging(self) -> None:
        """Log which subscriber has held the event loop for long. Called from another thread: the loop itself cannot."""
        inside = self._inside
        if inside is not None and time.monotonic() - inside[1] > SLOW:
            self._warn_slow(name_of(inside[0]), time.monotonic() - inside[1], "has not returned for")

    def _of(self, kind: type) -> tuple[Subscribed, ...]:
        try:
            return self._by_kind[kind]
        except KeyError:
            wanting = tuple(each for each in self._all if kind in getattr(each, "kinds", EVENTS))
            self._by_kind[kind] = wanting
            return wanting

    def _record_failure(self, subscriber: Subscribed, event: object, error: BaseException) -> None:
        """Logged once for each subscriber: one that fails at every job would fill the log."""
        name = name_of(subscriber)
        self.failures[name] += 1
        if self.failures[name] == 1:
            text = "the subscriber %s failed at %s; jobs go on, and its later errors are counted, not logged"
            log.error(text, name, type(event).__name__, exc_info=error)

    def _record_slow(self, subscriber: Subscribed, took: float) -> None:
        self.slow[name_of(subscriber)] += 1
        self._warn_slow(name_of(subscriber), took, "took")

    def _warn_slow(self, name: str, took: float, verb: str) -> None:
        if name not in self._reported:
            self._reported.add(name)
            text = "the subscriber %s %s %.1f s; meanwhile this worker did nothing else: let it return at once"
            log.warning(text, name, verb, took)


class EndingTracker:
    """A subscriber that joins the end of an attempt with its commit.

    `report(end, state)` is called when the transition is committed, with the job's new state. The state is None when
    nothing was written, because the lease was lost.
    """

    kinds = (AttemptEnded, JobChanged, LeasesLost)

    def __init__(self, report: Callable[[AttemptEnded, State | None], None]) -> None:
        self._report = report
        self._ended: dict[UUID, AttemptEnded] = {}

    def __call__(self, event: Event | Detail) -> None:
        match event:
            case AttemptEnded(ending=Ending.LOST):
                self._report(event, None)
            case AttemptEnded():
                self._ended[event.job.id] = event
                if len(self._ended) > MOST_UNCOMMITTED:
                    del self._ended[next(iter(self._ended))]
            case JobChanged():
                end = self._ended.pop(event.id, None)
                if end is not None:
                    self._report(end, event.state)
            case LeasesLost():
                for end in self._ended.values():
                    self._report(end, None)
                self._ended.clear()
            case _:
                pass


class Subscriber:
    """A function of the program, called with each event of some kinds."""

    def __init__(self, fn: Callable[[Any], object], kinds: tuple[type, ...]) -> None:
        self._fn = fn
        self.kinds = kinds
        self.__module__, self.__qualname__ = fn.__module__, name_of(fn)

    def __call__(self, event: Event | Detail) -> None:
        if isinstance(event, self.kinds):
            self._fn(event)


def make_subscriber(fn: Callable[[Any], object], localns: Mapping[str, Any]) -> Subscriber:
    """A subscriber to the events that the hint of `fn` names; to all but details if it has no hint."""
    if not callable(fn) or isinstance(fn, type):
        raise RegistrationError(f"app.on_event: {fn!r} is no function; write: def on_event(event): …")
    name = name_of(fn)
    plain = _unwrap(fn)
    call: Any = plain if inspect.isroutine(plain) else plain.__call__  # type: ignore[operator]
    if inspect.iscoroutinefunction(call):
        raise RegistrationError(
            f"app.on_event: {name} is async, and events are not awaited; write: def {name}(event): …, and in it "
            "asyncio.create_task(…) for what must be awaited"
        )
    try:
        parameter = next(iter(inspect.signature(fn).bind(None).arguments))
    except TypeError:
        raise RegistrationError(
            f"app.on_event: {name} is called with one argument, the event; write: def {name}(event): …"
        ) from None
    return Subscriber(fn, _kinds(call, name, parameter, localns))


def _unwrap(fn: Callable[[Any], object]) -> Callable[..., object]:
    """The function inside a `functools.partial`: it has the hints."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def name_of(subscriber: Callable[[Any], object]) -> str:
    """The name of a subscriber's function, for messages."""
    return str(getattr(subscriber, "__qualname__", type(subscriber).__qualname__))


def _kinds(call: Any, name: str, parameter: str, localns: Mapping[str, Any]) -> tuple[type, ...]:
    try:
        hint = typing.get_type_hints(call, localns=dict(localns)).get(parameter, Event)
    except Exception as error:
        raise RegistrationError(
            f"app.on_event: the hints of {name} cannot be resolved ({type(error).__name__}: {error}); import the "
            "event at the top of the module, not under TYPE_CHECKING"
        ) from error
    named = typing.get_args(hint) if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    if hint in (Any, object):
        return EVENTS
    unknown = [each for each in named if each not in (*EVENTS, *DETAILS)]
    if unknown:
        known = ", ".join(sorted(event.__name__ for event in (*EVENTS, *DETAILS)))
        raise RegistrationError(
            f"app.on_event: {name} takes {getattr(unknown[0], '__name__', unknown[0])}, which is no event; there are: "
            f"{known}"
        )
    return named
