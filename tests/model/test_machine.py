"""Everything at once, on both stores: enqueue, claim, beat, freeze, finish, cancel, sweep and jumps of the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .running import run_machine

if TYPE_CHECKING:
    from .conftest import OpenBench


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_store_keeps_its_promises_whatever_happens(bench_on: OpenBench, dialect: str) -> None:
    run_machine(bench_on(dialect))
