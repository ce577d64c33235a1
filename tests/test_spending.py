"""What an attempt cost: fractions of cents that add up exactly, and are rounded up once."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest

from windlass.handler.cost import Spending


def spent(*amounts: object) -> int:
    spending = Spending()
    for amount in amounts:
        spending.add(amount)
    return spending.cents


@pytest.mark.parametrize(
    ("amounts", "cents"),
    [
        ([], 0),
        ([0, 0.0, Decimal("0.0")], 0),
        ([1, 2], 3),
        ([0.001], 1),
        ([0.1] * 10, 1),  # as the digits say, whatever a float's tail is
        ([0.1] * 11, 2),
        ([0.1, 0.2, Decimal("0.7")], 1),
        ([Decimal("1E-40")] * 3, 1),
        ([10**12 - 1, Decimal("1E-40")], 10**12),
        ([1e11, 0.5], 10**11 + 1),
    ],
)
def test_sums_are_exact_and_rounded_up_once(amounts: list[object], cents: int) -> None:
    assert spent(*amounts) == cents


@pytest.mark.parametrize("amount", [10**12 + 1, 1e300, Decimal("1E+30"), 10**400])
def test_a_sum_that_is_a_slip_is_refused_and_changes_nothing(amount: object) -> None:
    spending = Spending()
    spending.add(3)
    with pytest.raises(ValueError, match="one attempt would cost more"):
        spending.add(amount)

    assert spending.cents == 3


@pytest.mark.parametrize("amount", [-1, -0.1, float("nan"), float("-inf"), Decimal("sNaN"), True, "1", None, 1j])
def test_what_is_no_amount_is_refused(amount: object) -> None:
    with pytest.raises(ValueError, match=r"ctx\.cost\("):
        spent(amount)


def test_threads_add_up() -> None:
    spending = Spending()

    def add() -> None:
        for _ in range(2_000):
            spending.add(0.25)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert spending.cents == 2_000


def test_the_sum_that_a_child_reports_only_grows() -> None:
    spending = Spending()
    for sum_so_far in (3, 2, 5):
        spending.reach(sum_so_far)

    assert spending.cents == 5
