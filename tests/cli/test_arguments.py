"""Words of a shell become a job's arguments, by the handler's hints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from windlass.cli.parse.arguments import parse_arguments
from windlass.errors import InvalidInput
from windlass.payload.signature import Signature


def number(value: int) -> None: ...
def real(value: float) -> None: ...
def text(value: str) -> None: ...
def either(value: str | int) -> None: ...
def anything(value: Any) -> None: ...
def maybe(value: str | None) -> None: ...
def many(value: list[str]) -> None: ...
def moment(value: datetime) -> None: ...
def pair(first: str, second: int = 0, *, third: str = "") -> None: ...


@pytest.mark.parametrize(
    ("handler", "word", "value"),
    [
        (number, "2", 2),
        (number, "-2", -2),
        (real, "2", 2),
        (text, "2", "2"),
        (text, "hello", "hello"),
        (text, '"quoted"', "quoted"),
        (text, "true", "true"),
        (text, "", ""),
        (text, "[1, 2]", "[1, 2]"),
        (text, "9" * 40, "9" * 40),
        (either, "2", 2),
        (either, "two", "two"),
        (anything, "[1, {}]", [1, {}]),
        (anything, "plain", "plain"),
        (maybe, "null", None),
        (many, '["a"]', ["a"]),
        (moment, "2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"),
    ],
)
def test_a_word_becomes_a_value_of_the_hinted_type(handler: Callable[..., Any], word: str, value: object) -> None:
    args, kwargs = parse_arguments(Signature.of(handler), [word])

    assert (args, kwargs) == ([value], {})


def test_keywords_and_positional_words_can_be_mixed() -> None:
    args, kwargs = parse_arguments(Signature.of(pair), ["1", "third=3", "second=2"])

    assert (args, kwargs) == (["1"], {"third": "3", "second": 2})


def test_a_text_with_an_equals_sign_is_written_as_json() -> None:
    args, _ = parse_arguments(Signature.of(text), ['"a=b"'])

    assert args == ["a=b"]


@pytest.mark.parametrize(
    ("handler", "words", "message"),
    [
        (number, ["two"], "Expected `int`, got `str`"),
        (number, ["2.5"], "Expected `int`, got `float`"),
        (many, ["[1]"], "Expected `str`, got `int`"),
        (number, [], "missing required argument 'value'"),
        (number, ["1", "2"], "takes 1 argument but 2 were given"),
        (number, ["1", "value=2"], "multiple values for argument 'value'"),
        (number, ["valeu=2"], "did you mean 'value'?"),
        (number, ["value=1", "value=2"], "value= is given twice"),
    ],
)
def test_what_fits_no_hint_is_refused_with_the_first_reason(
    handler: Callable[..., Any], words: list[str], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_arguments(Signature.of(handler), words)

    assert message in str(caught.value)
