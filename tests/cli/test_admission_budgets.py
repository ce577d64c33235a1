"""`windlass budgets` and `windlass tenants`: what tenants and queues may spend, shares, and refusals."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass.model.outcome import Transition
from windlass.model.rows import COUNTED
from windlass.model.state import Verb

from .cli_store import CliStore

# Budgets


def spend(cli_store: CliStore, cents: int, **options: Any) -> None:
    """A job with this cost."""
    cli_store.enqueue(**options)
    (job,) = cli_store.claim_jobs()
    transition = Transition(
        lease=job.lease, verb=Verb.SUCCEED, attempt=1, elapsed=1.0, output="null", cost_cents=cents, charged=True
    )
    cli_store.call(lambda store: store.finish([transition]))


@pytest.mark.parametrize(("cents", "shown"), [(1, "1 cent"), (2, "2 cents")])
def test_one_cent_is_a_cent(file_cli_store: CliStore, cents: int, shown: str) -> None:
    spend(file_cli_store, cents, tenant="acme")
    (job,) = file_cli_store.run_json("jobs")["jobs"]

    assert re.search(rf"^ *cost +{shown}$", file_cli_store.run("jobs", "show", job["id"]).stdout, re.MULTILINE)


def test_a_budget_is_set_spent_and_shown(cli_store: CliStore) -> None:
    output = cli_store.run("budgets", "set", "--tenant", "acme", "500", "--per", "day")
    spend(cli_store, 520, tenant="acme")
    cli_store.enqueue(tenant="acme")

    (row,) = cli_store.run_json("budgets")["budgets"]
    listed = cli_store.run("budgets").stdout.split("\t")

    assert output.stdout.startswith("tenant acme may cost 500 cents per day\n  0 spent, 500 left; open, new window in ")
    until = datetime.fromisoformat(row.pop("until"))
    assert timedelta(0) < until - datetime.now(UTC) <= timedelta(days=1)
    assert (until.hour, until.minute, until.second) == (0, 0, 0)
    assert row == {
        "kind": "tenant",
        "name": "acme",
        "cents": 500,
        "seconds": 86_400.0,
        "spent": 520,
        "left": 0,
        "open": False,
    }
    assert listed[:5] == ["tenant:acme", "500", "86400", "520", "0"]
    assert cli_store.claim_jobs() == []
    assert (
        "the budget of tenant acme is spent: its jobs do not start; see: windlass budgets"
        in cli_store.run("gates").stderr
    )


def test_a_budget_that_is_changed_counts_what_was_spent_already(cli_store: CliStore) -> None:
    spend(cli_store, 300, queue="models")

    less = cli_store.run_json("budgets", "set", "--queue", "models", "200", "--per", "month")
    more = cli_store.run_json("budgets", "set", "--queue", "models", "900", "--per", "month")

    assert (less["kind"], less["name"], less["seconds"]) == ("queue", "models", None)
    assert (less["spent"], less["left"], less["open"]) == (300, 0, False)
    assert (more["spent"], more["left"], more["open"]) == (300, 600, True)
    assert (
        "may cost 200 cents per month"
        in cli_store.run("budgets", "set", "--queue", "models", "200", "--per", "month").stdout
    )
    assert "\tmonth\t" in cli_store.run("budgets").stdout


@pytest.mark.parametrize(
    ("per", "seconds", "words"),
    [("hour", 3_600.0, "hour"), ("WEEK", 604_800.0, "week"), ("30m", 1_800.0, "30m"), ("24h", 86_400.0, "day")],
)
def test_a_window_is_a_word_or_a_span(file_cli_store: CliStore, per: str, seconds: float, words: str) -> None:
    row = file_cli_store.run_json("budgets", "set", "--tenant", "acme", "500", "--per", per)

    assert row["seconds"] == seconds
    assert f"per {words}\n" in file_cli_store.run("budgets", "set", "--tenant", "acme", "500", "--per", per).stdout


def test_a_budget_of_nothing_lets_nothing_start(cli_store: CliStore) -> None:
    output = cli_store.run("budgets", "set", "--tenant", "acme", "0", "--per", "hour").stdout
    cli_store.enqueue(tenant="acme")

    assert cli_store.claim_jobs() == []
    assert output.splitlines()[1:] == [
        "  0 spent, 0 left; 0: nothing starts",
        "  running jobs finish; no other job starts until the budget is changed or dropped; "
        "workers know within a second",
        "  → windlass budgets drop --tenant acme",
    ]


def test_the_same_budget_and_the_same_weight_again_leave_no_row_in_the_audit(cli_store: CliStore) -> None:
    for cents in ("5", "5", "1"):
        cli_store.run("budgets", "set", "--tenant", "acme", cents, "--per", "day")
    for weight in ("2", "2", "3"):
        cli_store.run("tenants", "weigh", "acme", weight)

    rows = [(row["action"], row["reason"]) for row in cli_store.run_json("audit")["audit"]]

    assert rows == [
        ("TENANT_WEIGHED", "weight 3"),
        ("TENANT_WEIGHED", "weight 2"),
        ("BUDGET_SET", "1 cent per day"),
        ("BUDGET_SET", "5 cents per day"),
    ]


def test_a_budget_is_dropped_once_and_the_second_time_changes_nothing(cli_store: CliStore) -> None:
    cli_store.run("budgets", "set", "--tenant", "acme", "0", "--per", "day")
    cli_store.enqueue(tenant="acme")

    slip = cli_store.run("budgets", "drop", "--tenant", "acm")
    first, second = (
        cli_store.run("budgets", "drop", "--tenant", "acme"),
        cli_store.run("budgets", "drop", "--tenant", "acme"),
    )

    assert slip.exit_code == first.exit_code == second.exit_code == 0
    assert slip.stderr.splitlines()[1].endswith("did you mean 'acme'?")
    assert first.stdout == "tenant acme has no budget any more\n"
    assert (second.stdout, second.stderr) == ("", "windlass: tenant acme has no budget\n")
    assert cli_store.run_json("budgets", "drop", "--tenant", "acme") == {
        "kind": "tenant",
        "name": "acme",
        "dropped": False,
    }
    assert len(cli_store.claim_jobs()) == 1
    assert cli_store.run("budgets").stderr.startswith("there is no budget; set one:")


ACME = ("--tenant", "acme")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", *ACME, "-5", "--per", "day"), "a budget of -5 cents is below zero"),
        (
            ("set", *ACME, "5.00", "--per", "day"),
            "5.00 is no whole number of cents; for 5.00 of the currency, write 500",
        ),
        (("set", *ACME, "5,5", "--per", "day"), "write 550"),
        (("set", *ACME, "nan", "--per", "day"), "'nan' is no whole number of cents"),
        (("set", *ACME, "1e3", "--per", "day"), "'1e3' is no whole number of cents"),
        (("set", *ACME, "٥", "--per", "day"), "is no whole number of cents"),
        (("set", *ACME, "9" * 30, "--per", "day"), "is more than"),
        (("set", *ACME, "--per", "day"), "Missing argument 'CENTS'"),
        (("set", *ACME, "500"), "the window is missing: --per hour, day, week, month"),
        (("set", *ACME, "500", "--per", "fortnight"), "'fortnight' is no window"),
        (("set", *ACME, "500", "--per", "0s"), "is too short a window; 1s is the least"),
        (("set", *ACME, "500", "--per", "-1"), "is no window"),
        (("set", "500", "--per", "day"), "name a budget: --tenant or --queue"),
        (("set", *ACME, "--queue", "a", "500", "--per", "day"), "a budget belongs to a tenant or to a queue"),
        (("set", "--tenant", " ", "500", "--per", "day"), "tenant is empty"),
        (("drop",), "name a budget: --tenant or --queue"),
        (("drop", *ACME, "--queue", "a"), "a budget belongs to a tenant or to a queue"),
    ],
)
def test_an_invalid_budget_is_refused(file_cli_store: CliStore, arguments: tuple[str, ...], message: str) -> None:
    result = file_cli_store.run("budgets", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert file_cli_store.run_json("budgets") == {"budgets": []}


# Tenants


def test_tenants_are_shown_with_weight_jobs_and_cost(cli_store: CliStore) -> None:
    spend(cli_store, 7, tenant="acme")
    cli_store.enqueue(2, tenant="acme")
    weighed = cli_store.run("tenants", "weigh", "bolt", "2.5")

    acme, bolt = cli_store.run_json("tenants")["tenants"]

    assert 0 <= acme.pop("lag") < 60
    assert acme.pop("counted") == COUNTED
    assert acme == {"tenant": "acme", "weight": 1.0, "queued": 2, "due": 2, "running": 0, "parked": 0, "cents": 7}
    assert bolt.pop("counted") == COUNTED
    assert bolt == {
        "tenant": "bolt",
        "weight": 2.5,
        "queued": 0,
        "due": 0,
        "running": 0,
        "parked": 0,
        "lag": None,
        "cents": 0,
    }
    assert weighed.stdout.startswith("tenant bolt has weight 2.5\n")
    assert cli_store.run_json("tenants", "weigh", "bolt", "3") == {"tenant": "bolt", "weight": 3.0}
    assert cli_store.run("tenants", "list").stdout.splitlines()[1] == "bolt\t3\t0\t0\t0\t\t0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("acme", "0"), "it must be above 0; to start no job of acme: windlass gates pause --tenant acme"),
        (("acme", "-3"), "a weight of -3.0: it must be above 0"),
        (("acme", "nan"), "it must be above 0 and finite"),
        (("acme", "inf"), "it must be above 0 and finite"),
        (("acme", "-inf"), "No such option"),
        (("acme", "1e-9"), "is not between 0.001 and 1,000,000"),
        (("acme", "1e9"), "is not between 0.001 and 1,000,000"),
        (("acme", "three"), "'three': it is a number above 0"),
        (("", "3"), "tenant is empty"),
        (("acme",), "Missing argument 'WEIGHT'"),
        ((), "Missing argument 'TENANT'"),
    ],
)
def test_an_invalid_weight_is_refused(file_cli_store: CliStore, arguments: tuple[str, ...], message: str) -> None:
    result = file_cli_store.run("tenants", "weigh", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert file_cli_store.run_json("tenants") == {"tenants": []}


def test_a_misspelt_tenant_gets_a_note_on_stderr(cli_store: CliStore) -> None:
    cli_store.enqueue(tenant="acme")

    assert "did you mean 'acme'?" in cli_store.run("tenants", "weigh", "amce", "2").stderr
    assert cli_store.run("tenants", "weigh", "acme", "2").stderr == ""
