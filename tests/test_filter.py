"""The filter language: what is understood, and that every mistake names its place."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import FilterError
from windlass.model.filter import LONGEST_FILTER, MOST_TERMS, MOST_VALUES, Filter, Kind, Term, Value, parse, partial_id


def only(text: str) -> Term:
    (term,) = parse(text).terms
    return term


# What is understood


def test_terms_stand_between_spaces_and_keep_their_own_text() -> None:
    filter = parse('  queue:mail  -state:failed,dead\terror:"timed out" ')

    assert [term.text for term in filter.terms] == ["queue:mail", "-state:failed,dead", 'error:"timed out"']
    assert filter.text == 'queue:mail  -state:failed,dead\terror:"timed out"'
    assert filter.asks("status")
    assert not filter.asks("tenant")


def test_nothing_asks_for_everything() -> None:
    assert parse("") == parse("  \n") == Filter("", ())
    assert parse("").everything


def test_a_term_has_a_field_values_and_maybe_a_not() -> None:
    assert only("-queue:mail,report") == Term(
        Kind.NAME, "queue", (Value("mail"), Value("report")), negated=True, text="-queue:mail,report"
    )


def test_quotes_keep_spaces_commas_colons_stars_and_other_quotes() -> None:
    assert only(r'queue:"a, b: c*",d').values == (Value("a, b: c*", quoted=True), Value("d"))
    assert only(r'error:"said \"no\" to C:\\x and \d"').values[0].text == r'said "no" to C:\x and \d'


def test_a_star_stands_for_anything_unless_it_is_quoted() -> None:
    assert only("type:a*b*").values[0].pieces == ["a", "b", ""]
    assert only('type:"a*b"').values[0].pieces == ["a*b"]


def test_states_are_read_in_any_case() -> None:
    assert only("state:Dead").values == only("status:dead").values == (Value("dead"),)


def test_numbers_are_whole_where_they_can_be() -> None:
    assert [value.number for value in only("priority:-5,9223372036854775807,1.5").values] == [-5, 2**63 - 1, 1.5]
    assert isinstance(only("priority:9999999999999999999").values[0].number, float)


@pytest.mark.parametrize("comparison", [">", "<", ">=", "<="])
def test_numbers_ages_and_numbers_in_documents_can_be_compared(comparison: str) -> None:
    assert only(f"attempt:{comparison}3").comparison == comparison
    assert only(f"age:{comparison}1h30m").comparison == comparison
    assert only(f"input.n:{comparison}3").comparison == comparison


def test_an_age_is_at_least_that_old_unless_it_is_compared() -> None:
    term = only("age:90m")

    assert (term.comparison, term.values[0].number) == (">=", 5400.0)


@pytest.mark.parametrize("field", ["attempt", "input.n", "cost"])
def test_a_range_needs_no_sign_that_a_shell_takes(field: str) -> None:
    assert (only(f"{field}:2..").comparison, only(f"{field}:2..").values[0].number) == (">=", 2)
    assert (only(f"{field}:..-1.5").comparison, only(f"{field}:..-1.5").values[0].number) == ("<=", -1.5)

    both = only(f"-{field}:2..4")

    assert (both.comparison, [value.number for value in both.values]) == ("..", [2, 4])
    assert both.negated


def test_a_range_of_ages_is_from_one_span_to_the_other() -> None:
    term = only("age:30m..2h")

    assert (term.comparison, [value.number for value in term.values]) == ("..", [1800.0, 7200.0])
    assert (only("age:1h..").comparison, only("age:..1h").comparison) == (">=", "<=")


def test_two_dots_in_a_text_are_no_range() -> None:
    assert only("input.path:../up").values == (Value("../up"),)
    assert only('input.version:"1..2"').values == (Value("1..2", quoted=True),)
    assert only("key:1..2").values == (Value("1..2"),)


def test_a_path_leads_into_a_document_and_its_steps_may_be_quoted() -> None:
    assert only("input.user.emails.0:x").path == ("user", "emails", "0")
    assert only(r'output."first name".x."a.\"b\"":1').path == ("first name", "x", 'a."b"')


def test_bare_hex_digits_are_an_id_or_a_part_of_one() -> None:
    whole = "0192f0c4-7b1e-7a52-9c3d-5e6f70819203"

    assert only(whole).values == only(whole.upper()).values == only(f"id:{whole}").values == (Value(whole),)
    assert only("70819203").values == (Value("70819203"),)
    assert only("-0192f0c4-7b1e").values == (Value("0192f0c47b1e"),)
    assert partial_id("70819203") == "70819203"
    assert partial_id("decaf") is None
    assert partial_id("sunday") is None


# Mistakes

MISTAKES = {
    "quue:x": (1, "there is no field 'quue'; did you mean 'queue'?"),
    "queue:a nonsense": (9, "'nonsense' is not a term"),
    "queue:": (7, "queue has no value"),
    "queue:a,": (9, "queue has no value"),
    "queue:,a": (7, "queue has no value"),
    'queue:""': (7, "queue has no value"),
    'queue:"a': (7, "this quote has no end"),
    'queue:a"b"': (8, "quotes go around a whole value"),
    'queue:"a"b': (10, "quotes go around a whole value"),
    '"queue":a': (1, "is not a term"),
    "-": (1, "'-' is not a term"),
    ":a": (1, "there is no field ''"),
    "queue:>a": (7, "queue cannot be compared with >"),
    "queue.x:a": (1, "queue has nothing inside"),
    "input:a": (1, "write input.<name>:<value>"),
    "input.:a": (1, "write input.<name>:<value>"),
    "input.a..b:c": (1, "write input.<name>:<value>"),
    'input."a:b': (7, "this quote has no end"),
    'input."a"b:c': (10, "a path ends with a colon"),
    "input.a.b.c.d.e.f.g.h.i:x": (1, "8 steps, and this one has 9"),
    "input.n:>many": (10, "'many' is not a number"),
    "state:ded": (7, "there is no state 'ded'; did you mean 'dead'?"),
    "state:dead*": (7, "there is no state 'dead*'"),
    "attempt:two": (9, "'two' is not a number; write it like attempt:3"),
    'attempt:"2"': (9, "is not a number"),
    "attempt:1e9": (9, "is not a number"),
    "attempt:٣": (9, "is not a number"),
    "priority:99999999999999999999": (10, "is not a number"),
    "age:yesterday": (5, "'yesterday' is not a time; write it like age:1h.., age:..30s"),
    "age:": (5, "a shell takes > and < for itself; quote the term: 'age:>1h', or write age:1h.."),
    "attempt:": (9, "a shell takes > and < for itself; quote the term: 'attempt:>3', or write attempt:3.."),
    "input.n:": (9, "a shell takes > and < for itself; quote the term: 'input.n:>3', or write input.n:3.."),
    "age:..": (5, ".. needs a value before or after it: age:1h.. or age:..1h"),
    "age:2h..1h": (5, "2h..1h holds nothing; the lower value comes first: age:1h..2h"),
    "age:>1h..": (5, "a range stands alone: age:1h.."),
    "attempt:1..2,4": (9, "a range stands alone: attempt:1..2"),
    "attempt:1..x": (9, "'x' is not a number"),
    "age:>-5m": (6, "is not a time"),
    "age:nan": (5, "is not a time"),
    "id:123": (4, "'123' is not an id"),
    "worker:host:1": (8, "'host:1' is not an id; worker takes a UUID"),
    "queue:a\0b": (8, "cannot be in the text of a job"),
    "queue:\udc80": (7, "cannot be in the text of a job"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_every_mistake_names_its_place_and_what_would_be_right(text: str) -> None:
    place, what = MISTAKES[text]

    with pytest.raises(FilterError, match=f"^at character {place} of the filter: .*{re.escape(what)}"):
        parse(text)


def test_limits_are_in_the_message() -> None:
    with pytest.raises(FilterError, match="100,000 characters; 2,000 is the most"):
        parse("x" * 100_000)
    with pytest.raises(FilterError, match=f"{MOST_TERMS + 1} terms; {MOST_TERMS} is the most"):
        parse("queue:a " * (MOST_TERMS + 1))
    with pytest.raises(FilterError, match=f"{MOST_VALUES + 1} values; {MOST_VALUES} is the most"):
        parse("queue:" + ",".join("a" * (MOST_VALUES + 1)))


def test_an_error_repeats_only_a_little_of_what_was_typed() -> None:
    with pytest.raises(FilterError) as caught:
        parse("queue:a " + "y" * 1_900)

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text", ['"' * LONGEST_FILTER, 'queue:"' + "\\" * 1_990, "a." * 1_000, "-" * 2_000, "," * 2_000]
)
def test_no_text_takes_long_to_refuse(text: str) -> None:
    began = time.process_time()

    with pytest.raises(FilterError):
        parse(text)

    assert time.process_time() - began < 0.5


@given(st.text(alphabet=st.sampled_from('queue:state.dead"\\*,-><= 0\0é'), max_size=40))
def test_whatever_is_typed_is_a_filter_or_a_filter_error(text: str) -> None:
    try:
        filter = parse(text)
    except FilterError:
        return

    assert parse(" ".join(term.text for term in filter.terms)).terms == filter.terms
