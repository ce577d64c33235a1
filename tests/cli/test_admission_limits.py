"""`windlass limits`: keys in use, their holders and waiting jobs; and what `jobs show` prints of a job that waits."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from windlass.model.admission import Rule
from windlass.model.job import Job

from .cli_store import CliStore

KEY = "domain:example.org"


def recent(text: str) -> bool:
    return timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(text) < timedelta(minutes=5)


def limited(cli_store: CliStore, jobs: int = 5, most: int = 2) -> tuple[list[Job], list[str]]:
    """Some jobs of one key: those that a worker holds, and the ids of all in the order of their enqueue."""
    cli_store.call(lambda store: store.declare([Rule(name="domain", most=most)]))
    ids = [str(id) for id in cli_store.enqueue(jobs, queue="web", tenant="acme", limits=(KEY,))]
    return cli_store.claim_jobs(cli_store.register_worker(name="ship:1")), ids


def test_a_limit_is_shown_with_its_slots_and_waiting_jobs(cli_store: CliStore) -> None:
    held, _ = limited(cli_store)

    output = cli_store.run_json("limits")

    assert len(held) == 2
    assert output == {
        "limits": [
            {
                "key": KEY,
                "name": "domain",
                "most": 2,
                "used": 2,
                "period": None,
                "burst": None,
                "waiting": 3,
                "free_in": 0.0,
                "held": 0.0,
            }
        ],
        "total": 1,
    }
    assert cli_store.run("limits").stdout == f"{KEY}\t2 at a time\t2/2\t3\t0.000\n"
    assert (
        cli_store.run_json("limits", "domain")
        == cli_store.run_json("limits", KEY)
        == cli_store.run_json("limits", "list")
        == output
    )
    assert cli_store.run_json("limits", "other") == {"limits": [], "total": 0}
    assert cli_store.run("limits", "other").stderr == "no key of 'other' is in use; see all keys: windlass limits\n"


def test_a_key_is_shown_with_its_holders_and_the_next_jobs(cli_store: CliStore) -> None:
    held, ids = limited(cli_store, jobs=15)

    key = cli_store.run_json("limits", "show", KEY)
    lines = cli_store.run("limits", "show", KEY).stdout.splitlines()

    assert [job["id"] for job in key["holders"]] == [str(job.id) for job in held]
    holder = key["holders"][0]
    assert recent(holder.pop("since"))
    assert holder == {
        "id": str(held[0].id),
        "type": "send",
        "tenant": "acme",
        "queue": "web",
        "worker": str(held[0].worker),
        "worker_name": "ship:1",
    }
    assert [job["id"] for job in key["waiters"]] == [id for id in ids if id not in {str(job.id) for job in held}][:10]
    assert list(key["waiters"][0]) == ["id", "type", "tenant", "queue", "priority", "run_at"]
    assert key["waiting"] == 13
    assert lines[0] == f"{KEY}  2 at a time: 2 of 2 in use"
    assert lines[2] == "held by:"
    assert lines[3].startswith(f"{held[0].id}\tsend\tacme\tship:1\t")
    assert "waiting: 13 jobs, the next 10:" in lines


def test_a_rate_is_shown_with_its_tokens(cli_store: CliStore) -> None:
    cli_store.call(lambda store: store.declare([Rule(name="wikidata", period=600.0, burst=3)]))
    cli_store.enqueue(2, limits=("wikidata",))
    assert len(cli_store.claim_jobs()) == 2

    (row,) = cli_store.run_json("limits")["limits"]
    left = cli_store.run("limits", "show", "wikidata").stdout.splitlines()[0]
    cli_store.enqueue(2, limits=("wikidata",))
    assert len(cli_store.claim_jobs()) == 1
    (empty,) = cli_store.run_json("limits")["limits"]

    assert (row["most"], row["period"], row["burst"], row["used"], row["free_in"]) == (None, 600.0, 3, 2, 0.0)
    assert left == "wikidata  1 per 10m, 3 at once: 1 of 3 tokens left"
    assert (empty["used"], empty["waiting"]) == (3, 1)
    assert cli_store.run("limits").stdout.split("\t")[2] == "3/3"
    assert 0 < empty["free_in"] <= 600
    output = cli_store.run("limits", "show", "wikidata").stdout
    assert re.search(r"^  the next token is free in (10m|9m\d+s)$", output, re.MULTILINE)
    assert "running jobs that took a token:" in output


def test_a_hold_gives_no_slot_and_no_token(cli_store: CliStore) -> None:
    cli_store.call(lambda store: store.declare([Rule(name="domain", most=2)]))
    cli_store.enqueue(limits=(KEY,))

    output = cli_store.run("limits", "hold", KEY, "2m")
    shorter = cli_store.run("limits", "hold", KEY, "30s")

    assert cli_store.claim_jobs() == []
    assert output.stdout.startswith(f"{KEY} is held back for ")
    assert output.stderr == ""
    assert shorter.stderr == "windlass: a longer hold was in effect already, and stays; 30s changed nothing\n"
    assert 60 < cli_store.run_json("limits")["limits"][0]["held"] <= 120
    assert re.search(r"^  held back for (2m|1m\d+s) more$", cli_store.run("limits", "show", KEY).stdout, re.MULTILINE)
    document = cli_store.run_json("limits", "hold", KEY, "5m")
    assert (list(document), document["key"]) == (["key", "held"], KEY)
    assert 290 < document["held"] <= 300
    (row,) = cli_store.run_json("limits")["limits"]
    assert 290 < row["free_in"] == pytest.approx(row["held"])


def test_a_hold_is_ended_and_both_are_in_the_audit(cli_store: CliStore) -> None:
    cli_store.call(lambda store: store.declare([Rule(name="domain", most=2)]))
    cli_store.enqueue(limits=(KEY,))
    held = cli_store.run("limits", "hold", KEY, "2m", WINDLASS_ACTOR="ann")
    cli_store.run("limits", "hold", KEY, "30s", WINDLASS_ACTOR="ann")  # changes nothing
    assert cli_store.claim_jobs() == []

    output = cli_store.run("limits", "release", KEY, WINDLASS_ACTOR="bob")
    again = cli_store.run("limits", "release", KEY, WINDLASS_ACTOR="bob")

    assert held.stdout.splitlines()[-1] == f"  → windlass limits release {KEY}"
    assert output.stdout == (
        f"{KEY} is no longer held back\n  the next job may start: now; workers know within a second\n"
    )
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", f"windlass: {KEY} is not held back\n")
    assert cli_store.run_json("limits", "release", KEY) == {"key": KEY, "released": False}
    assert len(cli_store.claim_jobs()) == 1
    assert [line.split("\t")[1:] for line in cli_store.run("audit").stdout.splitlines()] == [
        ["LIMIT_RELEASED", f"limit:{KEY}", "", "bob", ""],
        ["LIMIT_HELD", f"limit:{KEY}", "", "ann", "for 2m"],
    ]


def test_a_name_that_jobs_count_against_without_a_key_is_held_beside_its_keys(file_cli_store: CliStore) -> None:
    limited(file_cli_store, jobs=1)
    file_cli_store.enqueue(limits=("domain",))
    assert len(file_cli_store.claim_jobs()) == 1

    assert file_cli_store.run("limits", "hold", "domain", "2m").exit_code == 0


def test_at_a_terminal_a_rate_shows_what_is_left_and_a_hold_breaks_between_words(file_cli_store: CliStore) -> None:
    file_cli_store.call(lambda store: store.declare([Rule(name="wikidata", period=600.0, burst=3)]))
    file_cli_store.enqueue(2, limits=("wikidata",))
    file_cli_store.claim_jobs()

    seen, _ = file_cli_store.run_in_terminal("limits", NO_COLOR="1")
    held, _ = file_cli_store.run_in_terminal("limits", "hold", "wikidata", "2m", width=60, NO_COLOR="1")

    assert " 1 left of 3 " in seen.splitlines()[1]
    assert held.splitlines()[1:] == [
        "  running jobs finish; no slot and no token is given until",
        "  then; workers know within a second",
        "  → windlass limits release wikidata",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "domain:example.com"), "the key 'domain:example.com' is not in use: no job with it has been claimed"),
        (("show", "domain:example.com"), f"did you mean '{KEY}'?"),
        (("show", "zzz"), "see the keys in use: windlass limits"),
        (("show",), "Missing argument 'KEY'"),
        (("hold", "nothing", "2m"), "no limit or rate is called 'nothing'"),
        (("hold", KEY, "0s"), "is no duration above 0"),
        (("hold", KEY, "soon"), "TIME: 'soon' is not a duration; write it like 30s, 2m or 1h30m"),
        (("hold", KEY, "2d"), "is more than 1d, the longest hold; pause instead: windlass gates"),
        (("hold", KEY), "Missing argument 'TIME'"),
        (("hold", "domain", "2m"), f"domain has a key per value; name one, as in {KEY} (windlass limits domain lists"),
        (("hold", "domain", "2m"), "for all of them: windlass gates pause --type"),
        (("release", "zzz"), "see the keys in use: windlass limits"),
        (("list", "-n", "0"), "0 is not in the range"),
    ],
)
def test_an_invalid_key_or_time_is_refused(cli_store: CliStore, arguments: tuple[str, ...], message: str) -> None:
    limited(cli_store)

    result = cli_store.run("limits", *arguments)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert cli_store.run_json("limits")["limits"][0]["held"] == 0


def test_a_hold_of_a_misspelt_key_gets_a_note_on_stderr(cli_store: CliStore) -> None:
    limited(cli_store)

    assert "did you mean 'domain:example.org'?" in cli_store.run("limits", "hold", "domain:exmaple.org", "1s").stderr


def test_a_job_at_a_full_limit_says_what_it_waits_for(cli_store: CliStore) -> None:
    held, ids = limited(cli_store)
    waiting = next(id for id in ids if id not in {str(job.id) for job in held})

    output = cli_store.run("jobs", "show", waiting).stdout
    record = cli_store.run_json("jobs", "show", waiting)

    assert output.startswith(
        f"Waits for limit {KEY} (2 of 2 in use).\n\nsend  queued, waits for limit {KEY} (2 of 2 in use)\n"
    )
    assert f"  limits    {KEY}\n" in output
    assert f", waits for limit {KEY} (2 of 2 in use)\n" in output
    assert (record["limits"], record["parked_on"]) == ([KEY], KEY)
    assert f"waits for limit {KEY} (2 of 2 in use)" in cli_store.run("jobs", "list", f"id:{waiting}").stdout


def test_a_job_at_a_rate_and_at_a_hold_says_so(cli_store: CliStore) -> None:
    cli_store.call(lambda store: store.declare([Rule(name="wikidata", period=600.0, burst=1)]))
    cli_store.enqueue(2, limits=("wikidata",))
    (held,) = cli_store.claim_jobs()
    (waiting,) = [job["id"] for job in cli_store.run_json("jobs", "list", "state:queued")["jobs"]]
    assert waiting != str(held.id)

    at_rate = cli_store.run("jobs", "show", waiting).stdout.splitlines()[2]
    cli_store.run("limits", "hold", "wikidata", "2h")
    story, _, at_hold, *_ = cli_store.run("jobs", "show", waiting).stdout.splitlines()

    assert at_rate.startswith("send  queued, waits for rate wikidata (1 per 10m, next token in ")
    assert re.fullmatch(r"Waits for wikidata, which is held back for (2 h|1 h \d\d m) more\.", story)
    assert re.fullmatch(r"send  queued, waits for rate wikidata \(held back for (2h|1\d\dm) more\)", at_hold)


def test_no_key_in_use_says_so(file_cli_store: CliStore) -> None:
    assert file_cli_store.run("limits").stderr.startswith("no key of a limit or rate is in use")
    assert file_cli_store.run_json("limits") == {"limits": [], "total": 0}


def test_many_keys_are_cut_and_the_rest_is_counted(file_cli_store: CliStore) -> None:
    file_cli_store.call(lambda store: store.declare([Rule(name="domain", most=2)]))
    for number in range(4):
        file_cli_store.enqueue(limits=(f"domain:host-{number}.example.org",))
    assert len(file_cli_store.claim_jobs()) == 4

    seen, _ = file_cli_store.run_in_terminal("limits", "-n", "3", width=50, NO_COLOR="1")

    assert file_cli_store.run_json("limits", "-n", "3")["total"] == 4
    assert len(file_cli_store.run_json("limits", "-n", "3")["limits"]) == 3
    assert max(map(len, seen.splitlines())) <= 50
    assert seen.splitlines()[0].split() == ["KEY", "IN", "USE", "WAITING", "ROOM"]
    assert seen.splitlines()[-1] == "1 more: windlass limits list -n 4"
