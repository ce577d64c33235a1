"""`windlass gates`, and what it shares with `limits`, `budgets` and `tenants`: what they print, write and refuse."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from windlass.model.admission import GateKind, GateState

from .cli_store import CliStore


def recent(text: str) -> bool:
    return timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(text) < timedelta(minutes=5)


def actions(cli_store: CliStore) -> list[tuple[str, str, str | None, str | None]]:
    rows = cli_store.run_json("audit")["audit"]
    return [(row["action"], row["subject"], row["actor"], row["reason"]) for row in reversed(rows)]


# Gates


def test_a_gate_is_closed_and_opened_in_plain_words(cli_store: CliStore) -> None:
    cli_store.enqueue(queue="mail")

    paused = cli_store.run("gates", "pause", "--queue", "mail", "--reason", "the server moves", WINDLASS_ACTOR="ann")
    (gate,) = cli_store.run_json("gates")["gates"]
    assert cli_store.claim_jobs() == []
    opened = cli_store.run("gates", "resume", "--queue", "mail", WINDLASS_ACTOR="bob")

    assert paused.exit_code == opened.exit_code == 0
    assert paused.stdout.splitlines() == [
        "queue mail is paused",
        "  running jobs finish; no other job starts, and claimed jobs that wait in a worker go back to the queue; "
        "workers know within a second",
        "  → windlass gates resume --queue mail",
    ]
    assert recent(gate.pop("since"))
    assert gate == {"kind": "queue", "name": "mail", "state": "paused", "reason": "the server moves", "actor": "ann"}
    assert opened.stdout.splitlines()[0] == "queue mail is open"
    assert len(cli_store.claim_jobs()) == 1
    assert actions(cli_store) == [
        ("GATE_PAUSED", "queue:mail", "ann", "the server moves"),
        ("GATE_RESUMED", "queue:mail", "bob", None),
    ]


@pytest.mark.parametrize(
    ("options", "words", "subject"),
    [
        (("--all",), "everything", "all"),
        (("--type", "send"), "type send", "type:send"),
        (("--tenant", "acme corp"), "tenant acme corp", "tenant:acme corp"),
    ],
)
def test_everything_a_type_and_a_tenant_have_gates_too(
    cli_store: CliStore, options: tuple[str, ...], words: str, subject: str
) -> None:
    cli_store.enqueue(tenant="acme corp")

    drained = cli_store.run("gates", "pause", "--claimed", "finish", *options)

    assert drained.stdout.startswith(f"{words} is draining\n  running jobs finish, and jobs that workers have claimed")
    assert cli_store.run("gates").stdout.startswith(f"{subject}\tdraining\t")
    assert cli_store.claim_jobs() == []
    again = "windlass " + drained.stdout.splitlines()[2].partition("→ windlass ")[2]
    assert (
        again
        == {
            "all": "windlass gates resume --all",
            "type:send": "windlass gates resume --type send",
            "tenant:acme corp": "windlass gates resume --tenant 'acme corp'",
        }[subject]
    )


def test_saying_it_twice_changes_nothing(cli_store: CliStore) -> None:
    first = cli_store.run_json("gates", "pause", "--tenant", "acme", "--reason", "unpaid")
    second = cli_store.run_json("gates", "pause", "--tenant", "acme")
    output = cli_store.run("gates", "pause", "--tenant", "acme", "--reason", "unpaid").stdout
    other = cli_store.run_json("gates", "pause", "--tenant", "acme", "--reason", "paid, and broken")

    assert list(first) == ["kind", "name", "state", "reason", "actor", "since", "changed"]
    assert (first.pop("changed"), second.pop("changed")) == (True, False)
    assert first == second
    assert output.startswith("tenant acme is paused already, since ")
    assert output.endswith(": unpaid\n")
    assert (other["changed"], other["reason"], other["since"]) == (True, "paid, and broken", first["since"])
    assert [reason for _, _, _, reason in actions(cli_store)] == ["unpaid", "paid, and broken"]


def test_a_gate_that_was_never_closed_is_open_already(cli_store: CliStore) -> None:
    output = cli_store.run_json("gates", "resume", "--queue", "mail")

    assert output == {
        "kind": "queue",
        "name": "mail",
        "state": "open",
        "reason": None,
        "actor": None,
        "since": None,
        "changed": False,
    }
    assert cli_store.run("gates", "resume", "--queue", "mail").stdout == "queue mail is open already\n"
    assert cli_store.run_json("gates") == {"gates": []}
    assert cli_store.run("gates", "list").stderr.startswith(
        "every gate is open; pause one: windlass gates pause --queue"
    )
    assert actions(cli_store) == []


def test_opening_a_gate_names_another_gate_that_is_closed(cli_store: CliStore) -> None:
    cli_store.run("gates", "pause", "--all")
    cli_store.run("gates", "pause", "--claimed", "finish", "--queue", "mail")

    one = cli_store.run("gates", "resume", "--queue", "mail")
    cli_store.run("gates", "pause", "--type", "send")
    everything = cli_store.run("gates", "resume", "--all")

    assert one.stderr == "windlass: everything is still paused: windlass gates resume --all\n"
    assert everything.stderr == "windlass: still closed: type send; see: windlass gates\n"


def test_a_misspelt_name_gets_a_note_on_stderr_and_is_accepted(cli_store: CliStore) -> None:
    cli_store.enqueue(queue="mail")
    cli_store.register_worker(queues=("reports",))

    slips = [
        cli_store.run("gates", "pause", "--queue", "mial").stderr,
        cli_store.run("gates", "pause", "--queue", "report").stderr,
        cli_store.run("gates", "pause", "--type", "sent").stderr,
        cli_store.run("gates", "pause", "--tenant", "defualt").stderr,
    ]

    assert slips == [
        "windlass: no queue 'mial' has been seen yet; did you mean 'mail'?\n",
        "windlass: no queue 'report' has been seen yet; did you mean 'reports'?\n",
        "windlass: no type 'sent' has been seen yet; did you mean 'send'?\n",
        "windlass: no tenant 'defualt' has been seen yet; did you mean 'default'?\n",
    ]
    assert len(cli_store.run_json("gates")["gates"]) == 4
    assert cli_store.run("gates", "pause", "--queue", "quite-another").stderr == ""
    assert cli_store.run("gates", "pause", "--queue", "mail").stderr == ""


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name a gate: --queue, --type or --tenant, or --all for everything"),
        (("--queue", "a", "--tenant", "b"), "--queue and --tenant are 2 gates"),
        (("--queue", "a", "--all"), "--queue and --all are 2 gates"),
        (("--queue", ""), "queue is empty"),
        (("--type", "a\nb"), "type contains a control character"),
        (("--tenant", "x" * 201), "tenant has 201 characters; 200 is the most"),
        (("--queue", "a", "--reason", ""), "the reason is empty"),
        (("--queue", "a", "--reason", "x" * 1_001), "the reason has 1001 characters; 1000 is the most"),
        (("mail",), "unexpected extra argument"),
    ],
)
def test_an_invalid_gate_is_refused(
    file_cli_store: CliStore, verb: str, options: tuple[str, ...], message: str
) -> None:
    result = file_cli_store.run("gates", verb, *options)

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert file_cli_store.run_json("gates") == {"gates": []}


def test_gates_fit_a_narrow_terminal(file_cli_store: CliStore) -> None:
    file_cli_store.run("gates", "pause", "--queue", "a-queue-whose-name-is-long", "--reason", "a long story " * 10)

    seen, code = file_cli_store.run_in_terminal("gates", width=60, NO_COLOR="1")

    heading, row = seen.splitlines()
    assert code == 0
    assert heading.split() == ["GATE", "STATE", "SINCE", "REASON"]
    assert len(row) <= 60
    assert row.startswith("queue a-queue-whose")


def test_a_closed_gate_is_shown_with_its_queue(cli_store: CliStore) -> None:
    cli_store.enqueue(queue="mail")
    cli_store.enqueue(queue="sms")
    cli_store.register_worker()
    cli_store.run(
        "gates", "pause", "--claimed", "finish", "--queue", "mail", "--reason", "the server moves", WINDLASS_ACTOR="ann"
    )

    output = cli_store.run("queues")

    assert [(row["queue"], row["gate"]) for row in cli_store.run_json("queues")["queues"]] == [
        ("mail", "draining"),
        ("sms", "open"),
    ]
    assert output.stderr.splitlines()[0].startswith("queue mail is draining since ")
    assert output.stderr.splitlines()[0].endswith(" by ann: the server moves")
    assert output.stderr.splitlines()[1] == "  → windlass gates resume --queue mail"
    cli_store.run("gates", "pause", "--all")
    assert [row["gate"] for row in cli_store.run_json("queues")["queues"]] == ["draining", "paused"]


def test_the_column_of_gates_is_shown_where_one_is_closed(file_cli_store: CliStore) -> None:
    file_cli_store.enqueue(queue="mail")
    file_cli_store.register_worker()

    quiet, _ = file_cli_store.run_in_terminal("queues", NO_COLOR="1")
    file_cli_store.run("gates", "pause", "--queue", "mail")
    loud, _ = file_cli_store.run_in_terminal("queues", NO_COLOR="1")

    assert "GATE" not in quiet
    assert loud.splitlines()[2].endswith("WORKERS  GATE")
    assert loud.splitlines()[3].endswith("paused")


def test_a_job_that_waits_behind_a_closed_gate_or_a_spent_budget_says_so(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue(queue="mail", tenant="acme")
    cli_store.run("gates", "pause", "--queue", "mail", "--reason", "moving", WINDLASS_ACTOR="ann")
    cli_store.run("gates", "pause", "--queue", "sms")
    cli_store.run("budgets", "set", "--tenant", "acme", "0", "--per", "day")

    output = cli_store.run("jobs", "show", str(job)).stdout

    assert output.splitlines()[:3] == [
        "Waits behind a gate: queue mail is paused by ann: moving. It starts when the gate is opened.",
        "",
        "send  queued, queue mail is paused by ann: moving",
    ]
    assert "held up   the budget of tenant acme is 0: none of its jobs starts\n" in output
    assert "held up   no live worker serves queue mail\n" in output
    assert "\nwindlass gates resume --queue mail\n" in output
    assert "sms" not in output


# The audit


def test_the_audit_shows_what_was_done_to_something_that_is_no_job(cli_store: CliStore) -> None:
    cli_store.run("gates", "pause", "--queue", "mail", "--reason", "moving", WINDLASS_ACTOR="ann")
    cli_store.run("budgets", "set", "--tenant", "acme", "500", "--per", "month", WINDLASS_ACTOR="ann")
    cli_store.run("budgets", "drop", "--tenant", "acme", WINDLASS_ACTOR="bob")
    cli_store.run("tenants", "weigh", "acme", "3", WINDLASS_ACTOR="bob")

    rows = [line.split("\t")[1:] for line in cli_store.run("audit").stdout.splitlines()]

    assert rows == [
        ["TENANT_WEIGHED", "tenant:acme", "", "bob", "weight 3"],
        ["BUDGET_DROPPED", "tenant:acme", "", "bob", ""],
        ["BUDGET_SET", "tenant:acme", "", "ann", "500 cents per month"],
        ["GATE_PAUSED", "queue:mail", "", "ann", "moving"],
    ]
    (row,) = cli_store.run_json("audit", "--action", "gate_paused")["audit"]
    assert (row["job"], row["type"], row["subject"]) == (None, None, "queue:mail")


# Common to all of them

LISTS = [("gates",), ("limits",), ("budgets",), ("tenants",)]


@pytest.mark.parametrize("command", LISTS)
def test_json_is_one_line_in_a_pipe_and_an_error_leaves_stdout_empty(
    file_cli_store: CliStore, command: tuple[str, ...]
) -> None:
    good, listed = file_cli_store.run(*command, "--json"), file_cli_store.run(*command, "list", "--json")
    wrong = file_cli_store.run(*command, "--json", "--url", "mysql://nowhere")

    assert good.stdout == listed.stdout
    assert good.stdout.count("\n") == 1
    assert next(iter(json.loads(good.stdout))) == command[0]
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("windlass: ")


@pytest.mark.parametrize("command", LISTS)
def test_an_unknown_word_is_an_error_and_help_is_help(file_cli_store: CliStore, command: tuple[str, ...]) -> None:
    assert file_cli_store.run(*command, "--help").output.startswith(f"Usage: windlass {command[0]} [OPTIONS] COMMAND")
    if command != ("limits",):
        assert file_cli_store.run(*command, "puase").exit_code == 2


def test_what_an_operator_writes_cannot_reach_the_terminal_as_a_command(file_cli_store: CliStore) -> None:
    """The command checks a reason; a reason that was written directly to the table is escaped."""
    evil = "\x1b[2Jgone"
    file_cli_store.call(lambda store: store.set_gate(GateKind.QUEUE, "mail", GateState.PAUSED, reason=evil, actor=evil))

    for command in (("gates",), ("gates", "--json"), ("queues",), ("audit",), ("gates", "pause", "--queue", "mail")):
        result = file_cli_store.run(*command)
        assert "\x1b" not in result.output
        assert "gone" in result.output
