"""JSON Schemas of hints: what the hints accept, the schema accepts; what it refuses, it refuses with the place."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from windlass.errors import InvalidInput
from windlass.payload.schema import check_input, object_schema
from windlass.payload.signature import Signature


class Kind(enum.StrEnum):
    PDF = "pdf"
    PNG = "png"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Address:
    city: str
    number: int = 1


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    age: int


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    fast: bool


class Model(pydantic.BaseModel):
    to: str
    inner: Inner | None = None


class Inner(pydantic.BaseModel):
    count: int


def schema_of(hint: Any) -> tuple[Signature, dict[str, Any]]:
    def handler(value: Any) -> None: ...

    handler.__annotations__ = {"value": hint}
    signature = Signature.of(handler)
    return signature, object_schema(signature.fields())


FITTING: list[tuple[Any, list[Any]]] = [
    (int, [0, -5, 2**62]),
    (float, [1, 1.5]),
    (bool, [True]),
    (str, ["", "ü"]),
    (bytes, ["YWJj"]),
    (Decimal, ["0.10", 5]),
    (UUID, ["0198f0e0-0000-7000-8000-000000000000"]),
    (datetime, ["2026-01-31T09:30:00Z", "2026-01-31T09:30:00"]),
    (date, ["2026-01-31"]),
    (time, ["09:30:00"]),
    (timedelta, ["PT5M"]),
    (Kind, ["pdf"]),
    (Level, [1]),
    (Literal["a", 1], ["a", 1]),
    (list[int], [[], [1, 2]]),
    (tuple[int, str], [[1, "a"]]),
    (tuple[int, ...], [[1, 2, 3]]),
    (set[int], [[1, 2]]),
    (dict[str, int], [{"a": 1}]),
    (dict[int, str], [{"1": "a"}]),
    (Address, [{"city": "x"}, {"city": "x", "number": 2}]),
    (Cat | Dog, [{"type": "Cat", "name": "x"}, {"type": "Dog", "age": 1}]),
    (Tree, [{"value": 1, "children": [{"value": 2, "children": []}]}]),
    (Point, [[1], [1, 2]]),
    (Options, [{}, {"fast": True}]),
    (Model, [{"to": "a"}, {"to": "a", "inner": {"count": 1}}]),
    (int | None, [None, 1]),
    (int | str, ["a", 1]),
    (Annotated[int, msgspec.Meta(ge=1, lt=5)], [1, 4]),
    (Annotated[str, msgspec.Meta(max_length=3, pattern="^a")], ["abc"]),
    (Any, [None, {"a": [1]}]),
    (list, [[1, "a"]]),
]


@pytest.mark.parametrize(("hint", "values"), FITTING, ids=[str(hint) for hint, _ in FITTING])
def test_what_the_hints_accept_the_schema_accepts(hint: Any, values: list[Any]) -> None:
    signature, schema = schema_of(hint)

    for value in values:
        signature.bind((), {"value": value})
        check_input({"value": value}, schema, what="handler()")


WRONG: list[tuple[Any, Any, str]] = [
    (int, "5", "$.value"),
    (int, True, "$.value"),
    (int, 1.5, "$.value"),
    (str, 5, "$.value"),
    (bool, 1, "$.value"),
    (UUID, "x", "$.value"),
    (date, "tomorrow", "$.value"),
    (Kind, "doc", "$.value"),
    (Literal["a", 1], "b", "$.value"),
    (list[int], [1, "a"], "$.value[1]"),
    (tuple[int, str], [1, 2], "$.value[1]"),
    (dict[str, int], {"two words": "a"}, "$.value['two words']"),
    (Address, {"number": 2}, "$.value.city"),
    (Address, {"city": 5}, "$.value.city"),
    (
        Tree,
        {"value": 1, "children": [{"value": 2, "children": [{"value": "x"}]}]},
        "$.value.children[0].children[0].value",
    ),
    (Model, {"to": "a", "inner": {"count": "x"}}, "$.value.inner.count"),
    (int | None, "a", "$.value"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "$.value"),
    (Annotated[str, msgspec.Meta(max_length=3)], "abcd", "$.value"),
    (Annotated[str, msgspec.Meta(pattern="^a")], "b", "$.value"),
]


@pytest.mark.parametrize(("hint", "value", "path"), WRONG, ids=[f"{hint} {value}" for hint, value, _ in WRONG])
def test_what_does_not_fit_is_refused_with_its_place(hint: Any, value: Any, path: str) -> None:
    signature, schema = schema_of(hint)

    with pytest.raises(InvalidInput):
        signature.bind((), {"value": value})
    with pytest.raises(InvalidInput) as refused:
        check_input({"value": value}, schema, what="handler()")

    assert refused.value.path == path


def test_required_arguments_and_defaults_are_in_the_schema() -> None:
    def send(to: str, copies: int = 1, at: datetime | None = None, kind: Kind = Kind.PDF) -> None: ...

    schema = object_schema(Signature.of(send).fields())

    assert schema["required"] == ["to"]
    assert schema["additionalProperties"] is False
    defaults = {name: each.get("default", "none") for name, each in schema["properties"].items()}
    assert defaults == {"to": "none", "copies": 1, "at": None, "kind": "pdf"}


def test_schemas_that_refer_to_themselves_end() -> None:
    schema = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}

    check_input({"value": 1}, schema, what="handler()")
