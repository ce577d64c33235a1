"""Keys that are made of a job's arguments: which arguments a name or a function means, checked at the declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping

from windlass.config import suggest
from windlass.errors import ConfigError
from windlass.payload.signature import Signature


def select_arguments(names: Iterable[object], signature: Signature, what: str) -> tuple[str, ...]:
    """The handler's arguments of these names, in the handler's order."""
    wanted, known = list(names), dict.fromkeys(signature.names)
    for name in wanted:
        if name not in known:
            raise ConfigError(f"{what}: {signature.name}() has no argument {name!r}{_hint(name, known)}")
    return tuple(name for name in signature.names if name in wanted)


def read_parameters(fn: Callable[..., object], signature: Signature, what: str) -> tuple[str, ...]:
    """The handler's arguments that a key function takes, by the names of its parameters."""
    option = f"{what}={name_of(fn)}"
    if inspect.iscoroutinefunction(fn):
        raise ConfigError(f"{option} is a coroutine, and a key is needed at once; write a plain function")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{option}: its parameters cannot be read; wrap it: lambda user_id: …") from None
    known = dict.fromkeys(signature.names)
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return signature.names
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise ConfigError(
                f"{option}: arguments are passed by name, and {parameter.name!r} takes only positional ones"
            )
        if parameter.name not in known and parameter.default is inspect.Parameter.empty:
            raise ConfigError(
                f"{option} asks for {parameter.name!r}, and {signature.name}() has no such argument"
                f"{_hint(parameter.name, known)}"
            )
    return tuple(parameter.name for parameter in parameters if parameter.name in known)


def name_of(fn: object) -> str:
    """A function's own name, for messages."""
    return str(getattr(fn, "__qualname__", type(fn).__qualname__)).rpartition(".")[2]


def _hint(name: object, known: Mapping[str, object]) -> str:
    return suggest(str(name), known) if known else "; it takes none"
