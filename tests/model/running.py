"""How long a machine runs. WINDLASS_TEST_SCALE=10 makes it ten times as long; --hypothesis-seed=N repeats one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import StoreMachine

if TYPE_CHECKING:
    from .bench import Bench

EXAMPLES = {"sqlite": 20, "postgres": 12}  # at scale 1
STEPS = 50  # per example
PATIENCE = 300  # examples in which a broken store must be caught; most are within ten

COMMON = settings(
    stateful_step_count=STEPS,
    deadline=None,  # a database's time is not the example's
    derandomize=False,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def run_machine(bench: Bench) -> None:
    """Raises what the shortest example raised that breaks the store."""
    examples = round(EXAMPLES[bench.dialect] * float(os.environ.get("WINDLASS_TEST_SCALE", "1")))
    run_state_machine_as_test(_machine_on(bench), settings=settings(COMMON, max_examples=examples))


def run_until_caught(bench: Bench) -> None:
    """As `run_machine`, for a store that is known to be broken: the shortest example is not needed."""
    hunting = settings(COMMON, max_examples=PATIENCE, database=None, phases=[Phase.generate], print_blob=False)
    run_state_machine_as_test(_machine_on(bench), settings=hunting)


def _machine_on(where: Bench) -> type[StoreMachine]:
    class Machine(StoreMachine):
        bench = where

    return Machine
