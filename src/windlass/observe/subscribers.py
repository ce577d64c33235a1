"""What `app.on_event(…)` makes of a function: a subscriber to the events that its parameter's hint names."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any

from windlass.errors import RegistrationError
from windlass.observe.events import Event

EVENTS: tuple[type, ...] = typing.get_args(Event)


class Subscriber:
    """A function of the program, called with each event of some kinds."""

    def __init__(self, fn: Callable[[Any], object], kinds: tuple[type, ...]) -> None:
        self._fn = fn
        self._kinds = kinds
        self.__module__, self.__qualname__ = fn.__module__, name_of(fn)

    def __call__(self, event: Event) -> None:
        if isinstance(event, self._kinds):
            self._fn(event)


def make_subscriber(fn: Callable[[Any], object], localns: Mapping[str, Any]) -> Subscriber:
    """A subscriber to the events that the hint of `fn` names; to all events if it has no hint."""
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
    unknown = [each for each in named if each not in EVENTS]
    if unknown:
        known = ", ".join(sorted(event.__name__ for event in EVENTS))
        raise RegistrationError(
            f"app.on_event: {name} takes {getattr(unknown[0], '__name__', unknown[0])}, which is no event; there are: "
            f"{known}"
        )
    return named
