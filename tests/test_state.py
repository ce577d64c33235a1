"""The one table of what may follow what, against the design's prose."""

from __future__ import annotations

import pytest

from windlass.model.state import (
    ARCHIVED,
    CLAIMABLE,
    ENDING_VERBS,
    FINAL,
    STAYING_VERBS,
    TRANSITIONS,
    State,
    Verb,
    allows,
    sources,
    target,
)

Q, R, S, F, D, W, C = (
    State.QUEUED, State.RUNNING, State.SUCCEEDED, State.FAILED, State.DEAD, State.WAITING, State.CANCELLED,
)  # fmt: skip

DESIGN = {
    (Q, R), (F, R), (R, S), (R, F), (R, D), (R, W), (R, C), (R, Q), (W, Q), (W, D), (Q, C), (F, C), (W, C), (F, Q),
    (D, Q), (C, Q), (D, None),
    (Q, D), (F, D),  # undelivered for too long, where `undelivered_action` says fail
}  # fmt: skip


def test_the_edges_are_the_designs_and_no_others() -> None:
    edges = {(source, target(verb)) for verb in Verb for source in sources(verb)}

    assert edges == DESIGN


def test_every_verb_has_its_place() -> None:
    assert set(TRANSITIONS) == set(Verb)
    assert all(source for source, _ in TRANSITIONS.values())


def test_succeeded_has_no_way_out() -> None:
    assert not [verb for verb in Verb if allows(verb, S)]


def test_only_an_operator_leads_out_of_an_end() -> None:
    leaving = {verb for verb in Verb if sources(verb) & FINAL}

    assert leaving == {Verb.REPLAY, Verb.RESUME, Verb.DISCARD}


def test_whoever_finishes_holds_a_running_job() -> None:
    assert ENDING_VERBS.isdisjoint(STAYING_VERBS)
    assert all(sources(verb) == {R} for verb in ENDING_VERBS | STAYING_VERBS)
    assert {target(verb) for verb in ENDING_VERBS} == ARCHIVED
    assert not {target(verb) for verb in STAYING_VERBS} & ARCHIVED


def test_what_is_claimable_is_what_a_claim_starts_from() -> None:
    assert sources(Verb.CLAIM) == CLAIMABLE == {Q, F}


@pytest.mark.parametrize("state", State)
def test_states_are_their_own_names(state: State) -> None:
    assert State(state.value) is state
    assert str(state) == state.value
