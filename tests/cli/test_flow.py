"""What operators see of the flow and do to it: the audit, signals, parents and children, and waiting jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from windlass.cli.show.live_log import describe_flow
from windlass.clock import SystemClock
from windlass.model.flow import Advance, Flow, FollowUp, Memory, Moment, Spawn, Waiting
from windlass.model.job import Edge, NewJob, Wait, new_id
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.store import make_store
from windlass.store.protocol import Store

from .cli_store import CliStore

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def parent_of(cli_store: CliStore, count: int, **options: Any) -> tuple[UUID, list[UUID]]:
    """A job that waits for the children that it created."""
    (id,) = cli_store.enqueue(**options)
    job = cli_store.claim_one(cli_store.register_worker())
    children = [NewJob(id=new_id(), type="send", input="{}", parent=id) for _ in range(count)]
    spawns = tuple(Spawn(name=f" page-{number}", job=child) for number, child in enumerate(children))
    wait = Wait(edges=tuple(Edge(child.id) for child in children), need=count)
    flow = Flow(spawns=spawns, wait=wait, memories=(Memory("charge", "17"), Memory(" wait 00ff", "1")))
    settled = cli_store.call(
        lambda store: store.finish([Transition(lease=job.lease, verb=Verb.WAIT, flow=flow, followed=job.followed)])
    )
    assert settled.states[id] == "waiting"
    return id, [child.id for child in children]


def waiting_for(cli_store: CliStore, signal: str, delay: float | None = None) -> UUID:
    return cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(signal=signal, delay=delay)))


# The audit


def test_the_audit_tells_what_operators_did_newest_first(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue()
    cli_store.run("jobs", "cancel", str(job), WINDLASS_ACTOR="ann")
    cli_store.run("jobs", "resume", str(job), WINDLASS_ACTOR="ben@ship")

    rows = [line.split("\t") for line in cli_store.run("audit").stdout.splitlines()]

    assert [row[1:6] for row in rows] == [
        ["JOB_RESUMED", str(job), "send", "ben@ship", ""],
        ["JOB_CANCELLED", str(job), "send", "ann", ""],
    ]
    assert datetime.fromisoformat(rows[0][0]).tzinfo is not None


def test_without_a_name_the_audit_has_user_and_host(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue()

    cli_store.run("jobs", "cancel", str(job), LOGNAME="ann", WINDLASS_ACTOR="")

    (row,) = cli_store.run_json("audit")["audit"]
    assert row["actor"].startswith("ann@")


def test_the_audit_is_narrowed_and_paged(cli_store: CliStore) -> None:
    jobs = cli_store.enqueue(4)
    cli_store.run("jobs", "cancel", *map(str, jobs))
    cli_store.run("jobs", "resume", str(jobs[0]))

    assert [row["action"] for row in cli_store.run_json("audit", "--job", jobs[0].hex[-8:])["audit"]] == [
        "JOB_RESUMED",
        "JOB_CANCELLED",
    ]
    first = cli_store.run_json("audit", "--action", "JOB_CANCELLED", "-n", "3")
    second = cli_store.run_json("audit", "--action", "JOB_CANCELLED", "-n", "3", "--below", str(first["next"]))
    assert {row["job"] for row in first["audit"] + second["audit"]} == set(map(str, jobs))
    assert (len(first["audit"]), len(second["audit"]), second["next"]) == (3, 1, None)


def test_the_audit_outlives_its_job(cli_store: CliStore) -> None:
    dead = cli_store.fail_job(verb=Verb.BURY, action="JOB_DEAD")
    cli_store.run("jobs", "discard", str(dead), "--yes")

    actions = [row["action"] for row in cli_store.run_json("audit", "--job", str(dead))["audit"]]
    short = cli_store.run("audit", "--job", dead.hex[-8:])

    assert actions == ["JOB_DISCARDED", "JOB_DEAD"]
    assert short.exit_code == 2
    assert "for a job that no longer exists, write the whole id" in short.stderr


def test_an_empty_audit_says_where_it_looked(file_cli_store: CliStore) -> None:
    result = file_cli_store.run("audit", "--action", "job_dead")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "the audit has no row with the action JOB_DEAD in sqlite:///" in result.stderr
    assert "where it is kept for 90d" in result.stderr


def test_the_audit_is_a_table_at_a_terminal(file_cli_store: CliStore) -> None:
    file_cli_store.finish_job(Verb.SUCCEED, action="EMAIL_SENT")
    (job,) = file_cli_store.enqueue()
    file_cli_store.run("jobs", "cancel", str(job), WINDLASS_ACTOR="ann")

    seen, _ = file_cli_store.run_in_terminal("audit", "-n", "1", NO_COLOR="1")

    heading, row, more = seen.splitlines()
    assert heading.split() == ["WHEN", "ACTION", "JOB", "TYPE", "ACTOR", "REASON"]
    assert row.split()[2:] == ["JOB_CANCELLED", job.hex[-8:], "send", "ann"]
    assert more.startswith("more: windlass audit -n 1 --below ")


def test_a_narrow_audit_keeps_actor_and_reason(file_cli_store: CliStore) -> None:
    file_cli_store.run(
        "gates", "pause", "--queue", "mail", "--reason", "the server moves", WINDLASS_ACTOR="ann@ship.example"
    )

    seen, _ = file_cli_store.run_in_terminal("audit", width=80, NO_COLOR="1")

    heading, row = seen.splitlines()
    assert heading.split() == ["WHEN", "ACTION", "JOB", "ACTOR", "REASON"]
    assert "ann@ship" in row
    assert "the server" in row


def test_the_audit_is_in_the_order_of_time_whichever_process_wrote_it(cli_store: CliStore) -> None:
    first, second, third = cli_store.enqueue(3)

    async def cancel_by_turns(store: Store) -> None:
        other = make_store(cli_store.settings, SystemClock())
        await other.open()
        try:
            await store.operate(Verb.CANCEL, first)
            await other.operate(Verb.CANCEL, second)
            await store.operate(Verb.CANCEL, third)
        finally:
            await other.close()

    cli_store.call(cancel_by_turns)

    assert [row["job"] for row in cli_store.run_json("audit")["audit"]] == [str(third), str(second), str(first)]
    page = cli_store.run_json("audit", "-n", "2")
    assert [row["job"] for row in cli_store.run_json("audit", "--below", str(page["next"]))["audit"]] == [str(first)]


# Signals


@pytest.mark.parametrize(
    ("words", "received"),
    [((), None), (("17",), 17), (('{"by": "ann"}',), {"by": "ann"}), (("yes, please",), "yes, please"), (("-5",), -5)],
)
def test_a_signal_wakes_the_job_that_waits_for_it(cli_store: CliStore, words: tuple[str, ...], received: Any) -> None:
    job = waiting_for(cli_store, "approved")

    result = cli_store.run("jobs", "signal", job.hex[-8:], "approved", *words)

    assert (result.exit_code, result.stdout) == (0, f"signal approved sent to send {job}\n")
    assert cli_store.status(job) == "queued"
    kept = cli_store.call(lambda store: store.recall(job)).signals
    assert json.loads(kept["approved"]) == received


def test_the_first_signal_of_a_name_counts(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue()
    assert cli_store.run_json("jobs", "signal", str(job), "approved", "1") == {
        "id": str(job),
        "name": "approved",
        "sent": True,
    }

    again = cli_store.run("jobs", "signal", str(job), "approved", "2")

    assert again.exit_code == 1
    assert again.stderr == f"windlass: job {job} was sent the signal 'approved' before; only the first one counts\n"
    assert cli_store.run_json("jobs", "signal", str(job), "approved", code=1)["sent"] is False
    assert cli_store.call(lambda store: store.recall(job)).signals == {"approved": "1"}


def test_a_signal_to_a_job_that_has_ended_is_refused(cli_store: CliStore) -> None:
    job = cli_store.finish_job(Verb.SUCCEED)

    result = cli_store.run("jobs", "signal", str(job), "approved")

    assert result.exit_code == 1
    assert "succeeded" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((str(uuid4()), "x"), "there is no job"),
        (("nonsense", "x"), "is not a job id"),
        (("123456", "a\nb"), "the signal's name contains a control character"),
        (("123456", "x", "9" * 30), "VALUE is an integer beyond 64 bits"),
        (("123456", "x", '"\\u0000"'), "VALUE contains U+0000"),
        (("123456", "x", "[" * 100 + "]" * 100), "VALUE"),
    ],
)
def test_a_wrong_signal_is_one_line_and_exit_2(
    file_cli_store: CliStore, arguments: tuple[str, ...], message: str
) -> None:
    result = file_cli_store.run("jobs", "signal", *arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


# One job and its linked jobs


def test_a_parent_is_shown_with_its_children_steps_and_audit(cli_store: CliStore) -> None:
    job, children = parent_of(cli_store, 3)
    cli_store.run("jobs", "cancel", str(children[1]), WINDLASS_ACTOR="ann")
    cli_store.call(lambda store: store.signal(job, "approved", "true"))

    output = cli_store.run("jobs", "show", str(job)).stdout
    document = cli_store.run_json("jobs", "show", str(job))

    assert "steps     charge\n" in output
    assert "signals   approved\n" in output
    assert "Children  (2 queued, 1 cancelled)\n" in output
    assert f"  page-1  {children[1]}  cancelled\n" in output
    assert [(link["name"], link["state"]) for link in document["links"]] == [
        ("page-0", "queued"),
        ("page-1", "cancelled"),
        ("page-2", "queued"),
    ]
    assert (document["steps"], document["signals"]) == (["charge"], ["approved"])
    assert [row["action"] for row in document["audit"]] == ["JOB_SIGNALLED"]
    child = cli_store.run("jobs", "show", str(children[1])).stdout
    assert f"parent    {job}\n" in child
    assert "JOB_CANCELLED by ann\n" in child


def test_of_many_children_the_first_are_shown_and_the_rest_counted(file_cli_store: CliStore) -> None:
    job, children = parent_of(file_cli_store, 25)

    output = file_cli_store.run("jobs", "show", str(job)).stdout

    assert sum(str(child) in output for child in children) == 20
    assert f"… 5 more: windlass jobs list parent:{job}\n" in output
    assert len(file_cli_store.run_json("jobs", "show", str(job))["links"]) == 25


def test_a_job_that_was_there_before_is_no_child(cli_store: CliStore) -> None:
    (other,) = cli_store.enqueue(queue="elsewhere")
    (job,) = cli_store.enqueue(wait=Wait(edges=(Edge(other),), need=1), links=(("fetch", other),))

    output = cli_store.run("jobs", "show", str(job)).stdout

    assert "Linked jobs  (1 queued)\n" in output
    assert f"  fetch  {other}  queued  not its child\n" in output


def test_consequences_are_named(cli_store: CliStore) -> None:
    follow_up = FollowUp(type="alarm", names=("id",), queue="ops", priority=0, max_attempts=4)
    (job,) = cli_store.enqueue(follow_ups=msgspec.json.encode({Moment.DEAD: follow_up}).decode())

    assert "on dead   alarm\n" in cli_store.run("jobs", "show", str(job)).stdout
    assert cli_store.run_json("jobs", "show", str(job))["follow_ups"]["dead"]["type"] == "alarm"


def waits(
    need: int = 0, pending: int = 0, succeeded: int = 0, signal: str | None = None, wake_at: datetime | None = None
) -> Waiting:
    return Waiting(need=need, pending=pending, succeeded=succeeded, signal=signal, wake_at=wake_at)


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        (waits(need=3, pending=1_000, succeeded=2), "for jobs: 2 of 3 needed, 1,000 to come"),
        (waits(signal="approved"), "for the signal approved"),
        (
            waits(signal="approved", wake_at=NOW + timedelta(minutes=59)),
            "for the signal approved, until .* \\(in 59m\\)",
        ),
        (waits(wake_at=NOW - timedelta(seconds=5)), "until 2026-01-01 .* \\(5s ago\\)"),
    ],
)
def test_a_wait_is_described_in_one_line(wait: Waiting, message: str) -> None:
    import re

    from windlass.store.reasons import explain_wait

    assert re.fullmatch(f"waits {message}", explain_wait(uuid4(), wait, NOW).text)


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (Flow(), ""),
        (Flow(wait=Wait(edges=(Edge(uuid4()),), need=1)), "for 1 job"),
        (Flow(wait=Wait(edges=(Edge(uuid4()), Edge(uuid4())), need=1, delay=60.0)), "for 1 of 2 jobs, 1m at most"),
        (Flow(wait=Wait(signal="approved")), "for the signal approved"),
        (Flow(wait=Wait(delay=259_200.0)), "for 3d"),
        (Flow(advance=Advance(type="t", phase="form", phase_rank=1, queue="q", max_attempts=4)), "form"),
    ],
)
def test_what_a_run_leaves_to_wait_for_is_described_for_the_log(flow: Flow, message: str) -> None:
    assert describe_flow(flow) == message


# Lists


def test_a_list_shows_the_phase_and_finds_by_parent_pipeline_phase_and_key(cli_store: CliStore) -> None:
    (job,) = cli_store.enqueue(pipeline="site", phase="form", key="example.org")
    (child,) = cli_store.enqueue(parent=job)

    def found(*words: str) -> list[str]:
        return [item["id"] for item in cli_store.run_json("jobs", "list", *words)["jobs"]]

    assert found(f"parent:{job}") == [str(child)]
    assert found("pipeline:site") == found("phase:form") == found("key:example.org") == [str(job)]
    assert "\tsite: form · " in cli_store.run("jobs", "pipeline:site").stdout


def test_a_state_is_shown_with_the_programs_own_name_for_it(program_dir: Path, cli_store: CliStore) -> None:
    (program_dir / "own.py").write_text(
        "from windlass import Windlass\n"
        f"app = Windlass({cli_store.url!r})\n"
        "@app.job(labels={'queued': 'not-started'})\n"
        "def send(): ...\n"
    )
    (job,) = cli_store.enqueue()

    assert "\tqueued (not-started)\t" in cli_store.run("jobs", "list", "-a", "own.py").stdout
    assert "label     not-started\n" in cli_store.run("jobs", "show", str(job), "-a", "own.py").stdout
    assert cli_store.run_json("jobs", "show", str(job), "-a", "own.py")["label"] == "not-started"
    assert cli_store.run_json("jobs", "show", str(job))["label"] is None


# Cancel


def test_a_cancel_of_a_parent_mentions_its_children(cli_store: CliStore) -> None:
    job, children = parent_of(cli_store, 2)

    result = cli_store.run("jobs", "cancel", str(job))

    assert result.stdout == "1 job cancelled, and the jobs that they created\n"
    assert {cli_store.status(child) for child in children} == {"cancelled"}


def test_children_chosen_with_their_parent_are_counted_and_not_refused(
    cli_store: CliStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.methods.bulk.AT_ONCE", 1)  # the parent is changed first
    job, children = parent_of(cli_store, 3)

    done = cli_store.run_json("jobs", "cancel", str(job), *map(str, children))
    again = cli_store.run_json("jobs", "cancel", *map(str, children), code=1)

    assert (done["matched"], done["changed"], done["refused"]) == (4, 4, [])
    assert len(again["refused"]) == 3


def test_a_job_without_children_is_cancelled_alone(cli_store: CliStore) -> None:
    (other,) = cli_store.enqueue(queue="elsewhere")
    (job,) = cli_store.enqueue(wait=Wait(edges=(Edge(other),), need=1), links=(("fetch", other),))

    assert cli_store.run("jobs", "cancel", str(job)).stdout == "1 job cancelled\n"
    assert cli_store.status(other) == "queued"
