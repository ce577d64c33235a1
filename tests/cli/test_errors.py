"""`windlass errors`: what fails in groups, and the commands for the jobs of one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from windlass.model.state import Verb
from windlass.policy.fingerprint import fingerprint

from .cli_store import CliStore


def fail(store: CliStore, message: str, **options: Any) -> str:
    store.fail_job(message, fingerprint=fingerprint("TimeoutError", message), **options)
    return fingerprint("TimeoutError", message)


def test_errors_are_listed_by_group_and_their_jobs_are_found(cli_store: CliStore) -> None:
    for number in range(2):
        group = fail(cli_store, f"no answer after {number} s", queue="mail")
    fail(cli_store, "no answer after 7 s", verb=Verb.BURY, queue="report")
    fail(cli_store, "the pipe is broken", queue="mail")

    first, second = (line.split("\t") for line in cli_store.run("errors").stdout.splitlines())

    assert first[:-1] == [group, "3", "TimeoutError: no answer after … s", "1 dead, 2 failed", "mail, report"]
    assert second[1:4] == ["1", "TimeoutError: the pipe is broken", "1 failed"]
    assert len(cli_store.run("jobs", "list", f"fingerprint:{group}").stdout.splitlines()) == 3

    retried = cli_store.run_json("jobs", "retry", f"fingerprint:{group}", "--yes")
    assert (retried["matched"], retried["changed"]) == (2, 2)
    assert cli_store.run("errors").stdout.split("\t")[3] == "1 dead, 2 queued"


def test_a_document_has_every_field(cli_store: CliStore) -> None:
    group = fail(cli_store, "no answer after 30 s", queue="mail")

    (found,) = cli_store.run_json("errors", "--since", "10m", "--queue", "mail")["errors"]

    assert found.pop("points") == [*[0] * 29, 1]
    assert found.pop("first") == found.pop("last")
    assert len(found.pop("newest")) == 36
    assert found == {
        "fingerprint": group,
        "type": "TimeoutError",
        "message": "no answer after … s",
        "count": 1,
        "counted": 10_000,
        "more": False,
        "states": {"failed": 1},
        "queues": [{"name": "mail", "count": 1}],
        "types": [{"name": "send", "count": 1}],
        "tenants": [{"name": "default", "count": 1}],
        "workers": [{"name": "host:1", "count": 1}],
    }
    assert cli_store.run_json("errors", "--queue", "report") == {"errors": []}
    (job,) = cli_store.run_json("jobs", "list")["jobs"]
    assert job["fingerprint"] == group


@pytest.mark.slow
def test_in_a_terminal_the_list_ends_with_the_commands_for_its_first_group(file_cli_store: CliStore) -> None:
    group = fail(file_cli_store, "no answer after 30 s", queue="mail")
    fail(file_cli_store, "no answer after 40 s\x1b[2J", verb=Verb.BURY, queue="mail")
    fail(file_cli_store, "no answer after 50 s", verb=Verb.BURY, queue="mail")

    shown, code = file_cli_store.run_in_terminal("errors", width=100)
    output = re.sub(r"\x1b\[[\d;]*m", "", shown)

    assert code == 0
    assert re.search(r"FINGERPRINT +COUNT +ERROR +STATES +QUEUES +LAST", output)
    assert f"windlass jobs list fingerprint:{group}" in output
    assert f"windlass jobs retry fingerprint:{group}" in output
    assert f"windlass jobs replay fingerprint:{group}" in output
    assert "\x1b[2J" not in output
    assert max(map(len, output.splitlines())) <= 100


def test_nothing_failed_is_a_sentence(file_cli_store: CliStore) -> None:
    output = file_cli_store.run("errors", "--since", "2h", "--queue", "mail")

    assert (output.exit_code, output.stdout) == (0, "")
    assert output.stderr.startswith("no job of queue mail failed in the last 2h in sqlite:")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("errors", "--since", "soon"), "is not a duration"),
        (("jobs", "list", "fingerprint:ab12"), "12 hex digits; see windlass errors"),
        (("jobs", "list", "fingerprints:ab12cd34ef56"), "did you mean 'fingerprint'"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(file_cli_store: CliStore, words: tuple[str, ...], said: str) -> None:
    output = file_cli_store.run(*words)

    assert output.exit_code == 2
    assert said in output.stderr
