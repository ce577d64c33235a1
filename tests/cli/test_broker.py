"""`windlass broker` and `windlass relay`: what they declare, find, publish and switch off, on real brokers."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .brokers import CliBroker
from .cli_store import CliStore
from .conftest import Start

PROGRAM = """
from windlass import Windlass

app = Windlass()

@app.job(queue="mail")
def send() -> None: ...

@app.job(queue="reports")
def report() -> None: ...
"""


@pytest.fixture
def program(program_dir: Path) -> str:
    (program_dir / "app.py").write_text(PROGRAM)
    return "app.py"


def test_a_setup_declares_each_queue_once_and_switches_the_outbox_on(
    cli_store: CliStore, broker: CliBroker, program: str
) -> None:
    cli_store.enqueue(queue="imports")

    first = cli_store.run_json("broker", "setup", program)
    again = cli_store.run("broker", "setup", program)
    cli_store.enqueue(queue="mail")

    assert (first["made"], first["known"]) == (["imports", "mail", "reports"], [])
    assert (first["delivery"], first["delivery_before"], first["changed"]) == ("outbox", None, True)
    assert again.exit_code == 0, again.output
    assert "queue mail: is there\n" in again.stdout
    assert "delivery: outbox, as it was\n" in again.stdout
    assert cli_store.call(lambda store: store.outbox_size(10))[0] == 1
    audit = cli_store.run_json("audit")["audit"]
    assert [(row["action"], row["subject"], row["reason"]) for row in audit] == [("DELIVERY_SET", "delivery", "outbox")]


def test_a_check_names_what_is_missing_and_what_to_run(cli_store: CliStore, broker: CliBroker, program: str) -> None:
    before = cli_store.run_json("broker", "check", program, code=1)
    cli_store.run("broker", "setup", program)
    after = cli_store.run_json("broker", "check", program, code=1)

    def wrong(report: dict[str, object]) -> dict[str, str]:
        found: list[dict[str, str]] = report["findings"]  # type: ignore[assignment]
        return {each["subject"]: each["text"] for each in found if not each["ok"]}

    assert before["healthy"] is False
    advice = {each["advice"] for each in before["findings"] if each["subject"] in ("delivery", "queue mail")}
    assert f"windlass broker setup {program}" in advice  # without it, a setup does not know queues that hold no job
    assert "writes no outbox" in wrong(before)["delivery"]
    assert "delivery" not in wrong(after)
    held = "how many are not acknowledged is not known" if "amqp" in broker.url else "0 not acknowledged"
    assert wrong(after)["queue mail"] == f"no worker consumes it; 0 ready, {held}"
    lines = cli_store.run("broker", "check", program).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == sorted((line.split("\t")[0] for line in lines), reverse=True)


def test_a_check_reports_an_outbox_that_no_relay_publishes(file_cli_store: CliStore, broker: CliBroker) -> None:
    file_cli_store.run("broker", "setup")
    file_cli_store.enqueue(queue="mail")
    from windlass.cli.commands import broker as command

    late = command.LATE
    command.LATE = -1.0  # the row is due since a moment, and that is too long now
    try:
        report = file_cli_store.run_json("broker", "check", code=1)
    finally:
        command.LATE = late

    (outbox,) = [each for each in report["findings"] if each["subject"] == "outbox"]
    assert outbox["ok"] is False
    assert outbox["text"].startswith("1 row due, the oldest for ")
    assert outbox["advice"].startswith("windlass relay app.py")


def test_a_queue_that_was_declared_with_other_arguments_is_reported(
    file_cli_store: CliStore, broker: CliBroker, program: str
) -> None:
    if broker.url.startswith("redis"):
        refused = file_cli_store.run("broker", "setup", program, "--group-size", "3")
        assert (refused.exit_code, "this broker is Redis" in refused.stderr) == (2, True)
        return

    made = file_cli_store.run("broker", "setup", program, "--group-size", "1")
    report = file_cli_store.run_json("broker", "check", program, code=1)
    refused = file_cli_store.run("broker", "setup", program)

    assert "write ?group_size=1 into the URL as well" in made.stdout
    assert any("x-quorum-initial-group-size" in each["text"] for each in report["findings"] if not each["ok"])
    assert (refused.exit_code, "exists with other arguments" in refused.stderr) == (2, True)


def test_off_asks_then_empties_the_outbox_and_keeps_the_jobs(cli_store: CliStore, broker: CliBroker) -> None:
    cli_store.run("broker", "setup")
    (job,) = cli_store.enqueue(queue="mail")

    asked = cli_store.run("broker", "off")
    no, code = cli_store.run_in_terminal("broker", "off", keys="n\n")
    assert (asked.exit_code, code) == (2, 1)
    assert "its outbox has 1 due rows, which are deleted" in no
    assert cli_store.call(lambda store: store.delivery()) == "outbox"

    done = cli_store.run("broker", "off", "--yes", WINDLASS_BROKER="")
    assert done.stdout == "delivery is off: workers poll the database\n"
    assert cli_store.run("broker", "off", WINDLASS_BROKER="").stdout == "delivery was off already\n"
    assert cli_store.call(lambda store: store.delivery()) is None
    assert cli_store.call(lambda store: store.outbox_size(10)) == (0, None)
    assert cli_store.status(job) == "queued"


def test_a_relay_publishes_what_is_due_and_ends(cli_store: CliStore, broker: CliBroker) -> None:
    cli_store.run("broker", "setup")
    cli_store.enqueue(3, queue="mail")

    once = cli_store.run("relay", "--once")

    assert (once.exit_code, once.stdout) == (0, "3 jobs published\n")
    assert cli_store.run("relay", "--once").stdout == "0 jobs published\n"
    assert broker.ready("mail") == 3


def test_a_relay_runs_until_it_is_asked_to_stop(file_cli_store: CliStore, broker: CliBroker, start: Start) -> None:
    file_cli_store.run("broker", "setup")
    file_cli_store.enqueue(queue="mail")

    relay = start("relay", WINDLASS_URL=file_cli_store.url)
    relay.expect(r"relay from sqlite:.* to (redis|amqp)://")
    relay.expect(r"published 1 jobs and 0 copies of dead jobs, 0 rows not confirmed")
    relay.signal(signal.SIGTERM)

    relay.expect("relay stopped")
    assert relay.wait() == 0


@pytest.mark.parametrize(
    "command", [("broker", "setup"), ("broker", "check"), ("relay",), ("dead", "list", "--letters")]
)
def test_without_a_broker_the_error_names_the_setting(file_cli_store: CliStore, command: tuple[str, ...]) -> None:
    result = file_cli_store.run(*command)

    assert result.exit_code == 2
    assert "no broker is set" in result.stderr
    assert "WINDLASS_BROKER" in result.stderr
    assert "amqp://user:password@host/vhost or redis://" in result.stderr


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "amqp://127.0.0.1:1"])
def test_a_broker_that_is_down_is_named_without_its_password(file_cli_store: CliStore, url: str) -> None:
    url = url.replace("://", "://ann:secret@")

    setup = file_cli_store.run("broker", "setup", WINDLASS_BROKER=url)
    check = file_cli_store.run("broker", "check", "--json", WINDLASS_BROKER=url)

    assert setup.exit_code == 2
    assert "127.0.0.1:1" in setup.stderr
    assert check.exit_code == 1
    (down,) = [each for each in json.loads(check.stdout)["findings"] if each["subject"] == "connection"]
    assert down["advice"].startswith("start it, or correct broker (WINDLASS_BROKER)")
    assert "secret" not in setup.stderr + check.stdout
    shown, _ = file_cli_store.run_in_terminal("broker", "setup", WINDLASS_BROKER=url)
    assert shown.startswith("windlass: ")  # no line of the client library comes before it
    assert file_cli_store.call(lambda store: store.delivery()) is None


def test_wrong_credentials_are_called_by_their_name(file_cli_store: CliStore, broker: CliBroker) -> None:
    if broker.url.startswith("redis"):
        wrong = broker.url.replace("://", "://nobody:wrong@")
    else:
        wrong = broker.url.replace("windlass:windlass@", "windlass:wrong@")

    setup = file_cli_store.run("broker", "setup", WINDLASS_BROKER=wrong)

    assert setup.exit_code == 2
    assert "refuses" in setup.stderr
    assert "wrong@" not in setup.stderr
