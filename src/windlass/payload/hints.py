"""Type hints as a schema: which classes of a hint JSON can carry, and how stored text is read by a hint."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any

import msgspec

UNIONS = (typing.Union, UnionType)


def stored_hint(hint: Any) -> Any:
    """A return hint without the directives in it: `int | Snooze` is stored as an int, and a returned Snooze is not."""
    members = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
    stored = [member for member in members if not getattr(member, "_is_directive", False)]
    if len(stored) == len(members):
        return hint
    return typing.Union[tuple(stored)] if stored else None  # noqa: UP007 (made of a list)


def result_decoder(hints: dict[str, Any]) -> msgspec.json.Decoder[Any] | None:
    """The decoder of a function's result by its return hint; None if there is no hint, or JSON cannot carry it."""
    if "return" not in hints or unknown_class(hints["return"]) is not None:
        return None
    return msgspec.json.Decoder(hints["return"], dec_hook=load_unknown)


def unknown_class(hint: Any) -> str | None:
    """The first class in `hint` that cannot be turned into JSON and back; None if there is none."""
    try:
        found = first_class(hint, lambda kind: True)
    except TypeError as error:
        return str(error)
    return None if found is None else f"{found.__module__}.{found.__qualname__}"


def first_class(hint: Any, wanted: Callable[[type], bool]) -> type | None:
    """The first wanted class in `hint` that msgspec and pydantic do not know; raises TypeError if it cannot be read."""
    todo, seen = [msgspec.inspect.type_info(hint)], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if (
            isinstance(node, msgspec.inspect.CustomType)
            and not hasattr(node.cls, "model_validate")
            and wanted(node.cls)
        ):
            return node.cls
        for field in getattr(node, "__struct_fields__", ()):
            inner = getattr(node, field)
            if isinstance(inner, msgspec.inspect.Type):
                todo.append(inner)
            elif isinstance(inner, tuple):
                todo.extend(
                    item.type if isinstance(item, msgspec.inspect.Field) else item
                    for item in inner
                    if isinstance(item, (msgspec.inspect.Type, msgspec.inspect.Field))
                )
    return None


def is_unstorable(kind: type) -> bool:
    """Whether no value of this class is JSON: it is no subclass of a builtin, and no builtin is one of its kind."""
    builtin = (str, int, float, dict, list, tuple)
    try:
        return not issubclass(kind, builtin) and not any(issubclass(each, kind) for each in builtin)
    except TypeError:  # a protocol that cannot be asked
        return False


def plain_classes(hint: Any) -> tuple[type, ...]:
    """The classes in a hint such as `int` or `Order | None`; not those in `list[int]` or a TypedDict."""
    members = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
    if Any in members:
        return (object,)
    return tuple(
        member
        for member in members
        if isinstance(member, type) and typing.get_origin(member) is None and not typing.is_typeddict(member)
    )


def has_other_keys(hint: Any) -> bool:
    """Whether `hint` asks for a dict with keys other than text: such keys are stored as text and converted back."""
    args = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping) and args and args[0] not in (str, Any):
        return True
    return any(has_other_keys(arg) for arg in args)


def load_unknown(kind: Any, value: object) -> object:
    """msgspec's hook for types that it does not know: load pydantic models by their own method."""
    if hasattr(kind, "model_validate"):
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise ValueError(_first_complaint(error)) from None
    raise TypeError(f"a {kind} cannot be read from JSON")


def _first_complaint(error: ValueError) -> str:
    """pydantic's first error on one line, without the link to its manual."""
    try:
        first = error.errors()[0]  # type: ignore[attr-defined]
        place = ".".join(str(step) for step in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    except Exception:
        return str(error)
