"""What a program can run: one `Definition` per job type, and the registry that knows them all."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from windlass.clock import Duration, seconds
from windlass.config import Pace, Settings, memory_size, suggest
from windlass.errors import DuplicateType, RegistrationError, UnknownType
from windlass.job import DEFAULT_QUEUE
from windlass.names import flaw
from windlass.payload import Signature
from windlass.policy.retry import RetryPolicy, exponential, fixed

PRIORITIES = range(-32_768, 32_768)


class Isolation(StrEnum):
    """Three ways to execute, and no others."""

    COROUTINE = "coroutine"
    THREAD = "thread"
    PROCESS = "process"


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A job type: a function and how it is to be run. Checked when it is declared."""

    type: str
    fn: Callable[..., Any]
    signature: Signature
    isolation: Isolation
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int | None = None
    retry: RetryPolicy | None = None
    timeout: float | None = None
    memory: int | None = None
    permanent: tuple[builtins.type[BaseException], ...] = ()
    transient: tuple[builtins.type[BaseException], ...] = ()

    def attempts(self, settings: Settings) -> int:
        return self.max_attempts or settings.max_attempts

    def limit(self, settings: Settings) -> float | None:
        """The time limit of an attempt in seconds."""
        return self.timeout if self.timeout is not None else settings.timeout

    def retry_policy(self, settings: Settings) -> RetryPolicy:
        return self.retry or DEFAULT_RETRIES[settings.pace]

    def is_permanent(self, error: BaseException) -> bool | None:
        """True: never retry. False: certainly retry. None: neither list names it. The nearest class decides."""
        for ancestor in builtins.type(error).__mro__:
            if ancestor in self.permanent:
                return True
            if ancestor in self.transient:
                return False
        return None


DEFAULT_RETRIES: dict[Pace, RetryPolicy] = {
    Pace.EAGER: exponential("10s", factor=2),
    Pace.STEADY: fixed(0),  # the next scan finds it
    Pace.POLITE: fixed("5m"),
}


class Registry:
    """The job types of one program."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}

    def add(self, definition: Definition) -> None:
        known = self._definitions.get(definition.type)
        if known is not None:
            raise DuplicateType(
                f"job type {definition.type!r} is declared twice, by {place(known.fn)} and {place(definition.fn)}; "
                f'give one of them a name of its own: @app.job(type="…")'
            )
        self._definitions[definition.type] = definition

    def get(self, type: str) -> Definition | None:
        return self._definitions.get(type)

    def require(self, type: str) -> Definition:
        """The definition, or an error that suggests what was meant."""
        definition = self._definitions.get(type)
        if definition is None:
            raise UnknownType(f"no job type {type!r} in this program{suggest(type, self._definitions)}")
        return definition

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._definitions)

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())

    def __len__(self) -> int:
        return len(self._definitions)


def define(
    fn: Callable[..., Any],
    *,
    context: builtins.type,
    type: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    max_attempts: int | None = None,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    isolation: str | None = None,
    memory: str | int | None = None,
    permanent: Sequence[builtins.type[BaseException]] = (),
    transient: Sequence[builtins.type[BaseException]] = (),
    localns: dict[str, Any] | None = None,
) -> Definition:
    """A checked definition of `fn`; everything that can be wrong with a declaration is said here."""
    signature = Signature.of(fn, context=context, localns=localns)
    name = fn.__name__ if type is None else type
    queue = DEFAULT_QUEUE if queue is None else queue
    _check_name("type", name, fn)
    _check_name("queue", queue, fn)
    _check_numbers(fn, priority, max_attempts)
    if retry is not None and not hasattr(retry, "delay"):
        raise RegistrationError(f"{place(fn)}: retry={retry!r}; use exponential(…), delays(…) or fixed(…)")
    return Definition(
        type=name,
        fn=fn,
        signature=signature,
        isolation=_isolation(fn, isolation),
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        retry=retry,
        timeout=_limit(fn, timeout),
        memory=None if memory is None else memory_size(memory),
        permanent=_exceptions("permanent", permanent, fn),
        transient=_exceptions("transient", transient, fn),
    )


def place(fn: Callable[..., Any]) -> str:
    """Where a function stands, for messages."""
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"


def _isolation(fn: Callable[..., Any], wish: str | None) -> Isolation:
    natural = Isolation.COROUTINE if inspect.iscoroutinefunction(fn) else Isolation.THREAD
    if wish is None:
        return natural
    try:
        isolation = Isolation(wish)
    except ValueError:
        raise RegistrationError(f"{place(fn)}: isolation={wish!r}; there are: {', '.join(Isolation)}") from None
    if isolation is not Isolation.PROCESS and isolation is not natural:
        raise RegistrationError(
            f"{place(fn)}: isolation={wish!r} does not fit this function, which runs as a {natural}; "
            "leave it out, or use isolation='process'"
        )
    return isolation


def _check_numbers(fn: Callable[..., Any], priority: int, max_attempts: int | None) -> None:
    if max_attempts is not None and (isinstance(max_attempts, bool) or max_attempts < 1):
        raise RegistrationError(f"{place(fn)}: max_attempts={max_attempts!r}; a job needs at least 1 attempt")
    if priority not in PRIORITIES:
        lowest, highest = PRIORITIES.start, PRIORITIES.stop - 1
        raise RegistrationError(f"{place(fn)}: priority={priority!r} is not in {lowest}…{highest}")


def _limit(fn: Callable[..., Any], timeout: Duration | None) -> float | None:
    limit = None if timeout is None else seconds(timeout, what=f"{place(fn)}: timeout")
    if limit == 0:
        raise RegistrationError(f"{place(fn)}: timeout={timeout!r} leaves no time at all; leave it out for no limit")
    return limit


def _check_name(what: str, name: str, fn: Callable[..., Any]) -> None:
    problem = flaw(name)
    if problem is not None:
        raise RegistrationError(f"{place(fn)}: {what} {problem}")


def _exceptions(
    what: str, given: Sequence[type[BaseException]], fn: Callable[..., Any]
) -> tuple[type[BaseException], ...]:
    for item in given:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise RegistrationError(f"{place(fn)}: {what} lists {item!r}, which is not an exception class")
    return tuple(given)
