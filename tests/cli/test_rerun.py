"""`windlass jobs rerun`: a copy of a job, with another input, instead of the old one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.model.state import Verb

if TYPE_CHECKING:
    from .cli_store import CliStore


def test_a_dead_job_is_run_again_with_another_input(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY, action="JOB_DEAD")

    answer = cli_store.run_json("jobs", "rerun", str(dead), "--input", '{"to": "ann"}', "--discard")

    assert (answer["copied_from"], answer["discarded"]) == (str(dead), True)
    copy = cli_store.run_json("jobs", "show", answer["id"])
    assert (copy["state"], copy["input"], copy["copied_from"]) == ("queued", {"to": "ann"}, str(dead))
    actions = [row["action"] for row in cli_store.run_json("audit", "--job", str(dead))["audit"]]
    assert actions[:2] == ["JOB_DISCARDED", "JOB_RERUN"]


def test_the_copy_is_printed_with_the_job_that_it_came_from(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY, action="JOB_DEAD")

    printed = cli_store.run("jobs", "rerun", str(dead))

    assert printed.exit_code == 0
    assert f"enqueued, a copy of {dead}" in printed.stdout


def test_a_job_that_is_not_dead_is_not_discarded(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY, action="JOB_DEAD")
    cli_store.run("jobs", "replay", str(dead))

    refused = cli_store.run("jobs", "rerun", str(dead), "--discard")

    assert refused.exit_code == 1
    assert "cannot discard" in refused.stderr
    assert len(cli_store.run_json("jobs", "list")["jobs"]) == 1


def test_an_input_that_is_no_object_is_a_usage_error(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY, action="JOB_DEAD")

    for text in ("{", "[1]"):
        refused = cli_store.run("jobs", "rerun", str(dead), "--input", text)
        assert refused.exit_code == 2
        assert "--input is not" in refused.stderr
