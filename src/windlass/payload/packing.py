"""Values of steps and signals: refused if JSON cannot hold them, and read back by the function's return hint."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from windlass.errors import FlowError, InvalidInput
from windlass.payload.hints import result_decoder
from windlass.payload.profile import SIMPLE, check_extent, encode
from windlass.payload.sanitise import to_plain


def pack(value: object, *, what: str) -> str:
    """`value` as JSON text. An error names `what` the value belongs to, and the path that does not fit."""
    try:
        if type(value) not in SIMPLE:
            check_extent(value)
        return encode(to_plain(value, str_keys=True))
    except InvalidInput as error:
        why = str(error)
    except Exception as error:  # msgspec calls methods of the user's classes, and these may raise anything
        why = f"$: {error or type(error).__name__}"
    raise FlowError(
        f"the value of {what} cannot be kept as JSON: {why}; use builtins, a dataclass, a msgspec.Struct or a "
        "pydantic model"
    )


def unpack(text: str, fn: Callable[..., Any]) -> Any:
    """A function's result, decoded by its return hint; as plain JSON if there is no hint or it does not fit."""
    decoder = _decoder(fn)
    if decoder is not None:
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass
    return msgspec.json.decode(text)


def _decoder(fn: Callable[..., Any]) -> msgspec.json.Decoder[Any] | None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain: Any = inspect.unwrap(fn)
    annotations = getattr(plain, "__annotations__", {})
    if "return" not in annotations:
        return None
    alone = SimpleNamespace(__annotations__={"return": annotations["return"]})
    try:
        hints = typing.get_type_hints(alone, globalns=getattr(plain, "__globals__", {}), include_extras=True)
    except Exception:  # a name that only a type checker can see
        return None
    return result_decoder(hints)
