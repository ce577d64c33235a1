"""Input is refused with its path, results are repaired, and arguments fit their function's hints."""

from __future__ import annotations

import enum
import functools
import json
import math
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Never, TypedDict
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidInput, RegistrationError
from windlass.payload.profile import LARGEST, check, encode
from windlass.payload.sanitise import describe, sanitise_text, store_result
from windlass.payload.signature import Signature

if TYPE_CHECKING:
    from decimal import Decimal


class Context:
    pass


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int

    def send(self, to: str) -> None: ...


class Person(pydantic.BaseModel):
    name: str
    born: datetime


def sanitise(value: object) -> str:
    return store_result(value)[0]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# The profile


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        ({"a": ["x", "b\0c"]}, "$.a[1]", "U+0000"),
        ({"a\0": 1}, "$", "U+0000"),
        ({"a b": "\ud800"}, "$['a b']", "surrogate"),
        ({"k\udfff": 1}, "$", "surrogate"),
        ([math.nan], "$[0]", "nan"),
        ([0, -math.inf], "$[1]", "inf"),
        ({"n": 2**63}, "$.n", "64 bits"),
        ({"n": -(2**63) - 1}, "$.n", "64 bits"),
        ({1: "a"}, "$", "key 1"),
        ({"o": object()}, "$.o", "not JSON"),
        (nested(65), "$" + "[0]" * 64, "64 levels"),
        (nested(100_000), "$" + "[0]" * 64, "64 levels"),
    ],
)
def test_a_value_that_no_store_can_hold_is_refused_with_its_path(value: object, path: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(value)

    assert caught.value.path == path
    assert problem in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("value", [nested(64), 2**63 - 1, -(2**63), "é😀\r\n\x1b", {"": None}, 1e308])
def test_a_value_that_just_fits_stays_as_it_is(value: object) -> None:
    assert json.loads(encode(value)) == value


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(InvalidInput, match="64 levels"):
        check(loop)


def test_too_large_is_refused_with_the_size_the_limit_and_a_way_out() -> None:
    assert encode("x" * (LARGEST - 2))

    with pytest.raises(InvalidInput, match=r"262,145 bytes.*262,144 is the most.*reference"):
        encode("x" * (LARGEST - 1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
    max_leaves=20,
)


@given(json_values)
def test_a_value_that_is_refused_as_input_is_repaired_as_result(value: object) -> None:
    repaired = sanitise(value)

    check(json.loads(repaired))
    try:
        accepted = encode(value)
    except InvalidInput:
        return
    assert repaired == accepted


# Results and errors


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\0b\ud800c\r\n", "a\ufffdb\ufffdc\r\n"),
        ([math.nan, math.inf, 1.5], [None, None, 1.5]),
        ({"n": 2**64}, {"n": str(2**64)}),
        ([10**5000], ["<an integer of 16,610 bits>"]),
        ({1: "a", (2, 3): "b"}, {"1": "a", "(2, 3)": "b"}),
        ([Silent()], ["<Silent whose repr() raised RuntimeError>"]),
        ([Point(1, 2), Silent], [{"x": 1, "y": 2}, repr(Silent)]),
        (
            Person(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC)),
            {"name": "Ada", "born": "1815-12-10T00:00:00Z"},
        ),
    ],
)
def test_a_result_is_repaired_if_necessary(value: object, expected: object) -> None:
    assert json.loads(sanitise(value)) == expected


def test_a_result_that_is_too_deep_or_contains_itself_is_cut_visibly() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    halves: list[Any] = [1]
    for _ in range(40):
        halves = [halves, halves]

    for value in (nested(100_000), loop, halves):
        text = sanitise(value)

        check(json.loads(text))
        assert "cut]" in text
        assert len(text.encode()) <= LARGEST


@pytest.mark.parametrize("character", ["x", "é", "\0", '"', "\x1b", "😀"])
def test_a_result_that_is_too_large_is_cut_with_the_size_of_the_cut(character: str) -> None:
    text = sanitise({"kept": 1, "large": character * 1_000_000})

    assert len(text.encode()) <= LARGEST
    assert "cut]" in text
    json.loads(text)


def test_a_large_text_leaves_its_neighbours_alone() -> None:
    result = json.loads(sanitise({"kept": 1, "large": "x" * 1_000_000}))

    assert result["kept"] == 1
    assert result["large"].endswith("x… [934,464 characters cut]")


def test_text_for_people_has_no_control_characters_but_tab_and_newline() -> None:
    assert sanitise_text("a\tb\r\nc\x1b[31m\0\x7f\x9b\ud800é", 100) == "a\tb\nc\ufffd[31m\ufffd\ufffd\ufffd\ufffdé"


@pytest.mark.parametrize("character", ["x", "é", "😀", "\0"])
def test_text_is_cut_by_bytes_with_the_size_of_the_cut(character: str) -> None:
    text = sanitise_text(character * 10_000, 1000)

    kept = len(text.partition("…")[0])
    assert len(text.encode()) <= 1000
    assert text.endswith(f"… [{10_000 - kept:,} characters cut]")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_exception_is_described_with_its_type_message_and_frames() -> None:
    class OddError(Exception):
        pass

    kind, message, trace = describe(raised(ValueError("bad\0news")))

    assert (kind, message) == ("ValueError", "bad\ufffdnews")
    assert "in raised" in trace
    assert describe(OddError())[0].endswith("OddError")


def test_an_exception_of_100_megabytes_is_copied_once_at_most_and_keeps_its_frames() -> None:
    error = raised(ValueError("x" * 100_000_000))
    tracemalloc.start()

    try:
        _, message, trace = describe(error)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 150_000_000
    assert len(message.encode()) <= 8 * 1024
    assert len(trace.encode()) <= 32 * 1024
    assert "in raised" in trace


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    def link(depth: int) -> None:
        try:
            if depth:
                link(depth - 1)
            raise KeyError(depth)
        except (KeyError, ValueError) as error:
            raise ValueError(f"link {depth}") from error

    try:
        link(200)
    except ValueError as error:
        _, _, trace = describe(error)

    assert len(trace.encode()) <= 32 * 1024
    assert "characters cut]" in trace
    assert trace.startswith("Traceback")
    assert trace.rstrip().endswith("ValueError: link 200")


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_cannot_be_printed_is_described_all_the_same(failure: type[BaseException]) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise failure("no")

        __repr__ = __str__

    class Endless(dict[str, float]):
        def items(self) -> Never:
            raise failure("no")

    kind, message, trace = describe(raised(MuteError()))

    assert kind.endswith("MuteError")
    assert f"whose str() raised {failure.__name__}" in message
    assert sanitise(MuteError()) == sanitise(f"<{MuteError.__qualname__} whose repr() raised {failure.__name__}>")
    assert sanitise([Endless(a=1.0), Endless(a=math.nan)]) == "\"[{'a': 1.0}, {'a': nan}]\""
    assert "MuteError" in trace


# Binding


def add(a: int, b: int) -> int:
    return a + b


def test_arguments_are_bound_by_name_and_come_back_for_the_call() -> None:
    def send(to: str, *, copies: int = 1, tags: list[str]) -> None: ...

    signature = Signature.of(send)

    text = signature.bind(("ada",), {"tags": ["x"]})

    assert json.loads(text) == {"to": "ada", "tags": ["x"]}
    assert signature.unbind(text) == (["ada"], {"copies": 1, "tags": ["x"]})


def test_rich_types_are_restored() -> None:
    def handle(
        key: UUID, at: datetime, point: Point, person: Person, colour: Colour, blob: bytes,
        weights: dict[int, float], maybe: Person | None, anything: Any,
    ) -> None: ...  # fmt: skip

    born = datetime(1815, 12, 10, tzinfo=UTC)
    given = [
        uuid4(),
        born,
        Point(1, 2),
        Person(name="Ada", born=born),
        Colour.RED,
        b"\0",
        {1: 0.5},
        None,
        {"a": [1]},
    ]
    signature = Signature.of(handle, localns=locals())

    args, kwargs = signature.unbind(signature.bind(given, {}))

    assert args == given
    assert kwargs == {}


def test_subclasses_of_builtins_are_stored_as_what_they_are() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "something else"

    def greet(name: str) -> None: ...

    assert Signature.of(greet).bind((Name("ada"),), {}) == '{"name":"ada"}'


@pytest.mark.parametrize(
    ("args", "kwargs", "message", "path"),
    [
        ((1,), {}, "add() missing required argument 'b'", "$.b"),
        ((), {}, "add() missing required arguments 'a' and 'b'", "$.a"),
        ((1, 2, 3), {}, "add() takes 2 arguments but 3 were given", "$"),
        ((1,), {"c": 2}, "add() got an unexpected keyword argument 'c'; did you mean 'b'?", "$.c"),
        ((1, 2), {"c": 2}, "add() got an unexpected keyword argument 'c'", "$.c"),
        (
            (1, 2),
            {"delay": "5s"},
            "add() got an unexpected keyword argument 'delay'; options come before the enqueue: "
            'add.options(delay="10s").enqueue(…)',
            "$.delay",
        ),
        (
            (1, 2),
            {"countdown": 5},
            "add() got an unexpected keyword argument 'countdown'; options come before the enqueue: "
            'add.options(delay="10s").enqueue(…)',
            "$.countdown",
        ),
        ((1, 2), {"a": 2}, "add() got multiple values for argument 'a'", "$.a"),
        ((1, "2"), {}, "add(): $.b: Expected `int`, got `str`", "$.b"),
        ((1, True), {}, "add(): $.b: Expected `int`, got `bool`", "$.b"),
        ((1, 2**63), {}, "$.b is an integer beyond 64 bits; send it as text", "$.b"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_as_python_would(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str, path: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Signature.of(add).bind(args, kwargs)

    assert str(caught.value) == message
    assert caught.value.path == path


def test_the_path_leads_into_the_argument() -> None:
    def plot(points: list[Point], people: dict[str, Person]) -> None: ...

    signature = Signature.of(plot)

    with pytest.raises(InvalidInput) as caught:
        signature.bind(([Point(1, 2), {"x": 1, "y": "2"}], {}), {})
    assert caught.value.path == "$.points[1].y"

    with pytest.raises(InvalidInput, match=r"people.*name: Input should be a valid string") as caught:
        signature.bind(([], {"ada": {"name": 1, "born": "1815-12-10T00:00:00Z"}}), {})
    assert "\n" not in str(caught.value)

    with pytest.raises(InvalidInput, match="cannot be sent as JSON") as caught:
        signature.bind(([object()], {}), {})
    assert caught.value.path == "$.points"


def test_hostile_arguments_are_refused_before_anything_recurses() -> None:
    def take(items: list[Any]) -> None: ...

    loop: list[Any] = []
    loop += [loop, loop]
    halves: list[Any] = [1]
    for _ in range(40):
        halves = [halves, halves]

    for value in (nested(100_000), loop, halves, nested(64), {1: 2}):
        with pytest.raises(InvalidInput):
            Signature.of(take).bind((value,), {})
    assert Signature.of(take).bind((nested(63),), {})


def test_a_key_that_is_not_text_is_refused_unless_the_hint_asks_for_it() -> None:
    def loose(table: dict[str, int]) -> None: ...
    def typed(table: dict[int, int]) -> None: ...

    with pytest.raises(InvalidInput):
        Signature.of(loose).bind(({1: 2},), {})
    signature = Signature.of(typed)
    assert signature.unbind(signature.bind(({1: 2},), {})) == ([{1: 2}], {})


def test_a_mutable_default_is_the_same_object_as_in_python() -> None:
    shared: list[int] = []

    def collect(items: list[int] = shared) -> None: ...

    signature = Signature.of(collect)

    assert signature.bind((), {}) == "{}"
    assert signature.unbind("{}")[0][0] is shared


@pytest.mark.parametrize(
    ("stored", "path"),
    [('{"a":1}', "$"), ('{"a":1,"b":"x"}', "$.b"), ('{"a":1,"b":2,"c":3}', "$"), ("[1,2]", "$"), ("{", "$")],
)
def test_stored_input_that_no_longer_fits_is_refused_with_its_path(stored: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Signature.of(add).unbind(stored)

    assert caught.value.path == path
    assert str(caught.value).startswith("add(): ")


def test_stored_input_that_is_too_deep_is_refused() -> None:
    def take(items: list[Any]) -> None: ...

    with pytest.raises(InvalidInput, match="64 levels"):
        Signature.of(take).unbind('{"items":' + "[" * 100_000 + "]" * 100_000 + "}")


# Decoded results


def test_a_result_comes_back_by_the_return_hint_and_as_plain_json_otherwise() -> None:
    def meet() -> Person: ...  # type: ignore[empty-body]
    def odd() -> Iterable[int]: ...  # type: ignore[empty-body]

    ada = Person(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC))
    signature = Signature.of(meet)

    assert signature.result(signature.dump_result(ada)[0]) == ada
    assert signature.result('{"name":1}') == {"name": 1}
    assert Signature.of(odd).result("[1]") == [1]


class Row(TypedDict):
    n: int


@pytest.mark.parametrize(
    ("hint", "value", "problem"),
    [
        (int, 1, None),
        (int, True, None),
        (int, "1", "$ does not fit the return hint: Expected `int`, got `str`"),
        (float, 1, None),
        (None, None, None),
        (None, 1, "$ does not fit the return hint: Expected `null`, got `int`"),
        (int | None, None, None),
        (int | None, "1", "$ does not fit the return hint: Expected `int | null`, got `str`"),
        (list[int], (1, 2), None),
        (dict[int, str], {1: "a"}, None),
        (dict[str, list[int]], {"a": [1, "2"]}, "$[...][1] does not fit the return hint: Expected `int`, got `str`"),
        (list[Row], [{"n": 1}, {"n": None}], "$[1].n does not fit the return hint: Expected `int`, got `null`"),
        (Person, Person(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC)), None),
        (Point | None, {"x": "left"}, "$.x does not fit the return hint: Expected `int`, got `str`"),
        (Any, object, "$ is a type, which JSON cannot hold: only its repr() is stored"),
        (object, [1], None),
        (Never, [1], None),
    ],
)
def test_a_result_that_does_not_fit_its_hint_is_stored_with_the_path(
    hint: Any, value: Any, problem: str | None
) -> None:
    def fn() -> Any: ...

    fn.__annotations__["return"] = hint
    signature = Signature.of(fn)
    text, found = signature.dump_result(value)

    assert found == problem
    assert text == sanitise(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [1, math.nan]}, "$.a[1] is nan, stored as null"),
        ([{"two words": 2**64}], "$[0]['two words'] is an integer beyond 64 bits"),
        (["a\0b"], "$[0] is text that cannot be stored as it is"),
        ({(1, 2): 3}, "$ has a key that cannot be stored as it is"),
        ({"x": Silent()}, "$.x is a tests.test_payload.Silent, which JSON cannot hold: only its repr() is stored"),
        ({"a": "x" * 300_000}, "$.a is text that cannot be stored as it is"),
        (["x" * 1_000] * 300, "$ is larger than 262,144 bytes of JSON: 169,861 bytes cut"),
        ({1: {2, 3}}, None),
    ],
)
def test_the_first_value_that_is_not_stored_as_it_is_has_its_path(value: object, problem: str | None) -> None:
    found = store_result(value)[1]

    assert (found or "").replace(Silent.__module__, "tests.test_payload") == (problem or "")


def iterates() -> Iterator[int]: ...  # type: ignore[empty-body]
def connects() -> socket.socket: ...  # type: ignore[empty-body]
def lists_paths() -> list[Path]: ...  # type: ignore[empty-body]
def returns_error() -> Exception | None: ...


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (iterates, "collections.abc.Iterator"),
        (connects, "socket.socket"),
        (lists_paths, "pathlib.Path"),
        (returns_error, "builtins.Exception"),
    ],
)
def test_a_return_hint_that_cannot_be_stored_is_refused_with_what_to_do(fn: Callable[..., Any], name: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        Signature.of(fn)

    assert f"{fn.__name__}: the result, {name}, cannot be stored as JSON; return builtins (a list instead of an" in str(
        caught.value
    )
    assert "or write -> None and store it yourself" in str(caught.value)


# Registration


def test_a_first_parameter_that_is_the_context_is_taken_off() -> None:
    def first(ctx: Context, name: str) -> None: ...

    signature = Signature.of(first, contexts=[Context])

    assert signature.context is Context
    assert Signature.of(add, contexts=[Context]).context is None
    assert signature.unbind(signature.bind(("ada",), {})) == (["ada"], {})


def no_hint(a) -> None: ...  # type: ignore[no-untyped-def]
def star(*a: int) -> None: ...
def stars(**a: int) -> None: ...
def positional(a: int, /) -> None: ...
def unresolved(a: Decimal) -> None: ...
def late(a: int, ctx: Context) -> None: ...
def unknown(a: list[Silent]) -> None: ...
def mixed(a: Person | int) -> None: ...
def generator(a: int) -> Iterator[int]:
    yield a


async def stream(a: int) -> AsyncIterator[int]:
    yield a


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (no_hint, ["no_hint", "'a'", "no type hint", "a: str"]),
        (star, ["star", "'a'", "list"]),
        (stars, ["stars", "'a'", "dict"]),
        (positional, ["positional", "'a'", "positional-only"]),
        (unresolved, ["unresolved", "'a'", "Decimal", "TYPE_CHECKING"]),
        (late, ["late", "'ctx'", "first", "def late(ctx: Context, …)"]),
        (unknown, ["unknown", "'a'", "Silent", "pydantic"]),
        (mixed, ["mixed", "'a'", "union"]),
        (Point.send, ["Point.send is a method", "def send(…): return Point(…).send(…)"]),
        (generator, ["generator", "return a list", "return [… for … in …]"]),
        (stream, ["stream", "return a list"]),
        (lambda a: a, ["lambda", "def job"]),
        (Point, ["Point", "class"]),
        (functools.partial(add, 1), ["partial", "plain function"]),
        (len, ["len", "plain function"]),
    ],
)
def test_a_function_that_cannot_be_a_job_is_refused_with_what_to_change(
    fn: Callable[..., Any], words: list[str]
) -> None:
    with pytest.raises(RegistrationError) as caught:
        Signature.of(fn, contexts=[Context])

    for word in words:
        assert word in str(caught.value)


def test_constraints_in_hints_are_kept() -> None:
    def wait(seconds: Annotated[int, msgspec.Meta(gt=0)]) -> None: ...

    with pytest.raises(InvalidInput, match=">= 1"):
        Signature.of(wait).bind((0,), {})
