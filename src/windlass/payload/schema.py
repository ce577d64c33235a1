"""JSON Schemas: made of a handler's hints for an announcement, and checked where the program is not at hand.

The check knows the keywords that msgspec and pydantic write for hints, and ignores all others: the worker checks the
input once more, by the hints themselves.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass.errors import InvalidInput
from windlass.payload.profile import step_to
from windlass.payload.sanitise import dump_unknown

DEFINITIONS = "#/$defs/"
MOST_VISITS = 500_000  # of values in one check: alternatives that contain each other double the work with each level
MOST_REFERENCES = 100  # from one schema to another at the same value
KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "object": ("an object", (dict,)),
    "array": ("an array", (list,)),
    "string": ("a string", (str,)),
    "boolean": ("a boolean", (bool,)),
    "integer": ("an integer", (int,)),  # not 5.0: msgspec refuses it, too
    "number": ("a number", (float, int)),
    "null": ("null", (type(None),)),
}
"""The words and the classes of each type of a schema. Classes are compared exactly: True is no integer."""
BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
    "exclusiveMaximum": ("less than", operator.lt),
}
LENGTHS: dict[type, tuple[str, str, str]] = {
    str: ("characters", "minLength", "maxLength"),
    list: ("items", "minItems", "maxItems"),
    dict: ("members", "minProperties", "maxProperties"),
}

FORMATS: dict[str, type] = {"date-time": datetime, "date": date, "time": time, "uuid": UUID, "duration": timedelta}
LISTED = 10  # values of an enum that an error names

encoder = msgspec.json.Encoder(enc_hook=dump_unknown)


# Making one


def object_schema(fields: Sequence[msgspec.structs.FieldInfo]) -> dict[str, Any]:
    """The schema of an input: an object with these fields, and no others."""
    components: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for field in fields:
        schema = value_schema(field.type, components)
        if field.default_factory is not msgspec.NODEFAULT:  # `Signature` makes no field with a plain default
            schema = {**schema, **_default(field.default_factory())}
        properties[field.name] = schema
    schema = {
        "type": "object",
        "properties": properties,
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }
    return schema | ({"$defs": components} if components else {})


def value_schema(hint: Any, components: dict[str, Any]) -> dict[str, Any]:
    """The schema of one value; {} for a hint that has none. What the schema refers to is added to `components`."""
    models: dict[str, Any] = {}
    try:
        (schema,), found = msgspec.json.schema_components(
            [hint], schema_hook=lambda kind: _model_schema(kind, models), ref_template=DEFINITIONS + "{name}"
        )
        plain: dict[str, Any] = msgspec.json.decode(encoder.encode(schema))
        components.update(msgspec.json.decode(encoder.encode({**found, **models})))
    except Exception:  # the schemas of models are the user's code and may raise anything: the worker checks the value
        return {}
    return plain


def _model_schema(kind: Any, models: dict[str, Any]) -> dict[str, Any]:
    """The schema of a pydantic model. Its definitions get its name as a prefix: two modules may have one name twice."""
    prefix = f"{kind.__module__}.{kind.__qualname__}"
    schema: dict[str, Any] = kind.model_json_schema(ref_template=f"{DEFINITIONS}{prefix}.{{model}}")
    models.update({f"{prefix}.{name}": inner for name, inner in schema.pop("$defs", {}).items()})
    return schema


def _default(value: object) -> dict[str, Any]:
    """The default of a parameter, where JSON can hold it."""
    try:
        return {"default": msgspec.json.decode(encoder.encode(value))}
    except Exception:  # hooks are the user's code and may raise anything
        return {}


# Checking by one


def check_input(input: dict[str, Any], schema: dict[str, Any], *, what: str) -> None:
    """Refuse an input that does not fit the schema; `error.path` names the first place that does not."""
    try:
        _Check(schema).value(input, schema)
    except _Misfit as problem:
        path = "$" + "".join(reversed(problem.steps))
        raise InvalidInput(f"{what}: {path}: {problem}", path=path) from None
    except (_TooManyVisits, RecursionError):
        return  # the worker checks it


class _Misfit(Exception):
    """A value that does not fit. Each level adds its step to the path."""

    def __init__(self, message: str, *steps: str) -> None:
        super().__init__(message)
        self.steps = list(steps)


class _TooManyVisits(Exception):
    pass


class _Check:
    """One check of a value by a schema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._definitions = root.get("$defs", {})
        self._visits = 0

    def value(self, value: object, schema: Any) -> None:
        self._visits += 1
        if self._visits > MOST_VISITS:
            raise _TooManyVisits
        schema = self._resolve(schema)
        if schema is False:
            raise _Misfit("there is no value allowed here")
        if not isinstance(schema, dict):
            return
        self._kind(value, schema)
        self._choice(value, schema)
        if isinstance(value, dict):
            self._members(value, schema)
        elif isinstance(value, list):
            self._items(value, schema)
        _check_size(value, schema)

    def _resolve(self, schema: Any) -> Any:
        for _ in range(MOST_REFERENCES):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self._definitions.get(str(schema["$ref"]).removeprefix(DEFINITIONS), True)
        raise _TooManyVisits

    def _kind(self, value: object, schema: dict[str, Any]) -> None:
        given = schema.get("type", [])
        kinds = [given] if isinstance(given, str) else given
        if schema.get("format") == "decimal":
            kinds = [*kinds, "number"]  # msgspec reads a Decimal from either
        known = [KINDS[kind] for kind in kinds if kind in KINDS]
        if known and not any(type(value) in classes for _, classes in known):
            raise _Misfit(f"expected {' or '.join(word for word, _ in known)}, got {_describe(value)}")

    def _choice(self, value: object, schema: dict[str, Any]) -> None:
        allowed = [schema["const"]] if "const" in schema else schema.get("enum")
        if allowed is not None and not any(type(value) is type(each) and value == each for each in allowed):
            meant = difflib.get_close_matches(str(value), map(str, allowed), n=1)
            listed = ", ".join(repr(each) for each in allowed[:LISTED])
            raise _Misfit(f"expected one of {listed}" + (f"; did you mean {meant[0]!r}?" if meant else ""))
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            self._any_of(value, options)
        for each in schema.get("allOf", ()):
            self.value(value, each)

    def _any_of(self, value: object, options: list[Any]) -> None:
        problems: list[_Misfit] = []
        for option in options:
            try:
                return self.value(value, option)
            except _Misfit as problem:
                problems.append(problem)
        # The option that fits furthest is the one that was meant.
        deepest = max(problems, key=lambda problem: len(problem.steps))
        if deepest.steps or len(problems) == 1:
            raise deepest
        raise _Misfit("; or ".join(dict.fromkeys(str(problem) for problem in problems)))

    def _members(self, value: dict[str, Any], schema: dict[str, Any]) -> None:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                raise _Misfit("it is required and missing", step_to(name))
        for name, member in value.items():
            if name not in properties and others is False:
                meant = difflib.get_close_matches(str(name), properties, n=1)
                hint = f"; did you mean {meant[0]!r}?" if meant else f"; there are: {', '.join(properties) or 'none'}"
                raise _Misfit(f"there is no parameter of this name{hint}", step_to(name))
            self._inner(member, properties.get(name, others), step_to(name))

    def _items(self, value: list[Any], schema: dict[str, Any]) -> None:
        first, others = schema.get("prefixItems", ()), schema.get("items", True)
        for place, item in enumerate(value):
            self._inner(item, first[place] if place < len(first) else others, f"[{place}]")

    def _inner(self, value: object, schema: Any, step: str) -> None:
        try:
            self.value(value, schema)
        except _Misfit as problem:
            problem.steps.append(step)
            raise


def _check_size(value: Any, schema: dict[str, Any]) -> None:
    """The bounds of a number, the length of a text or container, and the form of a text."""
    if type(value) in (int, float):
        for keyword, (words, fits) in BOUNDS.items():
            if keyword in schema and not fits(value, schema[keyword]):
                raise _Misfit(f"expected {words} {schema[keyword]}, got {value}")
    elif type(value) in LENGTHS:
        unit, least, most = LENGTHS[type(value)]
        if not schema.get(least, 0) <= len(value) <= schema.get(most, len(value)):
            given = [
                (words, schema[keyword])
                for words, keyword in (("at least", least), ("at most", most))
                if keyword in schema
            ]
            bounds = [f"{words} {bound}" for words, bound in given]
            raise _Misfit(f"expected {' and '.join(bounds)} {unit}, got {len(value)}")
    if isinstance(value, str):
        if "pattern" in schema and not _matches(schema["pattern"], value):
            raise _Misfit(f"expected a text that matches {schema['pattern']!r}")
        kind = FORMATS.get(schema.get("format", ""))
        if kind is not None:
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise _Misfit(f"expected a text of format {schema['format']}: {error}") from None


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # a schema's expressions are those of JavaScript: the worker checks the value
        return True


def _describe(value: object) -> str:
    return next((word for word, classes in KINDS.values() if type(value) in classes), type(value).__name__)
