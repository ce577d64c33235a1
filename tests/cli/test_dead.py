"""`windlass dead`: dead jobs and the broker's letters in one view, replayed, edited and discarded."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from windlass.model.delivery import DeliveryMode
from windlass.model.state import Verb

from .brokers import CliBroker
from .cli_store import CliStore


def bury_job(store: CliStore, message: str = "no answer") -> UUID:
    return store.fail_job(message, verb=Verb.BURY, queue="mail")


def rows(store: CliStore, *words: str) -> list[tuple[str, str]]:
    return [(row["kind"], row["state"]) for row in store.run_json("dead", "list", *words)["dead_letters"]]


def letter_ids(store: CliStore) -> list[str]:
    return [row["id"] for row in store.run_json("dead", "list", "--letters")["dead_letters"]]


def actions(store: CliStore, of: str) -> list[str]:
    return [row["action"] for row in store.run_json("audit")["audit"] if of in (row["subject"], row["job"])]


# Without a broker


def test_without_a_broker_dead_jobs_are_listed_replayed_edited_and_discarded(cli_store: CliStore) -> None:
    first, second, third = (bury_job(cli_store, f"number {number}") for number in range(3))
    cli_store.enqueue(queue="mail")

    assert rows(cli_store) == [("job", "dead")] * 3
    line = cli_store.run("dead", "error:number*2*").stdout.split("\t")
    assert (line[0], line[1], line[6]) == ("job", str(third), "exhausted · TimeoutError: number 2\n")
    assert cli_store.run("dead", "replay", "queue:mail", "--dry-run").stdout == "3 jobs would be replayed: 3 send\n"
    assert cli_store.status(first) == "dead"

    assert cli_store.run("dead", "replay", str(first)).stdout == "1 job replayed\n"
    edited = cli_store.run("dead", "edit", str(second), "--input", '{"to": "ann"}')
    assert f"a copy of {second}, which was discarded" in edited.stdout
    assert cli_store.run("dead", "discard", "queue:mail", "--yes").stdout == "1 job discarded\n"

    assert rows(cli_store) == []
    assert cli_store.run("dead").stderr == "there are no dead letters\n"
    assert actions(cli_store, str(third)) == ["JOB_DISCARDED"]


def test_many_are_confirmed_by_their_number(file_cli_store: CliStore) -> None:
    for _ in range(2):
        bury_job(file_cli_store)
    refused = file_cli_store.run("dead", "discard", "--all")
    shown, code = file_cli_store.run_in_terminal("dead", "discard", "--all", keys="y\n")

    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    assert "discard 2 jobs that match state:dead" in shown
    assert (code, rows(file_cli_store)) == (0, [])


def test_show_is_that_of_the_job(file_cli_store: CliStore) -> None:
    id = bury_job(file_cli_store, "out of rope")

    assert "out of rope" in file_cli_store.run("dead", "show", str(id)[-8:]).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay",), "give ids, a filter, --all or --letters"),
        (("replay", "queue:mail", "--all"), "give ids, a filter, --all or --letters"),
        (("list", "queue:mail", "--letters"), "a filter is for jobs"),
        (("edit", "letter:1-0", "--input", "{}"), "edit its job: windlass dead show letter:1-0 names it"),
        (("edit", "9f3c21ab"), "--input"),
        (("replay", "letter:1-0", "9f3c21ab"), "letters and jobs are changed by two commands"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(file_cli_store: CliStore, words: tuple[str, ...], said: str) -> None:
    result = file_cli_store.run("dead", *words)

    assert result.exit_code == 2
    assert said in result.stderr


# With a broker


def test_both_kinds_are_one_list_and_a_copy_is_shown_once(cli_store: CliStore, broker: CliBroker) -> None:
    cli_store.run("broker", "setup")
    copied = bury_job(cli_store)
    cli_store.run("relay", "--once")  # publishes the copy of the dead job
    broker.bury(uuid4(), reason="there is no such job")
    broker.bury(reason="the message is not UTF-8")

    assert rows(cli_store) == [("job", "dead"), ("letter", "gone"), ("letter", "unreadable")]
    assert rows(cli_store, "queue:mail") == [("job", "dead")]
    assert rows(cli_store, "--letters") == [("letter", "dead"), ("letter", "gone"), ("letter", "unreadable")]
    unreadable = letter_ids(cli_store)[2]
    shown = cli_store.run("dead", "show", unreadable).stdout
    assert "the message is not UTF-8" in shown
    assert "\\xff\\x1b[31m nonsense" in shown  # escaped: a terminal does not obey it
    assert "it cannot be replayed: the message is no envelope" in shown

    assert cli_store.run("dead", "replay", str(copied)).stdout == "1 job replayed\n  1 copy removed from the broker\n"
    assert rows(cli_store, "--letters") == [("letter", "gone"), ("letter", "unreadable")]


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_jobs_that_are_changed_without_this_view_lose_their_copies_too(
    cli_store: CliStore, broker: CliBroker, verb: str
) -> None:
    cli_store.run("broker", "setup")
    dead = [bury_job(cli_store), bury_job(cli_store)]
    kept = bury_job(cli_store)
    cli_store.run("relay", "--once")
    assert len(broker.letters()) == 3

    assert "2 copies removed from the broker" in cli_store.run("jobs", verb, *map(str, dead), "--yes").stdout
    assert broker.letters() == [kept]


def test_a_replayed_letter_does_what_the_row_of_its_job_allows(cli_store: CliStore, broker: CliBroker) -> None:
    cli_store.run("broker", "setup")
    dead = bury_job(cli_store)
    succeeded = cli_store.finish_job(Verb.SUCCEED, queue="mail", output="1")
    (queued,) = cli_store.enqueue(queue="mail")
    cli_store.call(lambda store: store.set_delivery(None))  # so that the story's own letters are the only ones
    cli_store.call(lambda store: store.set_delivery(DeliveryMode.OUTBOX))
    for job in (dead, succeeded, queued):
        broker.bury(job)
    broker.bury(payload=b"{}")

    planned = cli_store.run_json("dead", "replay", "--letters", "--dry-run")
    done = cli_store.run_json("dead", "replay", "--letters", "--yes", code=1)

    assert (planned["matched"], len(planned["refused"]), planned["changed"]) == (4, 2, 0)
    assert (done["matched"], done["changed"], done["delivered"], done["removed"]) == (4, 1, 1, 2)
    assert sorted(each["reason"] for each in done["refused"]) == [
        "its job has succeeded; discard the letter",
        "the message is no envelope, so that it names no job; discard it",
    ]
    assert cli_store.status(dead) == "queued"
    assert broker.ready("mail") == 1
    assert len(broker.letters()) == 2


def test_a_discarded_letter_is_gone_with_a_row_of_the_audit(
    cli_store: CliStore, broker: CliBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ACTOR", "ann")
    dead = bury_job(cli_store)
    broker.bury(dead)
    broker.bury(reason="the message is not UTF-8")
    copy, unreadable = letter_ids(cli_store)

    asked = cli_store.run("dead", "discard", unreadable)
    done = cli_store.run("dead", "discard", unreadable, "--yes")
    again = cli_store.run("dead", "discard", unreadable, "--yes")
    cli_store.run("dead", "discard", copy, "--yes")

    assert asked.exit_code == 2
    assert done.stdout == "1 letter removed from the broker\n"
    assert (again.exit_code, f"{unreadable}: gone" in again.stdout) == (1, True)
    assert broker.letters() == []
    assert cli_store.status(dead) == "dead"
    (row,) = [row for row in cli_store.run_json("audit")["audit"] if row["subject"] == unreadable]
    assert (row["action"], row["actor"], row["reason"]) == ("DEAD_LETTER_DISCARDED", "ann", "the message is not UTF-8")


def test_a_broker_that_is_down_hides_letters_and_stops_no_replay(file_cli_store: CliStore) -> None:
    id = bury_job(file_cli_store)
    down = {"WINDLASS_BROKER": "redis://127.0.0.1:1/0"}

    listed = file_cli_store.run("dead", **down)
    replayed = file_cli_store.run("dead", "replay", str(id), **down)

    assert (listed.exit_code, listed.stdout.startswith("job\t")) == (0, True)
    assert "the broker's letters are not listed: " in listed.stderr
    assert (replayed.exit_code, replayed.stdout) == (0, "1 job replayed\n")
    assert "copies of these jobs were not removed" in replayed.stderr
    assert file_cli_store.status(id) == "queued"
