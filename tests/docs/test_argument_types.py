"""Every row of the table "Argument types" in docs/reference.md: enqueued, stored, run, and returned, on both stores."""

from __future__ import annotations

import enum
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from servers import url_of
from windlass import JobHandle, Windlass
from windlass.errors import InvalidInput, RegistrationError
from windlass.testing import Harness, harness

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
KEY = UUID("9a22a9a6-0f09-4282-b359-d91a8e9fc5c8")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(NamedTuple):
    left: int
    right: str


class Film(TypedDict):
    title: str
    year: NotRequired[int]


class Line(msgspec.Struct):
    points: list[Point]


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    age: int


class Untagged(msgspec.Struct):
    age: int


class Person(pydantic.BaseModel):
    name: str
    born: datetime

    @pydantic.field_validator("name")
    @classmethod
    def is_a_name(cls, name: str) -> str:
        if not name.istitle():
            raise ValueError("a name begins with a capital")
        return name


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Kind(enum.StrEnum):
    PDF = "pdf"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Plain:
    """A class that JSON cannot hold."""


SAME: Any = object()  # the handler gets what was given

ROWS: dict[str, list[tuple[Any, Any, Any, Any]]] = {
    # the row's hints: (hint, given, stored, what the handler gets)
    "`int`, `bool`, `str`, `None`": [(int, 5, 5, SAME), (bool, True, True, SAME), (str, "é", "é", SAME),
                                     (None, None, None, SAME)],
    "`float`": [(float, 0.1, 0.1, SAME), (float, 1, 1, 1.0)],
    "`bytes`, `bytearray`": [(bytes, b"\0\xff", "AP8=", SAME), (bytearray, bytearray(b"a"), "YQ==", SAME)],
    "`Decimal`": [(Decimal, Decimal("0.10"), "0.10", SAME)],
    "`UUID`": [(UUID, KEY, str(KEY), SAME)],
    "`datetime`": [
        (datetime, NOON, "2026-07-01T12:00:00Z", SAME),
        (datetime, NOON.astimezone(ZoneInfo("Europe/Berlin")), "2026-07-01T14:00:00+02:00",
         NOON.astimezone(timezone(timedelta(hours=2)))),
        (datetime, datetime(2026, 7, 1), "2026-07-01T00:00:00", SAME),  # noqa: DTZ001
    ],
    "`date`, `time`": [(date, NOON.date(), "2026-07-01", SAME), (time, time(1, 2), "01:02:00", SAME)],
    "`timedelta`": [(timedelta, timedelta(days=400, microseconds=1), "P400DT0.000001S", SAME)],
    "`Enum`, `StrEnum`, `IntEnum`, `Flag`": [
        (Colour, Colour.RED, "red", SAME), (Colour, "red", "red", Colour.RED), (Kind, Kind.PDF, "pdf", SAME),
        (Size, Size.LARGE, 3, SAME), (Right, Right.READ | Right.WRITE, 3, SAME),
    ],
    '`Literal["a", "b"]`': [(Literal["a", "b"], "a", "a", SAME)],
    "`list[int]`, `Sequence[int]`": [(list[int], [1], [1], SAME), (Sequence[int], (1,), [1], [1])],
    "`tuple[int, str]`, `tuple[int, ...]`": [(tuple[int, str], (1, "a"), [1, "a"], SAME),
                                             (tuple[int, ...], (1, 2), [1, 2], SAME)],
    "`set[int]`, `frozenset[int]`": [(set[int], {1}, [1], SAME), (frozenset[int], frozenset({1}), [1], SAME)],
    "`dict[str, int]`, `Mapping[str, int]`": [(dict[str, int], {"a": 1}, {"a": 1}, SAME),
                                              (Mapping[str, int], {"a": 1}, {"a": 1}, SAME)],
    "`dict[int, str]`, `dict[UUID, str]`, `dict[date, str]`": [
        (dict[int, str], {1: "a"}, {"1": "a"}, SAME), (dict[UUID, str], {KEY: "a"}, {str(KEY): "a"}, SAME),
        (dict[date, str], {NOON.date(): "a"}, {"2026-07-01": "a"}, SAME),
    ],
    "a dataclass": [(Point, Point(1), {"x": 1, "y": 0}, SAME), (Point, {"x": 1}, {"x": 1}, Point(1))],
    "a `NamedTuple`": [(Pair, Pair(1, "a"), [1, "a"], SAME)],
    "a `TypedDict`": [(Film, {"title": "M"}, {"title": "M"}, SAME)],
    "a `msgspec.Struct`": [(Line, Line([Point(1)]), {"points": [{"x": 1, "y": 0}]}, SAME)],
    "a pydantic model": [
        (Person, Person(name="Ada", born=NOON), {"name": "Ada", "born": "2026-07-01T12:00:00Z"}, SAME),
        (list[Person], [], [], SAME),
    ],
    "`int | None`, `int | str`": [(int | None, None, None, SAME), (int | str, "a", "a", SAME),
                                  (Person | None, None, None, SAME), (UUID | int, 3, 3, SAME)],
    "`Cat | Dog`, each a `msgspec.Struct` with `tag=True`": [(Cat | Dog, Dog(2), {"type": "Dog", "age": 2}, SAME)],
    "`Annotated[int, msgspec.Meta(ge=1)]`": [(Annotated[int, msgspec.Meta(ge=1)], 1, 1, SAME)],
    "`Any`, and a bare `list` or `dict`": [
        (Any, NOON, "2026-07-01T12:00:00Z", "2026-07-01T12:00:00Z"), (Any, {"a": (1,)}, {"a": [1]}, {"a": [1]}),
        (list, [{1}], [[1]], [[1]]), (dict, {"p": Point(1)}, {"p": {"x": 1, "y": 0}}, {"p": {"x": 1, "y": 0}}),
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def windlass(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with harness(Windlass(), None if request.param == "sqlite" else url_of("postgres")) as opened:
        yield opened


@pytest.mark.parametrize("row", ROWS)
def test_the_handler_gets_values_of_its_hints(windlass: Harness, row: str) -> None:
    for place, (hint, given, stored, expected) in enumerate(ROWS[row]):
        arrived: list[Any] = []
        job = enqueue(windlass.app, hint, given, arrived.append, name=f"{row} {place}")
        windlass.drain(raise_errors=True)

        wanted = given if expected is SAME else expected
        assert json.loads(job.record().input) == {"value": stored}
        assert arrived == [wanted]
        assert type(arrived[0]) is type(wanted)
        assert arrived[0] == job.result()
        if isinstance(wanted, datetime):  # equal also in another zone
            assert str(arrived[0]) == str(wanted)


def test_the_table_has_the_rows_that_are_tried() -> None:
    table = PAGE.read_text(encoding="utf-8").split("### Argument types")[1].split("###")[0]
    rows = re.findall(r"^\| ((?:[^|\\]|\\.)+) \| .* \| .* \|$", table, re.MULTILINE)

    assert [row.replace("\\|", "|") for row in rows[1:]] == list(ROWS)  # rows[0] is the head


@pytest.mark.parametrize(
    ("hint", "given", "path"),
    [
        (int, True, "$.value"),
        (int, "5", "$.value"),
        (int, 5.0, "$.value"),
        (str, 5, "$.value"),
        (UUID, "no id", "$.value"),
        (Literal["a", "b"], "c", "$.value"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "$.value"),
        (Line, {"points": [{"x": 1}, {"x": "1"}]}, "$.value.points[1].x"),
        (Person, {"name": "ada", "born": "2026-07-01T12:00:00Z"}, "$.value"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_the_enqueue(hint: Any, given: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        enqueue(Windlass(), hint, given)

    assert caught.value.path == path


@pytest.mark.parametrize(
    "hint",
    [object, Path, complex, deque[int], Plain, datetime | str, Cat | Untagged, Person | int],
    ids=str,
)
def test_a_hint_that_cannot_be_checked_is_refused_at_the_declaration(hint: Any) -> None:
    with pytest.raises(RegistrationError):
        enqueue(Windlass(), hint, None)


def enqueue(
    app: Windlass, hint: Any, given: Any, seen: Callable[[Any], object] = id, *, name: str = "echo"
) -> JobHandle[Any]:
    """A job of a new type whose one argument, and whose result, has this hint."""

    def echo(value: Any) -> Any:
        seen(value)
        return value

    echo.__annotations__ = {"value": hint, "return": hint}
    job: JobHandle[Any] = app.job(type=name)(echo).enqueue(given)
    return job
