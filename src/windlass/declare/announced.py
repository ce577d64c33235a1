"""Announced types: what a worker's program tells about its types, and how a process without the program enqueues them.

A worker writes one document per job type and pipeline at its start. Another process makes a definition from it, which
checks an input by the JSON Schema of the hints; the worker checks it once more, by the hints themselves.
"""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from windlass.config import Settings
from windlass.declare.registry import Definition, Isolation, Registry
from windlass.model.admission import Rule
from windlass.model.job_types import TypeKey, TypeLimit, TypeRow, encode_row
from windlass.payload.profile import encode
from windlass.payload.schema import check_input, object_schema
from windlass.payload.signature import Signature
from windlass.policy.limit import Limit
from windlass.policy.unique import Uniqueness

log = logging.getLogger("windlass")

PLAIN = frozenset({str, int, bool, type(None), list, dict, Any})
"""Hints whose values are equal as JSON exactly when they are equal in Python: 1 and 1.0 are one float."""


# What a program announces


def announced_rows(registry: Registry, settings: Settings) -> list[TypeRow]:
    """The documents of all job types and pipelines. Where both have one name, the name means the type."""
    definitions = {definition.type: definition for definition in registry}
    for name, plan in registry.pipelines.items():
        definitions.setdefault(name, plan.definition)
    rows = [describe(name, definition, settings) for name, definition in definitions.items()]
    return [row for row in rows if _is_storable(row)]


def describe(name: str, definition: Definition, settings: Settings) -> TypeRow:
    """The row of a job type, or of the pipeline whose definition this is."""
    limits = [limit for limit in definition.limits if not callable(limit.key)]
    unique = definition.unique
    return TypeRow(
        name=name,
        type=definition.type,
        queue=definition.queue,
        priority=definition.priority,
        max_attempts=definition.attempts(settings),
        timeout=definition.limit(settings),
        description=_first_line(definition),
        parameters=object_schema(definition.signature.fields()),
        unique=None if unique is None or callable(unique.by) else _key_of(unique),
        limits=tuple(TypeLimit(name=limit.name, key=_argument(limit), scope=limit.scope) for limit in limits),
        phases=() if definition.plan is None else tuple(phase.name for phase in definition.plan.phases),
        local_only=_why_local(definition),
        declared_here=True,
    )


def _first_line(definition: Definition) -> str | None:
    """Of a pipeline: nothing, because the docstring is that of its first phase."""
    text = None if definition.plan is not None else inspect.getdoc(definition.fn)
    return text.strip().partition("\n")[0] or None if text else None


def _argument(limit: Limit) -> str | None:
    return limit.key if isinstance(limit.key, str) else None


def _key_of(unique: Uniqueness) -> TypeKey:
    return TypeKey(
        names=unique.names,
        whole=unique.by is True,
        states=unique.states,
        window=unique.window,
        shared=unique.shared,
        forever=unique.forever,
    )


def _why_local(definition: Definition) -> str | None:
    """Why only its own program can enqueue it; None: any process can."""
    if definition.follow_ups:
        return "it has follow-ups, which only its own program can prepare"
    named: dict[str, str] = {}
    if definition.unique is not None:
        if callable(definition.unique.by):
            return "its unique key is made by a function of its own program"
        named |= dict.fromkeys(definition.unique.names, "its unique key")
    for limit in definition.limits:
        if callable(limit.key):
            return f"the key of its limit {limit.name!r} is made by a function of its own program"
        named |= dict.fromkeys(limit.names, f"the key of its limit {limit.name!r}")
    for field in definition.signature.fields():
        if field.name in named and not _is_exact(field):
            return f"{named[field.name]} is made of the argument {field.name!r}, which only its own program can convert"
    return None


def _is_exact(field: msgspec.structs.FieldInfo) -> bool:
    """Whether a key made of the JSON value is the key that the program makes of its own value.

    Not so for a time or a UUID, which have several spellings. Two texts for one value would be two keys.
    """
    try:
        if not _is_plain(field.type) or field.default_factory is msgspec.NODEFAULT:
            return _is_plain(field.type)
        default = field.default_factory()
        return bool(msgspec.json.decode(msgspec.json.encode(default)) == default)
    except Exception:  # a hint or a default may be an object of any class
        return False


def _is_plain(hint: Any) -> bool:
    if hint in PLAIN:
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return all(type(value) in PLAIN for value in inner)
    if origin is typing.Annotated:
        return _is_plain(inner[0])
    return origin in (list, dict, typing.Union, types.UnionType) and all(map(_is_plain, inner))


def _is_storable(row: TypeRow) -> bool:
    """A schema that no database can hold must not keep a worker from its start."""
    try:
        encode_row(row)
    except Exception as error:  # texts of the user's models may be anything, such as half a surrogate pair
        log.warning("job type %s is not announced: its description is not JSON (%s)", row.name, error)
        return False
    return True


# What a process without the program makes of it


class AnnouncedSignature(Signature):
    """The parameters of an announced type. The schema checks an input, where a `Signature` has hints."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name = name
        self.context = None
        self.names = tuple(parameters.get("properties", {}))
        self.required = frozenset(parameters.get("required", ()))
        self._positional = 0
        self._schema = parameters

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        given = self._assign(args, kwargs)
        text = encode(given)  # first: what is too deep or too large is refused before the check recurses into it
        check_input(given, self._schema, what=f"{self.name}()")
        return text

    def arguments(self, text: str, *, lenient: bool = False) -> dict[str, Any]:
        values, properties = msgspec.json.decode(text), self._schema.get("properties", {})
        return {name: values.get(name, properties[name].get("default")) for name in self.names}


def definition_of(row: TypeRow) -> Definition:
    """A definition for enqueues of an announced type. It runs nothing."""
    unique = row.unique
    return Definition(
        type=row.type,
        fn=_refuse_to_run,
        signature=AnnouncedSignature(row.name, row.parameters),
        isolation=Isolation.COROUTINE,
        queue=row.queue,
        priority=row.priority,
        max_attempts=row.max_attempts,
        unique=None if unique is None else _uniqueness(unique),
        limits=tuple(
            Limit(
                rule=Rule(name=limit.name),
                key=limit.key,
                scope=limit.scope,
                names=() if limit.key is None else (limit.key,),
            )
            for limit in row.limits
        ),
    )


def _uniqueness(key: TypeKey) -> Uniqueness:
    return Uniqueness(
        by=True if key.whole else key.names,
        states=key.states,
        window=key.window,
        shared=key.shared,
        forever=key.forever,
        names=key.names,
    )


def _refuse_to_run() -> NoReturn:
    raise AssertionError("a process without the program enqueues jobs of an announced type and runs none")
