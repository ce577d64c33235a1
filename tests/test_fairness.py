"""Shares of tenants, as arithmetic: by weight, also when tenants come and go."""

from __future__ import annotations

from collections import Counter

import pytest

from windlass.policy.fairness import Fairness, Group

GROUP: Group = (0, 0, "mail")


def serve(
    fairness: Fairness, weights: dict[str, float], claims: int, *, room: int = 10, group: Group = GROUP
) -> Counter[str]:
    """Claims of tenants that always have more jobs than places."""
    taken: Counter[str] = Counter()
    for _ in range(claims):
        quotas = fairness.quotas(group, sorted(weights), room, weights)
        got = {tenant: quota for tenant, quota in quotas if quota}
        assert sum(got.values()) == room
        fairness.record_claim(group, quotas, got, weights, filled=True)
        taken.update(got)
    return taken


@pytest.mark.parametrize("room", [1, 2, 7, 10, 100])
def test_places_go_by_weight(room: int) -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 3.5}

    taken = serve(Fairness(), weights, 650 // room * 10, room=room)

    for tenant, weight in weights.items():
        assert taken[tenant] == pytest.approx(taken.total() * weight / 6.5, rel=0.02)


@pytest.mark.parametrize("room", [1, 10])
def test_a_tenant_that_was_away_has_accumulated_no_credit(room: int) -> None:
    fairness, both = Fairness(), {"a": 1.0, "b": 1.0}
    serve(fairness, both, 100, room=room)
    serve(fairness, {"a": 1.0}, 1_000, room=room)

    taken = serve(fairness, both, 100, room=room)

    assert taken["a"] == pytest.approx(taken["b"], rel=0.05)


@pytest.mark.parametrize("room", [1, 10])
def test_a_new_tenant_starts_without_debt_and_without_credit(room: int) -> None:
    fairness = Fairness()
    serve(fairness, {"a": 1.0, "b": 1.0}, 1_000, room=room)

    taken = serve(fairness, {"a": 1.0, "b": 1.0, "c": 1.0}, 300, room=room)

    for tenant in "abc":
        assert taken[tenant] == pytest.approx(100 * room, rel=0.05)


def test_a_tenant_that_got_less_than_its_share_gets_the_rest_later() -> None:
    fairness, weights = Fairness(), {"a": 1.0, "b": 1.0}
    fairness.record_claim(GROUP, fairness.quotas(GROUP, ["a", "b"], 10, weights), {"a": 10}, weights, filled=True)

    assert dict(fairness.quotas(GROUP, ["a", "b"], 10, weights)) == {"b": 10}


def test_each_queue_is_shared_separately() -> None:
    fairness, weights = Fairness(), {"a": 1.0, "b": 1.0}
    fairness.record_claim(GROUP, fairness.quotas(GROUP, ["a", "b"], 10, weights), {"a": 10}, weights, filled=True)

    assert serve(fairness, weights, 1, group=(0, 0, "pages")) == {"a": 5, "b": 5}


def test_a_tenant_with_few_jobs_accumulates_no_credit() -> None:
    """A tenant has one job per claim, and later as many as the other: from then on it gets its share and no more."""
    fairness, weights = Fairness(), {"a": 1.0, "b": 1.0}
    for _ in range(100):
        fairness.quotas(GROUP, ["a", "b"], 10, weights)
        fairness.quotas(GROUP, ["a"], 4, weights)  # b had one job: its unused places go to a
        fairness.record_claim(GROUP, [("a", 9), ("b", 1)], {"a": 9, "b": 1}, weights, filled=True)

    taken = serve(fairness, weights, 100)

    assert taken["a"] == pytest.approx(taken["b"], rel=0.05)
