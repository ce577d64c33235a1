"""The sentence of the health, from the rows of one moment: which rule applies first, and its exact words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass.model.admission import BudgetRow, Gate, GateKind, GateState, TenantRow
from windlass.model.figures import BOUNDS, DepthRow, FigureRow, bucket_of
from windlass.model.job import NewJob
from windlass.model.reports.health import Health, HealthLevel, Snapshot, Trouble
from windlass.model.rows import COUNTED, DueRow, QueueRow, WorkerRow
from windlass.model.schedule import Declared, ScheduleRow, Timing
from windlass.policy.reports.health import assess

NOON = datetime(2026, 11, 16, 12, 3, 11, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def queue(name: str, *, queued: int = 0, running: int = 0, dead: int = 0, lag: float | None = None) -> QueueRow:
    return QueueRow(queue=name, queued=queued, running=running, failed=0, waiting=0, dead=dead, lag=lag)


def worker(name: str = "fly-icn-1", *, queues: tuple[str, ...] | None = None, gone: float | None = None) -> WorkerRow:
    return WorkerRow(
        id=uuid4(),
        name=name,
        started_at=ago(3_600),
        alive_until=ago(-30 if gone is None else gone),
        dead=False,
        idle=False,
        queues=queues,
        types=("send",),
        concurrency=10,
        running=0,
        now=NOON,
    )


def figure(name: str, minute: int, *, run: float = 0.5, wait: float = 0.1, **ends: int) -> FigureRow:
    """What ended in the minute that began so many minutes ago."""
    counts = {"succeeded": 0, "advanced": 0, "failed": 0, "dead": 0, "cancelled": 0} | ends
    runs, waits = [0] * (len(BOUNDS) + 1), [0] * (len(BOUNDS) + 1)
    runs[bucket_of(run)] = waits[bucket_of(wait)] = sum(counts.values())
    return FigureRow(
        at=ago(60 * minute),
        queue=name,
        phase=name,
        run_seconds=0.0,
        wait_seconds=0.0,
        runs=tuple(runs),
        waits=tuple(waits),
        **counts,
    )


def moving(name: str, per_minute: int = 60, **ends: int) -> list[FigureRow]:
    """Ten minutes, in each of which as many jobs succeeded."""
    return [figure(name, minute, succeeded=per_minute, **ends) for minute in range(10, 0, -1)]


def depths(name: str, first: int, last: int, *, running: int = 1, lag: tuple[float, float] = (0, 0)) -> list[DepthRow]:
    """Samples every ten seconds for ten minutes, on a straight line."""
    return [
        DepthRow(
            at=ago(600 - 10 * place),
            queue=name,
            queued=first + (last - first) * place // 59,
            running=running,
            failed=0,
            waiting=0,
            dead=0,
            lag=lag[0] + (lag[1] - lag[0]) * place / 59,
        )
        for place in range(60)
    ]


def gate(kind: GateKind, name: str, state: GateState = GateState.PAUSED, **fields: Any) -> Gate:
    given: dict[str, Any] = {"actor": "ada", "reason": "Graph API moves tenants", "since": ago(22 * 60 + 9)} | fields
    return Gate(kind=kind, name=name, state=state, **given)


def schedule(name: str, *, late: float) -> ScheduleRow:
    job = NewJob(id=uuid4(), type="sweep", input="{}", queue="default")
    return ScheduleRow(name=name, declared=Declared(timing=Timing(every=3600.0), job=job), next_at=ago(late), now=NOON)


def budget(name: str, *, cents: int = 500, kind: str = "tenant") -> BudgetRow:
    midnight = datetime(2026, 11, 17, tzinfo=UTC)
    return BudgetRow(kind=kind, name=name, cents=cents, seconds=86_400.0, spent=512, until=midnight)


def tenant(name: str, queued: int) -> TenantRow:
    return TenantRow(name=name, weight=1.0, queued=queued, running=0, parked=0, lag=None, cents=512)


def asked(*, due: Mapping[str, int] | None = None, **rows: Any) -> Health:
    return assess(Snapshot(now=NOON, due=[DueRow(*each) for each in (due or {}).items()], **rows))


def plain(text: str) -> str:
    """With spaces that break: easier to write in a test."""
    return text.replace("\u00a0", " ")


ENRICH: dict[str, Any] = {"queues": [queue("enrich", queued=1_284, lag=663.0)], "due": {"enrich": 1_284}}
LINKER: dict[str, Any] = {
    "queues": [queue("linker", queued=2_318, running=18, lag=472.4)],
    "due": {"linker": 2_318},
    "workers": [worker(), worker("fly-icn-2")],
    "figures": moving("linker", 294),
    "depths": depths("linker", 1_538, 2_318),
}
MAIL: dict[str, Any] = {"queues": [queue("mail", queued=412, lag=1_329.0)], "due": {"mail": 412}, "workers": [worker()]}
CALM: dict[str, Any] = {"queues": [queue("site", running=2)], "workers": [worker()], "figures": moving("site")}

TABLE: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    # rows, sentence, evidence, commands
    "no worker": (
        ENRICH | {"workers": [worker("fly-icn-2", gone=663.0)]},
        "enrich stands still: 1,284 jobs are due and no worker serves it.",
        "Its last worker, fly-icn-2, is silent since 11:52:08 UTC (11 m).",
        ["windlass worker app.py --queue enrich", "windlass jobs list state:queued,failed queue:enrich"],
    ),
    "one job and no worker": (
        {"queues": [queue("a b", queued=1, lag=1.0)], "due": {"a b": 1}, "workers": [worker(queues=("other",))]},
        "a b stands still: 1 job is due and no worker serves it.",
        "No worker of it is known.",
        ["windlass worker app.py --queue 'a b'", "windlass jobs list state:queued,failed 'queue:\"a b\"'"],
    ),
    "more jobs than are counted": (
        {"queues": [queue("mail", queued=10_001, lag=9.0)], "due": {"mail": 10_001}},
        "mail stands still: 10,000+ jobs are due and no worker serves it.",
        "No worker of it is known.",
        ["windlass worker app.py --queue mail", "windlass jobs list state:queued,failed queue:mail"],
    ),
    "stalled": (
        {
            "queues": [queue("models", queued=3, running=10, lag=21.0)],
            "due": {"models": 3},
            "workers": [worker()],
            "figures": [figure("models", minute, succeeded=4) for minute in range(20, 6, -1)],
            "depths": depths("models", 3, 3, running=10),
        },
        "models has not ended a job for 6 m, though 10 run.",
        "3 jobs are due.",
        ["windlass jobs list state:running queue:models", "windlass doctor"],
    ),
    "none starts": (
        {"queues": [queue("odd", queued=5, lag=400.0)], "due": {"odd": 5}, "workers": [worker()]},
        "odd stands still: 5 jobs are due and none starts, though one worker serves it.",
        "The oldest waits 6 m 40 s; the list says why.",
        ["windlass jobs list state:queued,failed queue:odd"],
    ),
    "errors": (
        CALM | {"figures": moving("site", 76, dead=1), "cause": "HTTPStatusError 429"},
        "One job in 77 dies: HTTPStatusError 429.",
        "10 of 770 jobs that ended in the last 10 m are dead.",
        ["windlass jobs list state:dead", "windlass jobs replay state:dead"],
    ),
    "a long error": (
        CALM | {"figures": moving("site", 76, dead=1), "cause": "HTTPStatusError 429: the ser…"},
        "One job in 77 dies: HTTPStatusError 429: the ser…",
        "10 of 770 jobs that ended in the last 10 m are dead.",
        ["windlass jobs list state:dead", "windlass jobs replay state:dead"],
    ),
    "every job dies": (
        CALM | {"figures": [figure("site", 1, dead=3)]},
        "Every job dies.",
        "3 of 3 jobs that ended in the last 10 m are dead.",
        ["windlass jobs list state:dead", "windlass jobs replay state:dead"],
    ),
    "errors of one queue": (
        {
            "queues": [queue("mail"), queue("site", running=1)],
            "workers": [worker()],
            "figures": [*moving("site", 6_000), figure("mail", 2, succeeded=6, dead=3)],
        },
        "One job in 3 of mail dies.",
        "3 of 9 jobs that left it in the last 10 m are dead.",
        ["windlass jobs list state:dead queue:mail", "windlass jobs replay state:dead queue:mail"],
    ),
    "errors of a phase that most jobs pass": (
        {
            "queues": [queue("forming"), queue("site", running=1)],
            "workers": [worker()],
            "figures": [*moving("site", 6_000), figure("forming", 2, advanced=87, dead=3)],
        },
        "One job in 30 of forming dies.",
        "3 of 90 jobs that left it in the last 10 m are dead.",
        ["windlass jobs list state:dead queue:forming", "windlass jobs replay state:dead queue:forming"],
    ),
    "lag": (
        LINKER,
        "linker falls behind: the oldest due job waits 7 m 52 s, and it takes in more than it ends.",
        "4.9 per s end and 6.2 come in; three workers would keep up, and two serve it.",
        ["windlass worker app.py --queue linker", "windlass jobs list state:queued,failed queue:linker"],
    ),
    "late": (
        CALM | {"schedules": [schedule("sweep-links", late=491.0)]},
        "sweep-links is 8 m late.",
        "It was due at 11:55:00 UTC.",
        ["windlass schedules fire sweep-links"],
    ),
    "gate": (
        MAIL | {"gates": [gate(GateKind.QUEUE, "mail")]},
        "mail is paused by ada for 22 m: 412 wait.",
        "“Graph API moves tenants”. The oldest waits 22 m 09 s.",
        ["windlass gates resume --queue mail"],
    ),
    "gate of a queue without a worker": (
        MAIL | {"gates": [gate(GateKind.QUEUE, "mail", reason=None)], "workers": []},
        "mail is paused by ada for 22 m: 412 wait.",
        "The oldest waits 22 m 09 s.",
        ["windlass gates resume --queue mail"],
    ),
    "everything drains": (
        MAIL | {"gates": [gate(GateKind.ALL, "", GateState.DRAINING, actor=None, reason=None)]},
        "Everything is draining for 22 m: 412 wait.",
        "",
        ["windlass gates resume --all"],
    ),
    "gate of a tenant": (
        CALM | {"gates": [gate(GateKind.TENANT, "acme", reason=None)], "tenants": [tenant("acme", 1)]},
        "Tenant acme is paused by ada for 22 m: 1 waits.",
        "",
        ["windlass gates resume --tenant acme"],
    ),
    "gate of a type": (
        MAIL | {"figures": moving("mail"), "gates": [gate(GateKind.TYPE, "send", reason=None)]},
        "Type send is paused by ada for 22 m.",
        "",
        ["windlass gates resume --type send"],
    ),
    "budget": (
        CALM | {"budgets": [budget("acme")], "tenants": [tenant("acme", 38)]},
        "acme has spent its day: 38 wait until 00:00 UTC.",
        "512 of 500 cents of the tenant are spent.",
        ["windlass budgets set --tenant acme CENTS --per day"],
    ),
    "well": (
        CALM | {"queues": [queue("site", queued=4, running=2, lag=1.4)], "due": {"site": 4}},
        "All is well: every queue moves, nothing waits longer than 2 s.",
        "600 jobs ended in the last 10 m; 2 of 10 slots are in use.",
        [],
    ),
    "idle": (
        {"queues": [queue("site")], "workers": [worker() for _ in range(7)]},
        "All is quiet: nothing is due. Seven workers are ready.",
        "0 jobs ended in the last 10 m; 0 of 70 slots are in use.",
        [],
    ),
    "nothing at all": (
        {},
        "All is quiet: nothing is due. No worker is ready.",
        "0 jobs ended in the last 10 m; 0 of 0 slots are in use.",
        [],
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_sentence_is_that_of_the_table(case: str) -> None:
    rows, sentence, evidence, commands = TABLE[case]

    health = asked(**rows)

    assert (plain(health.sentence), plain(health.evidence)) == (sentence, evidence)
    assert [step.command for step in health.actions] == commands
    assert health.ok == (not commands)
    assert not health.findings


QUIET: dict[str, dict[str, Any]] = {
    "a long queue that does not grow": LINKER | {"depths": depths("linker", 2_400, 2_318)},
    "a burst that is half done": LINKER
    | {"depths": [*depths("linker", 0, 900)[:20], *depths("linker", 9_000, 2_318)[20:]]},
    "a burst of eight minutes ago": LINKER | {"depths": depths("linker", 0, 2_318)[20:]},
    "growth without a wait": LINKER | {"queues": [queue("linker", queued=2_318, running=18, lag=59.0)]},
    "jobs that take an hour": {
        "queues": [queue("reports", queued=2, running=1, lag=900.0)],
        "due": {"reports": 2},
        "workers": [worker()],
        "figures": [figure("reports", 20, run=3_000.0, succeeded=1)],
        "depths": depths("reports", 2, 2),
    },
    "one long job that no other waits for": {
        "queues": [queue("reports", running=1)],
        "workers": [worker()],
        "depths": depths("reports", 0, 0),
    },
    "jobs that began after a pause": {
        "queues": [queue("reports", running=1)],
        "workers": [worker()],
        "figures": [figure("reports", 30, succeeded=9)],
        "depths": [*depths("reports", 0, 0, running=0)[:50], *depths("reports", 0, 0)[50:]],
    },
    "two dead of three": CALM | {"figures": [figure("site", 1, succeeded=1, dead=2)]},
    "one in a hundred": CALM | {"figures": [figure("site", 1, succeeded=297, dead=3)]},
    "deaths of twenty minutes ago": CALM | {"figures": [*moving("site"), figure("site", 20, dead=50)]},
    "a closed gate without jobs": CALM | {"gates": [gate(GateKind.QUEUE, "mail")]},
    "an open gate": MAIL | {"figures": moving("mail"), "gates": [gate(GateKind.QUEUE, "mail", GateState.OPEN)]},
    "a spent budget without jobs": CALM | {"budgets": [budget("acme")]},
    "a tick of half a minute ago": CALM | {"schedules": [schedule("sweep-links", late=29.0)]},
}


@pytest.mark.parametrize("case", QUIET)
def test_what_needs_no_look_is_no_finding(case: str) -> None:
    health = asked(**QUIET[case])

    assert health.level is HealthLevel.WELL, health.sentence


def test_the_first_rule_that_applies_is_the_sentence_and_the_rest_are_findings() -> None:
    """Given a noon with four troubles, the worst is the sentence, and its evidence counts the others."""
    health = asked(
        queues=[*MAIL["queues"], *ENRICH["queues"], queue("site", running=2)],
        due={"mail": 412, "enrich": 1_284},
        workers=[worker(queues=("mail", "site")), worker("fly-icn-2", queues=("enrich",), gone=663.0)],
        gates=[gate(GateKind.QUEUE, "mail")],
        schedules=[schedule("sweep-links", late=491.0)],
        figures=moving("site", 76, dead=1),
    )

    assert health.level is HealthLevel.BAD
    assert health.sentence.startswith("enrich stands still")
    assert plain(health.evidence).endswith("(11 m). Three more things need a look.")
    assert [each.trouble for each in health.findings] == [Trouble.ERRORS, Trouble.LATE, Trouble.GATE]
    assert [row.queue for row in health.queues] == ["enrich", "mail", "site"]
    assert [row.trouble for row in health.queues] == [Trouble.NO_WORKER, Trouble.GATE, None]
    assert [row.empties for row in health.queues] == ["never", "when opened", "empty"]


def test_at_most_five_further_findings_and_the_largest_first() -> None:
    names = [f"q{place}" for place in range(8)]
    health = asked(queues=[queue(name, lag=9.0) for name in names], due={name: int(name[1:]) + 1 for name in names})

    assert health.sentence.startswith("q7 stands still: 8 jobs")
    assert health.evidence.endswith("Seven more things need a look.")
    assert [each.name for each in health.findings] == ["queue:q6", "queue:q5", "queue:q4", "queue:q3", "queue:q2"]


def test_a_queue_says_when_it_will_be_empty() -> None:
    (linker,) = asked(**LINKER).queues

    assert (linker.slots, linker.workers, linker.workers_needed, linker.growing) == (20, 2, 3, True)
    assert linker.per_second == pytest.approx(4.9)
    assert linker.empty_in == pytest.approx(2_318 / 4.9)
    assert plain(linker.empties) == "7 m 53 s"
    (counted,) = asked(**LINKER | {"due": {"linker": COUNTED + 1}}).queues
    assert plain(counted.empties) == "over 34 m 01 s"  # more are due than were counted
    assert (linker.wait_p95, linker.dead_share) == (0.2, 0.0)


def test_a_job_that_goes_on_to_its_next_phase_counts_as_one_that_did_not_die() -> None:
    (site,) = asked(queues=[queue("site")], figures=[figure("site", 1, advanced=8, dead=2)]).queues

    assert site.dead_share == 0.2


def test_a_program_that_began_a_minute_ago_is_not_divided_by_ten() -> None:
    rows: dict[str, Any] = {
        "queues": [queue("mail", queued=60, running=1, lag=1.0)],
        "due": {"mail": 60},
        "workers": [worker()],
    }

    (mail,) = asked(**rows, figures=[figure("mail", 1, succeeded=120)]).queues

    assert (mail.per_second, mail.empty_in) == (2.0, 30.0)


def test_beyond_what_is_counted_the_lag_tells_that_a_queue_grows() -> None:
    rows = LINKER | {"depths": depths("linker", 10_001, 10_001, lag=(100.0, 472.0)), "due": {"linker": 10_001}}

    health = asked(**rows)

    assert health.sentence.startswith("linker falls behind")
    assert plain(health.evidence) == "4.9 per s end."
    assert health.queues[0].workers_needed is None


def test_a_number_of_which_a_part_was_not_counted_says_more() -> None:
    health = assess(Snapshot(now=NOON, queues=[queue("mail", lag=9.0)], due=[DueRow("mail", 5_715, 5_714)]))

    assert health.sentence == "mail stands still: 5,714+ jobs are due and no worker serves it."


def test_units_do_not_break() -> None:
    rows, _, _, _ = TABLE["lag"]

    assert "7\u00a0m\u00a052\u00a0s," in asked(**rows).sentence


def test_a_health_is_json() -> None:
    decoded = msgspec.json.decode(msgspec.json.encode(asked(**LINKER)))

    assert decoded["level"] == "warning"
    assert decoded["actions"][0]["kind"] == "copy"
