"""A handler's parameters as a JSON object: bound by name and checked at the enqueue, unbound for the call.

The function's type hints are the schema. They become one msgspec Struct, so that a check costs microseconds and names
the path that does not fit.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import msgspec

from windlass.errors import InvalidInput, RegistrationError
from windlass.payload.hints import (
    first_class,
    has_other_keys,
    is_unstorable,
    load_unknown,
    plain_classes,
    result_decoder,
    stored_hint,
    unknown_class,
)
from windlass.payload.profile import DEEPEST, SIMPLE, check_extent, encode
from windlass.payload.sanitise import dump_unknown, store_result
from windlass.words import suggest_enqueue

AT = re.compile(r" - at `(.*)`$", re.DOTALL)
REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; remove the /: arguments are stored by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number; name them, or take a list: items: list[…]",
    inspect.Parameter.VAR_KEYWORD: "takes any keyword; name them, or take one dict: options: dict[str, …]",
}
CONTEXT_NAMES = ("ctx", "context")


class Signature:
    """How a job calls a function. It is made at registration; an enqueue calls `bind`, a worker calls `unbind`."""

    @classmethod
    def of(
        cls, fn: Callable[..., Any], *, localns: Mapping[str, Any] | None = None, contexts: Sequence[type] = ()
    ) -> Signature:
        """The signature of `fn`; raises RegistrationError with what to change."""
        _check_function(fn)
        return cls(fn, _resolve_hints(fn, localns), contexts)

    def __init__(self, fn: Callable[..., Any], hints: dict[str, Any], contexts: Sequence[type]) -> None:
        parameters = list(inspect.signature(fn).parameters.values())
        self.name = fn.__name__
        self.context = None if not parameters else _context_in(hints.get(parameters[0].name), contexts)
        """The class of context that the handler wants as its first argument; None: it wants none."""
        if self.context is not None:
            parameters = parameters[1:]
        for parameter in parameters:
            _check_parameter(fn, parameter, hints, contexts)
        positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        # Positional parameters first: `unbind` separates the struct's values by their position.
        self.names = (*positional, *(p.name for p in parameters if p.name not in positional))
        self.required = frozenset(p.name for p in parameters if p.default is inspect.Parameter.empty)
        self._positional = len(positional)
        self._str_keys = any(has_other_keys(hints[name]) for name in self.names)
        defaults = {p.name: p.default for p in parameters if p.name not in self.required}
        self._struct = _make_struct(fn, self.names, hints, defaults)
        self._decoder = msgspec.json.Decoder(self._struct, dec_hook=load_unknown)
        hints = {**hints, "return": stored_hint(hints.get("return", Any))}
        _check_result(fn, hints)
        self._result = result_decoder(hints)
        self._result_classes = plain_classes(hints.get("return", Any))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The given arguments of a call as JSON text. Defaults are left out, so that a later default applies."""
        given = self._assign(args, kwargs)
        plain = self._plain(given)
        try:
            msgspec.convert(plain, self._struct, dec_hook=load_unknown, str_keys=self._str_keys)
        except msgspec.ValidationError as error:
            raise self._invalid_input(error) from None
        return encode(plain)

    def unbind(self, text: str, *, lenient: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """Stored input as the arguments of the call, without the context.

        `lenient` ignores input that has no parameter here: a later phase reads an input that the first phase bound.
        """
        try:
            values = msgspec.structs.astuple((self._lenient if lenient else self._decoder).decode(text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._invalid_input(error) from None
        if len(values) == self._positional:
            return list(values), {}
        return list(values[: self._positional]), dict(
            zip(self.names[self._positional :], values[self._positional :], strict=True)
        )

    def arguments(self, text: str, *, lenient: bool = False) -> dict[str, Any]:
        """Stored input as the handler will see it, by the names of its parameters, defaults included."""
        args, kwargs = self.unbind(text, lenient=lenient)
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def fields(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        """The parameters with their hints and defaults, without the context."""
        return msgspec.structs.fields(self._struct)

    def with_result_of(self, last: Signature, *, name: str) -> Signature:
        """The signature of a pipeline: arguments as here, the result as in its last phase."""
        whole = copy.copy(self)
        whole.name, whole._result, whole._result_classes = name, last._result, last._result_classes
        return whole

    def dump_result(self, value: object) -> tuple[str, str | None]:
        """A handler's result as JSON text, never refused; and what is wrong with it, None for nearly every result.

        An object of a class that the hint names fits without a look at its fields.
        """
        text, problem = store_result(value)
        if problem is None and self._result is not None:
            problem = self._misfit(self._result, value, text)
        return text, problem

    def _misfit(self, decoder: msgspec.json.Decoder[Any], value: object, text: str) -> str | None:
        try:
            if not isinstance(value, self._result_classes):
                decoder.decode(text)
        except BaseException as error:  # whatever a validator of the user's own raises: the job has succeeded
            complaint = _error_text(error)
            found = AT.search(complaint)
            return f"{found[1] if found else '$'} does not fit the return hint: {AT.sub('', complaint)}"
        return None

    def result(self, text: str) -> Any:
        """A job's output, decoded by the return hint if it fits, and as plain JSON otherwise."""
        if self._result is not None:
            try:
                return self._result.decode(text)
            except (msgspec.DecodeError, RecursionError):
                pass
        return msgspec.json.decode(text)

    @cached_property
    def _lenient(self) -> msgspec.json.Decoder[Any]:
        struct = msgspec.defstruct(self.name, [], bases=(self._struct,), forbid_unknown_fields=False, kw_only=True)
        return msgspec.json.Decoder(struct, dec_hook=load_unknown)

    def _assign(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > self._positional:
            raise InvalidInput(
                f"{self.name}() takes {_count_arguments(self._positional)} but {len(args)} {_was_or_were(len(args))} "
                "given"
            )
        given = dict(zip(self.names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise InvalidInput(f"{self.name}() got multiple values for argument {name!r}", path=f"$.{name}")
            if name not in self.names:
                raise InvalidInput(self._describe_unexpected(name, {*given, *kwargs}), path=f"$.{name}")
            given[name] = value
        if not self.required <= given.keys():
            missing = [name for name in self.names if name in self.required and name not in given]
            listed = " and ".join(repr(name) for name in missing)
            plural = "s" if len(missing) > 1 else ""
            raise InvalidInput(f"{self.name}() missing required argument{plural} {listed}", path=f"$.{missing[0]}")
        return given

    def _describe_unexpected(self, name: str, given: set[str]) -> str:
        free = [known for known in self.names if known not in given]
        close = difflib.get_close_matches(name, free, n=1)
        missing = [known for known in free if known in self.required]
        likely = close or (missing if len(missing) == 1 else [])
        hint = f"; did you mean {likely[0]!r}?" if likely else ""
        if not (close and close[0] in missing):
            hint = suggest_enqueue(self.name, name) or hint
        return f"{self.name}() got an unexpected keyword argument {name!r}{hint}"

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments as builtins. Numbers and texts stay as they are; msgspec converts the others."""
        if all(type(value) in SIMPLE for value in given.values()):
            return given
        for name, value in given.items():
            check_extent(value, path=f"$.{name}")
            try:
                given[name] = msgspec.to_builtins(value, str_keys=self._str_keys, enc_hook=dump_unknown)
            except Exception as error:  # msgspec calls methods of the caller's classes, and these may raise anything
                raise InvalidInput(f"{self.name}(): $.{name}: {_error_text(error)}", path=f"$.{name}") from error
        return given

    def _invalid_input(self, error: Exception) -> InvalidInput:
        text = _error_text(error)
        found = AT.search(text)
        path = found[1] if found else "$"
        return InvalidInput(f"{self.name}(): {path}: {AT.sub('', text)}", path=path)


def _check_function(fn: Callable[..., Any]) -> None:
    if inspect.isclass(fn):
        raise RegistrationError(f"{_full_name(fn)} is a class; a job is a function: def {fn.__name__.lower()}(…): …")
    if not inspect.isfunction(fn):
        raise RegistrationError(
            f"{_full_name(fn)} is a {type(fn).__qualname__}; a job is a plain function; wrap it: def job(…): …"
        )
    if fn.__name__ == "<lambda>":
        raise RegistrationError(
            f"{_full_name(fn)} is a lambda, which has no name and no type hints; write: def job(…): …"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise RegistrationError(
            f"{_full_name(fn)} is a generator, and a job has one result; return a list instead of using yield: "
            "return [… for … in …]"
        )
    first = next(iter(inspect.signature(fn).parameters), None)
    if first in ("self", "cls") and first not in fn.__annotations__:
        owner = fn.__qualname__.split(".")[-2] if "." in fn.__qualname__ else "Class"
        raise RegistrationError(
            f"{_full_name(fn)} is a method, and a job is called without an object; write a function outside the class, "
            f"which makes or loads the object: def {fn.__name__}(…): return {owner}(…).{fn.__name__}(…)"
        )


def _resolve_hints(fn: Callable[..., Any], localns: Mapping[str, Any] | None) -> dict[str, Any]:
    local = dict(localns) if localns else None
    try:
        return typing.get_type_hints(fn, localns=local, include_extras=True)
    except Exception as error:
        name = next((name for name in fn.__annotations__ if not _is_resolvable(fn, name, local)), "?")
        what = "the return value" if name == "return" else f"parameter {name!r}"
        raise RegistrationError(
            f"{_full_name(fn)}: the hint of {what} cannot be resolved ({type(error).__name__}: {error}); import "
            "the name at the top of the module, not under TYPE_CHECKING and not inside a function"
        ) from error


def _is_resolvable(fn: Callable[..., Any], name: str, local: dict[str, Any] | None) -> bool:
    alone = SimpleNamespace(__annotations__={name: fn.__annotations__[name]})
    try:
        typing.get_type_hints(alone, globalns=inspect.unwrap(fn).__globals__, localns=local)
    except Exception:
        return False
    return True


def _check_parameter(
    fn: Callable[..., Any], parameter: inspect.Parameter, hints: dict[str, Any], contexts: Sequence[type]
) -> None:
    name = parameter.name
    if parameter.kind in REFUSED_KINDS:
        raise RegistrationError(f"{_full_name(fn)}: parameter {name!r} {REFUSED_KINDS[parameter.kind]}")
    if name not in hints:
        raise RegistrationError(
            f"{_full_name(fn)}: parameter {name!r} has no type hint; write one: {name}: {_likely_hint(fn, name)}"
        )
    context = _context_in(hints[name], contexts)
    if context is not None:
        raise RegistrationError(
            f"{_full_name(fn)}: parameter {name!r} is the {context.__name__}, which must be the first one; write: "
            f"def {fn.__name__}({name}: {context.__name__}, …)"
        )
    unknown = unknown_class(hints[name])
    if unknown is not None:
        raise RegistrationError(
            f"{_full_name(fn)}: parameter {name!r}: {unknown} cannot be sent as JSON; use builtins, a dataclass, "
            "a msgspec.Struct, a TypedDict or a pydantic model"
        )


def _likely_hint(fn: Callable[..., Any], name: str) -> str:
    is_context = name in CONTEXT_NAMES and name == next(iter(inspect.signature(fn).parameters))
    if not is_context:
        return "str"
    return "Context" if inspect.iscoroutinefunction(fn) else "SyncContext"


def _context_in(hint: Any, contexts: Sequence[type]) -> Any:
    """The class of context that is the hint; None if there is none."""
    return next((context for context in contexts if hint is context or typing.get_origin(hint) is context), None)


def _check_result(fn: Callable[..., Any], hints: dict[str, Any]) -> None:
    """Refuse a return hint of which no value can be stored: only its repr() would be."""
    try:
        unknown = first_class(hints.get("return", Any), is_unstorable)
    except TypeError:  # a hint that msgspec cannot read, such as Never; values of it may be stored all the same
        return
    if unknown is not None:
        raise RegistrationError(
            f"{_full_name(fn)}: the result, {unknown.__module__}.{unknown.__qualname__}, cannot be stored as JSON; "
            "return builtins (a list instead of an iterator), a dataclass, a msgspec.Struct, a TypedDict or a pydantic "
            "model, or write -> None and store it yourself"
        )


def _make_struct(
    fn: Callable[..., Any], names: tuple[str, ...], hints: dict[str, Any], defaults: dict[str, Any]
) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name in names:
        if name in defaults:
            # A factory, so that the same object is used: a mutable default is shared between calls, as in Python.
            factory = lambda default=defaults[name]: default  # noqa: E731
            fields.append((name, hints[name], msgspec.field(default_factory=factory)))
        else:
            fields.append((name, hints[name]))
    try:
        return msgspec.defstruct(fn.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    except TypeError as error:
        raise RegistrationError(f"{_full_name(fn)}: its hints cannot be read from JSON: {error}") from error


def _error_text(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return f"nested deeper than {DEEPEST} levels; send it flatter, or as a reference"
    return str(error) or type(error).__name__


def _count_arguments(count: int) -> str:
    return f"{count} argument" if count == 1 else f"{count} arguments"


def _was_or_were(count: int) -> str:
    return "was" if count == 1 else "were"


def _full_name(fn: Any) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
