"""`windlass jobs`: list, show and change jobs, on both stores, on terminals and in pipes."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import pytest

from windlass.cli.parse.filter_args import parse_filter
from windlass.errors import StoreUnavailable
from windlass.model.state import Verb

from .cli_store import CliStore

EVIL = "\x1b[2J\x1b]0;x\x07 \u202e [red]\x9b31m"


# The list


def test_a_list_in_a_pipe_is_one_line_per_job_newest_first(cli_store: CliStore) -> None:
    (old,) = cli_store.enqueue(queue="mail")
    cli_store.call(lambda store: store.operate(Verb.CANCEL, old))
    dead = cli_store.fail_job(verb=Verb.BURY, queue="report")

    lines = [line.split("\t") for line in cli_store.run("jobs", "list").stdout.splitlines()]

    assert [line[:5] for line in lines] == [
        [str(dead), "send", "report", "dead", "1/4"],
        [str(old), "send", "mail", "cancelled", "0/4"],
    ]
    assert lines[0][6] == "exhausted · TimeoutError: no answer"


def test_a_list_takes_a_filter_in_words(cli_store: CliStore) -> None:
    failed = cli_store.fail_job("the peer timed out", queue="report")
    (job,) = cli_store.enqueue(queue="mail", tenant="acme")
    cli_store.enqueue(queue="mail", tenant="other")

    def found(*words: str) -> list[str]:
        return [item["id"] for item in cli_store.run_json("jobs", "list", *words)["jobs"]]

    assert found("queue:mail", "-tenant:other") == [str(job)]
    assert found("queue:mail -tenant:other") == [str(job)]
    assert found("error:peer timed out") == [str(failed)]
    assert found(job.hex[-8:]) == [str(job)]
    assert set(found(str(job), failed.hex[-8:])) == {str(job), str(failed)}


def test_jobs_alone_and_jobs_with_a_filter_are_lists(file_cli_store: CliStore) -> None:
    (job,) = file_cli_store.enqueue()

    assert file_cli_store.run("jobs").stdout == file_cli_store.run("jobs", "state:queued").stdout
    assert file_cli_store.run("jobs", job.hex[-8:]).stdout.startswith(str(job))
    assert "there is no command 'lst'; did you mean: windlass jobs list" in file_cli_store.run("jobs", "lst").stderr


def test_pages_follow_each_other(cli_store: CliStore) -> None:
    jobs = cli_store.enqueue(5)

    first = cli_store.run_json("jobs", "list", "-n", "3")
    second = cli_store.run_json("jobs", "list", "-n", "3", "--below", first["next"])

    assert {job["id"] for job in first["jobs"] + second["jobs"]} == set(map(str, jobs))
    assert (len(first["jobs"]), len(second["jobs"]), second["next"]) == (3, 2, None)


def test_when_nothing_matches_it_says_where_it_looked_and_what_would_match(cli_store: CliStore) -> None:
    cli_store.enqueue(queue="mail")

    result = cli_store.run("jobs", "list", "queue:mail", "state:dead")

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "no job matches queue:mail state:dead in " in result.stderr
    assert "where finished jobs are kept for 7d" in result.stderr
    assert "some match: windlass jobs list queue:mail" in result.stderr


def test_a_wrong_filter_is_reported_with_its_position_and_exit_2(file_cli_store: CliStore) -> None:
    result = file_cli_store.run("jobs", "list", "state:dead", "quue:mail")

    assert result.exit_code == 2
    assert result.stderr == "windlass: at character 12 of the filter: there is no field 'quue'; did you mean 'queue'?\n"


def test_words_of_a_shell_become_one_filter() -> None:
    assert parse_filter(["error:timed out"]).text == 'error:"timed out"'
    assert parse_filter(["queue:a state:dead"]).text == "queue:a state:dead"
    assert parse_filter(["70819203", "9f3c21ab"]).text == "id:70819203,9f3c21ab"


@pytest.mark.parametrize("width", [160, 100, 60, 40])
def test_a_table_fits_the_terminal(file_cli_store: CliStore, width: int) -> None:
    file_cli_store.fail_job("a long story " * 20, queue="a-queue-with-a-rather-long-name")

    seen, code = file_cli_store.run_in_terminal("jobs", "list", width=width, NO_COLOR="1")

    assert code == 0
    assert max(map(len, seen.splitlines())) <= width
    assert seen.splitlines()[0].startswith("ID        TYPE")
    assert "failed" in seen
    assert "\x1b" not in seen


def test_colours_are_for_terminals_that_want_them(file_cli_store: CliStore) -> None:
    file_cli_store.fail_job(verb=Verb.BURY)

    assert "\x1b[31mdead" in file_cli_store.run_in_terminal("jobs", "list")[0]
    assert "\x1b" not in file_cli_store.run_in_terminal("jobs", "list", NO_COLOR="1")[0]
    assert "\x1b" not in file_cli_store.run("jobs", "list").stdout


def test_hostile_values_are_printed_inert_everywhere(cli_store: CliStore) -> None:
    document = json.dumps({"to": EVIL}, ensure_ascii=False)
    job = cli_store.fail_job(f"first {EVIL}\nsecond", type=f"Bad{EVIL}", input=document)

    printed = [
        cli_store.run("jobs", "list").output,
        cli_store.run("jobs", "show", str(job)).output,
        cli_store.run("jobs", "show", str(job), "--full").output,
        cli_store.run("jobs", "list", "--json").output,
        cli_store.run("jobs", "list", f"queue:{EVIL}").output,
        cli_store.run("jobs", "cancel", f"error:{EVIL}").output,
    ]

    for text in printed:
        assert not set(text) & set("\x1b\x07\u202e\x9b"), ascii(text)
    assert cli_store.run_json("jobs", "show", str(job))["input"] == {"to": EVIL}


# One job


def test_a_story_goes_from_the_enqueue_to_the_next_attempt(cli_store: CliStore) -> None:
    entry = {
        "attempt": 1,
        "fence": 1,
        "worker": str(uuid4()),
        "started_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T00:00:01.5Z",
        "outcome": "raised",
        "error": {"type": "TimeoutError", "message": "no answer", "attempt": 1, "attemptedAt": "2026-01-01T00:00:01Z"},
        "log": ["INFO knocking"],
    }
    job = cli_store.fail_job(entry=json.dumps(entry), queue="mail", input='{"to": "ann"}')

    output = cli_store.run("jobs", "show", job.hex[-8:]).stdout

    order = [
        "Failed once: TimeoutError: no answer. Retries in ",
        f"send  failed, again in 10m\n{job}\n",
        "queue     mail",
        "enqueued",
        "attempt 1  failed after 1.5s on worker ",
        "      TimeoutError: no answer",
        "│ INFO knocking",
        "attempt 2  due in ",
        "Traceback of attempt 1",
        '"to": "ann"',
        f"windlass jobs retry {job.hex[-8:]}",
    ]
    places = [output.find(text) for text in order]
    assert -1 not in places, (order[places.index(-1)], output)
    assert places == sorted(places)


def test_a_success_is_shown_with_its_time_worker_and_output(cli_store: CliStore) -> None:
    worker = cli_store.register_worker(name="ship:7")
    job = cli_store.finish_job(Verb.SUCCEED, worker, output='{"sent": true}')

    output = cli_store.run("jobs", "show", str(job)).stdout

    assert re.match(r"Succeeded after .*\.\n\nsend  succeeded\n", output)
    assert "attempt 1  succeeded after 1.5s on ship:7" in output
    assert '"sent": true' in output


def test_large_documents_are_cut_until_all_of_it_is_wanted(file_cli_store: CliStore) -> None:
    (job,) = file_cli_store.enqueue(input=json.dumps({f"key{n}": n for n in range(100)}))

    short, full = (
        file_cli_store.run("jobs", "show", str(job)).stdout,
        file_cli_store.run("jobs", "show", str(job), "--full").stdout,
    )

    assert "… 82 lines more; see all: --full" in short
    assert "key99" not in short
    assert '"key99": 99' in full
    assert "--full" not in full


def test_an_id_that_could_be_several_lists_them(cli_store: CliStore) -> None:
    first, second = cli_store.enqueue(2)

    result = cli_store.run("jobs", "show", first.hex[:8])

    assert result.exit_code == 2
    assert str(first) in result.stderr
    assert str(second) in result.stderr
    assert "write more of it" in result.stderr


@pytest.mark.parametrize("id", ["nonsense", "12345", "'; --", "\x1b[2J", "0" * 40, "x" * 100_000])
def test_an_invalid_id_is_reported(file_cli_store: CliStore, id: str) -> None:
    result = file_cli_store.run("jobs", "show", id)

    assert result.exit_code == 2
    assert "is not a job id: expected a UUID, or 6 or more digits" in result.stderr
    assert "\x1b" not in result.stderr
    assert len(result.stderr) < 300


def test_a_job_that_does_not_exist_is_reported(cli_store: CliStore) -> None:
    result = cli_store.run("jobs", "show", str(uuid4()))

    assert result.exit_code == 2
    assert "it never existed, was discarded, or has left the history" in result.stderr


# Changes


def test_each_verb_changes_the_jobs_in_a_state_that_allows_it(cli_store: CliStore) -> None:
    dead, failed = cli_store.fail_job(verb=Verb.BURY), cli_store.fail_job()
    (queued,) = cli_store.enqueue()

    assert cli_store.run_json("jobs", "replay", "queue:*", "-y")["changed"] == 1
    assert cli_store.run_json("jobs", "retry", "--all", "-y")["changed"] == 1
    assert {cli_store.status(job) for job in (dead, failed, queued)} == {"queued"}

    assert cli_store.run_json("jobs", "cancel", "queue:default", "-y")["changed"] == 3
    assert cli_store.status(queued) == "cancelled"

    assert cli_store.run("jobs", "resume", "--all", "-y").stdout == "3 jobs resumed\n"
    assert cli_store.status(queued) == "queued"


def test_discard_removes_dead_jobs_for_good(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY)

    assert cli_store.run_json("jobs", "discard", dead.hex[-8:], "--yes") == {
        "verb": "discard",
        "filter": dead.hex[-8:],
        "matched": 1,
        "changed": 1,
        "asked": 0,
        "refused": [],
    }
    assert cli_store.status(dead) == "gone"


def test_a_running_job_is_asked_to_stop(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue()
    cli_store.claim_one(cli_store.register_worker())

    result = cli_store.run("jobs", "cancel", str(job))

    assert result.stdout == "1 running job asked to stop\n"
    assert cli_store.run_json("jobs", "show", str(job))["cancel_requested"]


def test_ids_that_refuse_are_counted_with_the_reason_and_exit_1(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY)
    (queued,) = cli_store.enqueue()

    result = cli_store.run("jobs", "replay", str(dead), queued.hex[-8:])

    assert result.exit_code == 1
    assert result.stdout == "1 job replayed\n1 job refused, since only dead jobs can: 1 is queued\n"
    assert cli_store.run_json("jobs", "replay", str(queued), code=1)["refused"] == [
        {"id": str(queued), "state": "queued"}
    ]


def test_a_dead_job_that_is_to_be_retried_is_answered_with_replay(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY)

    result = cli_store.run("jobs", "retry", str(dead))

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        1,
        "1 job refused, since only failed jobs can: 1 is dead; to start it over: windlass jobs replay ID",
    )


def test_a_state_in_the_filter_is_left_as_it_is_and_refused(cli_store: CliStore) -> None:
    cli_store.enqueue(2)

    assert (
        "2 jobs refused, since only dead jobs can: 2 are queued"
        in cli_store.run("jobs", "replay", "state:queued", "-y").stdout
    )


def test_without_a_terminal_a_filter_needs_yes(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue()

    result = cli_store.run("jobs", "cancel", "queue:default", input="y\n")

    assert result.exit_code == 2
    assert "cancel 1 job that matches queue:default state:failed,queued,running,waiting" in result.stderr
    assert "the command cannot ask; add --yes" in result.stderr
    assert cli_store.status(job) == "queued"


def test_discard_asks_even_for_an_id(file_cli_store: CliStore) -> None:
    dead = file_cli_store.fail_job(verb=Verb.BURY)

    assert file_cli_store.run("jobs", "discard", str(dead)).exit_code == 2
    assert file_cli_store.status(dead) == "dead"


@pytest.mark.parametrize(
    ("keys", "code", "after"),
    [("y\n", 0, "cancelled"), ("n\n", 1, "queued"), ("\x04", 1, "queued"), ("\x03", 130, "queued")],
)
def test_a_person_is_asked(file_cli_store: CliStore, keys: str, code: int, after: str) -> None:
    (job,) = file_cli_store.enqueue()

    seen, ended = file_cli_store.run_in_terminal("jobs", "cancel", "queue:default", keys=keys)

    assert "go on? [y/N]" in seen
    assert ended == code
    assert file_cli_store.status(job) == after
    assert "Traceback" not in seen
    assert ("\nwindlass: nothing was changed\n" in seen) == (after == "queued")


@pytest.mark.parametrize(
    ("keys", "code", "after"), [("101\n", 0, "cancelled"), ("y\n", 1, "queued"), ("100\n", 1, "queued")]
)
def test_above_a_hundred_the_number_has_to_be_typed(file_cli_store: CliStore, keys: str, code: int, after: str) -> None:
    jobs = file_cli_store.enqueue(101)

    seen, ended = file_cli_store.run_in_terminal("jobs", "cancel", "queue:default", keys=keys)

    assert "cancel 101 jobs that match queue:default" in seen
    assert "type 101 to go on:" in seen
    assert (ended, file_cli_store.status(jobs[0])) == (code, after)


def test_more_than_a_page_is_counted_exactly_and_changed_completely(cli_store: CliStore) -> None:
    cli_store.enqueue(1_203, queue="mail")
    cli_store.enqueue(5, queue="other")

    done = cli_store.run_json("jobs", "cancel", "queue:mail", "-y")

    assert (done["matched"], done["changed"]) == (1_203, 1_203)
    assert len(cli_store.run_json("jobs", "list", "state:queued", "-n", "2000")["jobs"]) == 5


def test_nothing_to_do_says_in_which_states_they_are(cli_store: CliStore) -> None:
    cli_store.enqueue(2, queue="mail")

    result = cli_store.run("jobs", "replay", "queue:mail")

    assert result.exit_code == 0
    assert "no job matches queue:mail state:dead; nothing to replay" in result.stderr
    assert "jobs in other states match: 2 queued" in result.stderr


def test_an_error_in_between_is_one_line_and_the_result_so_far_is_printed(
    file_cli_store: CliStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("the database went away")

    jobs = file_cli_store.enqueue(3)
    monkeypatch.setattr("windlass.store.sqlite.store.SqliteStore.operate", fail)

    result = file_cli_store.run("jobs", "cancel", *map(str, jobs))

    assert result.exit_code == 2
    assert result.stderr == "windlass: the database went away\n"
    assert result.stdout.startswith("0 jobs cancelled")


@pytest.mark.parametrize("arguments", [(), ("--all", "queue:mail")])
def test_which_jobs_has_to_be_said_once(file_cli_store: CliStore, arguments: tuple[str, ...]) -> None:
    result = file_cli_store.run("jobs", "cancel", *arguments)

    assert result.exit_code == 2
    assert "windlass jobs cancel queue:mail" in result.stderr
