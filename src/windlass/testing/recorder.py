"""Keeps what handlers raise. A worker stores an error as text; a test wants the exception itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import msgspec

from windlass.declare.registry import Definition, Isolation, Registry
from windlass.observe.events import AttemptEnded, AttemptStarted, Event

attempting: ContextVar[UUID | None] = ContextVar("windlass_attempting", default=None)
"""The job of the handler that runs in this context."""


class Recorder:
    """Subscribes to a worker's events and wraps its handlers."""

    def __init__(self) -> None:
        self.ends: dict[UUID, AttemptEnded] = {}
        self.errors: dict[UUID, BaseException] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptStarted):
            self.ends.pop(event.job.id, None)
            self.errors.pop(event.job.id, None)
            attempting.set(event.job.id)  # emitted inside the attempt's own task, so that it ends with it
        elif isinstance(event, AttemptEnded):
            self.ends[event.job.id] = event

    def wrap(self, registry: Registry) -> Registry:
        """The same job types, each with a handler that records what it raises."""
        wrapped = Registry()
        for definition in registry:
            wrapped.add(self._wrap(definition))
        for rule in registry.rules():
            wrapped.add_rule(rule, "the program", registry.scope_of(rule.name), keyed=registry.is_keyed(rule.name))
        # One attempt at a time: a pool's size would only spread work over time.
        wrapped.pipelines = {name: plan.unsized() for name, plan in registry.pipelines.items()}
        wrapped.schedules = dict(registry.schedules)
        wrapped.subscribers = registry.subscribers
        return wrapped

    def _wrap(self, definition: Definition) -> Definition:
        """In this process, whatever the type's isolation: what a test patched is patched only here."""
        natural = inspect.iscoroutinefunction(definition.fn)
        fn = self._coroutine(definition.fn) if natural else self._plain(definition.fn)
        isolation = Isolation.COROUTINE if natural else Isolation.THREAD
        return msgspec.structs.replace(definition, fn=fn, isolation=isolation)

    def _coroutine(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def handler(*args: Any, **kwargs: Any) -> Any:
            try:
                return await fn(*args, **kwargs)
            except BaseException as error:
                self._keep(error)
                raise

        return handler

    def _plain(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def handler(*args: Any, **kwargs: Any) -> Any:
            try:
                return fn(*args, **kwargs)
            except BaseException as error:
                self._keep(error)
                raise

        return handler

    def _keep(self, error: BaseException) -> None:
        job = attempting.get()
        assert job is not None, "a handler runs in an attempt"
        trace = error.__traceback__
        self.errors[job] = error.with_traceback(None if trace is None else trace.tb_next)  # without our own frame
