"""Health, overview, facets, suggestions and dry runs from a program: blocking and awaited, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from servers import url_of
from windlass import ConfigError, Dead, FilterError, JobType, Windlass, limit, unique
from windlass.documents import health_document, overview_document
from windlass.model.filter import parse
from windlass.model.reports.health import HealthLevel, Trouble
from windlass.policy.reports.overview import grid_of
from windlass.policy.suggestions import term_at
from windlass.store.protocol import NewWorker
from windlass.testing import Harness, harness

Read = Callable[..., Any]


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture
def send(app: Windlass) -> JobType[..., str]:
    @app.job(queue="mail", max_attempts=1, unique="to", limits=[limit("host", 1)])
    def send(to: str, again: bool = False) -> str:
        if to.startswith("nowhere"):
            raise Dead("no such address, password=hunter2")
        return f"sent to {to}"

    return send


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, send: JobType[..., str]) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


@pytest.fixture(params=["blocking", "async"])
def read(request: pytest.FixtureRequest, app: Windlass) -> Read:
    """A call by its name: the one that waits, and the one that is awaited."""

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        if request.param == "blocking":
            return getattr(app, name)(*arguments, **options)
        return asyncio.run(getattr(app, f"a{name}")(*arguments, **options))

    return call


def register(app: Windlass, *, queues: tuple[str, ...] | None = None, types: tuple[str, ...] = ("send",)) -> None:
    worker = NewWorker(id=uuid4(), name="host:1", lease=86_400.0, queues=queues, types=types, concurrency=3)
    app._client.ask(lambda store: store.register(worker))


# Health


def test_a_queue_without_a_worker_is_the_sentence(bench: Harness, send: JobType[..., str], read: Read) -> None:
    send.enqueue("ann")
    send.options(delay="1h").enqueue("later")

    health = read("health")

    assert health.sentence == "mail stands still: 1 job is due and no worker serves it."
    assert (health.level, health.ok) == (HealthLevel.BAD, False)
    assert [(row.queue, row.due, row.trouble) for row in health.queues] == [("mail", 1, Trouble.NO_WORKER)]


def test_a_paused_queue_and_a_paused_tenant_are_findings(
    bench: Harness, app: Windlass, send: JobType[..., str]
) -> None:
    register(app)
    send.enqueue("ann")
    send.options(tenant="acme").enqueue("bob")
    app.pause(queue="mail", reason="the server moves")
    app.pause(tenant="acme")
    bench.clock.advance("5m")

    health = app.health()

    assert health.sentence == "mail is paused by ann for 5\u00a0m: 2 wait."
    assert health.evidence == "“the server moves”. The oldest waits 5\u00a0m. One more thing needs a look."
    assert [each.sentence for each in health.findings] == ["Tenant acme is paused by ann for 5\u00a0m: 1 waits."]
    assert health.queues[0].empties == "when opened"


def test_the_most_frequent_error_is_the_cause_and_no_secret_is_told(
    bench: Harness, app: Windlass, send: JobType[..., str]
) -> None:
    for number in range(3):
        send.enqueue(f"nowhere {number}")
    bench.drain(raise_errors=False)

    health = app.health()

    assert health.sentence == "Every job dies: Dead: no such address, password=[redacted]."
    assert health.level is HealthLevel.BAD


def test_a_cause_does_not_repeat_a_hidden_argument(bench: Harness, app: Windlass) -> None:
    @app.job(max_attempts=1)
    def log_in(password: str) -> None:
        raise ValueError(f"the server refused {password}")

    for _ in range(3):
        log_in.enqueue("kqxcanary")
    bench.drain(raise_errors=False)

    assert app.health().sentence == "Every job dies: ValueError: the server refused [redacted]."


def test_an_empty_store_is_quiet(bench: Harness, read: Read) -> None:
    health = read("health")

    assert (health.level, health.ok) == (HealthLevel.IDLE, True)
    assert health.sentence == "All is quiet: nothing is due. No worker is ready."
    assert msgspec.json.decode(msgspec.json.encode(health_document(health)))["ok"] is True


# Overview


def test_an_overview_has_the_first_start_of_each_version_in_the_range(
    bench: Harness, app: Windlass, read: Read
) -> None:
    for version, later in (("old", "2h"), ("new", "5m"), ("new", "5m"), (None, "5m")):
        worker = NewWorker(
            id=uuid4(), name="host:1", lease=86_400.0, queues=None, types=("send",), concurrency=3, version=version
        )
        app._client.ask(lambda store, worker=worker: store.register(worker))  # type: ignore[misc]
        bench.clock.advance(later)

    overview = read("overview", "1h")

    (deploy,) = overview.deploys
    assert deploy.version == "new"
    assert (overview.at - deploy.at).total_seconds() == pytest.approx(15 * 60, abs=1)


def test_an_overview_has_figures_of_the_range_and_of_the_one_before(
    bench: Harness, app: Windlass, send: JobType[..., str], read: Read
) -> None:
    """Given four successes an hour and a half ago, and one success and one death now."""
    for name in ("a", "b", "c", "d"):
        send.enqueue(name)
    bench.drain()
    bench.clock.advance("90m")
    send.enqueue("nowhere")
    send.enqueue("e")
    bench.drain(raise_errors=False)
    send.enqueue("f")
    app.pause(queue="mail")
    bench.clock.advance("10s")  # the span in which no worker has sampled yet
    app._client.ask(lambda store: store.sample_depths())

    overview = read("overview", "1h")

    figures = {figure.name: figure for figure in overview.figures}
    assert list(figures) == ["due", "running", "ended", "errors", "wait", "run"]
    assert (overview.step, len(overview.steps)) == (60.0, 60)
    assert sum(step.succeeded for step in overview.steps) == 1
    assert sum(step.dead for step in overview.steps) == 1
    assert overview.steps[-1].at <= overview.at < overview.steps[-1].at + timedelta(minutes=1)
    assert (figures["errors"].value, figures["errors"].before) == (0.5, 0.0)
    assert figures["ended"].before == pytest.approx(4 / 3600)
    assert figures["ended"].said == "2 in the last 1\u00a0h"
    assert all(len(figure.points) == 40 for figure in overview.figures)
    assert (figures["due"].value, figures["due"].points[-1]) == (1, 1)
    assert figures["errors"].points[0] is None
    (mail,) = overview.queues
    assert (len(mail.points), mail.points[-1], mail.trouble) == (30, 1, Trouble.GATE)
    assert [(row.action, row.actor) for row in overview.changes] == [("GATE_PAUSED", "ann")]
    document = msgspec.json.decode(msgspec.json.encode(overview_document(overview)))
    assert document["health"]["sentence"] == overview.health.sentence


@pytest.mark.parametrize("range", ["59s", "32d", 0])
def test_a_range_is_from_a_minute_to_a_month(app: Windlass, range: Any) -> None:
    with pytest.raises(ConfigError, match="'1m' to '31d'"):
        app.overview(range)


@pytest.mark.parametrize(
    ("length", "step", "count"),
    [(60, 10, 6), (900, 20, 45), (3_600, 60, 60), (5_400, 120, 45), (86_400, 1_440, 60), (604_800, 10_200, 60)],
)
def test_steps_are_whole_spans_and_the_last_one_has_the_present(length: int, step: int, count: int) -> None:
    now = datetime(2026, 11, 16, 12, 3, 11, tzinfo=UTC)

    grid = grid_of(now, length)

    assert (grid.step, grid.count) == (step, count)
    assert (grid.place(now), grid.place(grid.start), len(grid.times())) == (count - 1, 0, count)
    assert grid.start.timestamp() % step == 0


# Facets and suggestions


def test_facets_have_every_state(bench: Harness, send: JobType[..., str], read: Read) -> None:
    send.enqueue("nowhere")
    bench.drain(raise_errors=False)
    send.options(tenant="acme").enqueue("ann")

    facets = read("facets", "queue:mail")

    assert facets.count == 2
    assert list(facets.states) == ["queued", "running", "succeeded", "failed", "dead", "waiting", "cancelled"]
    assert {state: count for state, count in facets.states.items() if count} == {"queued": 1, "dead": 1}
    assert (facets.types, facets.tenants) == ({"send": 2}, {"acme": 1, "default": 1})
    assert read("facets", "", tenant="acme").states["dead"] == 0
    assert sum(facets.reasons.values()) == 1


def test_facets_say_whether_all_jobs_were_counted(
    bench: Harness, app: Windlass, send: JobType[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a bound of three jobs and rows: a type of one job may have others behind the rows that were read."""
    monkeypatch.setattr("windlass.methods.facets.COUNTED", 3)
    send.enqueue("ann")
    assert app.facets("type:send").complete

    app.enqueue_many(send.options(tenant="acme").call(str(number)) for number in range(3))

    assert app.facets("type:nothing").complete is False
    assert app.facets("", tenant="default").complete is False
    assert app.facets("type:nothing queue:other").complete
    assert app.facets("state:dead type:send").complete
    assert app.facets("state:queued").complete is False


def test_values_are_suggested_among_the_jobs_that_match_so_far(
    bench: Harness, send: JobType[..., str], read: Read
) -> None:
    send.enqueue("nowhere")
    bench.drain(raise_errors=False)
    send.options(tenant="acme").enqueue("ann")
    send.options(tenant="acme hall").enqueue("bob")

    found = read("suggest", "state:queued tenant:ac")

    assert [(each.text, each.count) for each in found] == [
        ("tenant:acme", 1),
        ('tenant:"acme hall"', 1),
        ("tenant:ac*", None),
    ]
    assert (found[0].start, found[0].end) == (13, 22)
    own = read("suggest", "state:queued tenant:ac", tenant="acme")
    assert [each.text for each in own] == ["tenant:acme", "tenant:ac*"]
    states = read("suggest", "state:dead, queue:mail", 11)
    assert [(each.text, each.count) for each in states][:5] == [
        ("state:dead,queued", 2),
        ("state:dead,running", 0),
        ("state:dead,succeeded", 0),
        ("state:dead,failed", 0),
        ("state:dead,dead", 1),
    ]


def test_an_error_with_a_secret_is_not_suggested(bench: Harness, send: JobType[..., str], read: Read) -> None:
    send.enqueue("nowhere")
    bench.drain(raise_errors=False)

    found = read("suggest", "error:add")

    assert [(each.text, each.said) for each in found] == [("error:add", "contains “add”, in type or message")]


@pytest.mark.parametrize(
    ("text", "first", "kind", "said"),
    [
        ("", "state:", "key", "queued, running, waiting, failed, succeeded, dead or cancelled"),
        ("te", "tenant:", "key", "the tenant"),
        ("-que", "-queue:", "key", "the queue"),
        ("state:dead inp", "input.", "key", "a value in the input, such as input.user_id:42"),
        ("frobnicate", "error:frobnicate", "value", "contains “frobnicate” in its error"),
        ("attempt:4", "attempt:4", "value", "is 4"),
        ("age:", "age:..10m", "value", "created in the last 10 minutes"),
        ("state:de", "state:dead", "value", ""),
    ],
)
def test_keys_and_readings_are_suggested(
    bench: Harness, app: Windlass, text: str, first: str, kind: str, said: str
) -> None:
    found = app.suggest(text)[0]

    assert (found.text, found.kind, found.said) == (first, kind, said)
    if kind == "value":
        parse(text[: found.start] + found.text + text[found.end :])


def test_a_mistake_is_the_only_suggestion(bench: Harness, app: Windlass) -> None:
    (unknown,) = app.suggest("agee:1h tenant:a")
    (other,) = app.suggest("state:xyz tenant:a")

    assert (unknown.kind, unknown.text) == ("mistake", "age:1h tenant:a")
    assert "did you mean 'age'" in unknown.said
    assert app.suggest("tenant:a agee:1h", 8)[0].text == "tenant:a age:1h"
    assert app.suggest("agee:1h", 7)[0].text == "age:1h"
    assert (other.kind, other.text, other.start, other.end) == ("mistake", "", 6, 18)


@pytest.mark.parametrize(
    ("text", "position", "corrected"),
    [
        ("queue:mail agee:1h", 11, "queue:mail age:1h"),
        ("-stat:dead", 0, "-state:dead"),
        ("state:queued,ded", 13, "state:queued,dead"),
        ("queue=mail", 0, "queue:mail"),
        ("state:xyz", 6, None),
        ('error:"timed', 6, None),
    ],
)
def test_an_error_of_a_filter_has_its_place(text: str, position: int, corrected: str | None) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)

    assert (caught.value.position, caught.value.corrected) == (position, corrected)


@pytest.mark.parametrize(
    ("text", "cursor", "field", "lead", "partial", "rest"),
    [
        ("state:dead", 10, "state", "state:", "dead", " " * 10),
        ("a:1 b:2 c:3", 7, "b", "b:", "2", "a:1     c:3"),
        ("state:dead ", 11, None, "", "", "state:dead "),
        ('error:"timed o', 14, "error", "error:", "timed o", " " * 14),
        ('error:"timed out" x', 12, "error", "error:", "timed", " " * 17 + " x"),
        ("-state:dead,fa", 14, "state", "-state:dead,", "fa", " " * 14),
        ("x", 99, None, "", "x", " "),
        ("x", -1, None, "", "", " "),
    ],
)
def test_the_term_at_the_cursor(text: str, cursor: int, field: str | None, lead: str, partial: str, rest: str) -> None:
    typed = term_at(text, cursor)

    assert (typed.field, typed.lead, typed.partial, typed.rest) == (field, lead, partial, rest)


# Dry runs


def test_a_dry_run_tells_what_a_job_would_meet_and_writes_nothing(
    bench: Harness, app: Windlass, send: JobType[..., str], read: Read
) -> None:
    register(app)
    held = send.enqueue("ann")
    app.pause(queue="mail", reason="the server moves")

    checks = read("dry_run", "send", {"to": "bob"}, max_attempts=2)
    taken = read("dry_run", "send", {"to": "ann"})

    assert [(check.kind, check.ok, check.said) for check in checks] == [
        ("input", True, "The input fits send(to, again)."),
        ("key", True, "Its key bob is free."),
        ("worker", True, "One worker knows this type."),
        ("wait", False, "It would wait: queue mail is paused by ann: the server moves."),
        ("place", True, "2nd in line of queue mail, with 2 attempts from zero."),
    ]
    assert checks[3].command == "windlass gates resume --queue mail"
    assert (taken[1].ok, taken[1].said) == (
        False,
        f"Its key ann is held by job {held.id}: no second job would be written.",
    )
    assert [row.id for row in app.jobs()] == [held.id]
    assert len(app.audit()) == 1


def test_a_dry_run_of_a_wrong_input_has_one_check(bench: Harness, read: Read) -> None:
    for arguments in (("send", {"too": "ann"}), ("sendd", {}), ("send", {"to": 5})):
        (check,) = read("dry_run", *arguments)
        assert (check.ok, check.kind) == (False, "input")
    (check,) = read("dry_run", "send", {"to": "ann"}, prioritie=3)
    assert "priority" in check.said


def test_a_dry_run_names_the_missing_worker(bench: Harness, app: Windlass) -> None:
    worker = app.dry_run("send", {"to": "ann"})[2]
    register(app, types=("other",))
    unknown = app.dry_run("send", {"to": "ann"})[2]

    assert (worker.said, worker.command) == (
        "No live worker serves queue mail.",
        "windlass worker app.py --queue mail",
    )
    assert unknown.said == "No live worker knows the type send."
    assert [check.kind for check in app.dry_run("send", {"to": "ann"})] == ["input", "key", "worker", "place"]


def test_only_a_dead_job_hands_its_key_to_its_copy(bench: Harness, app: Windlass) -> None:
    @app.job(max_attempts=1, unique=unique("to", states=["queued", "dead"]))
    def post(to: str) -> None:
        raise Dead("no")

    dead = post.enqueue("ann")
    bench.drain(raise_errors=False)
    queued = post.enqueue("bob")

    assert dead.dry_run()[1].said == "Its key ann is free."
    assert app.dry_run("post", {"to": "ann"})[1].ok is False
    assert queued.dry_run()[1].said == f"Its key bob is held by job {queued.id}: no second job would be written."


def test_a_dead_job_is_tried_with_another_input(bench: Harness, app: Windlass, send: JobType[..., str]) -> None:
    job = send.enqueue("nowhere")
    bench.drain(raise_errors=False)
    register(app)

    as_it_is, edited = job.dry_run(), asyncio.run(job.adry_run({"to": "ann"}))
    (wrong,) = job.dry_run({"to": 5})

    assert as_it_is[1].said == "Its key nowhere is free."  # it is its own
    assert edited[1].said == "Its key ann is free."
    assert all(check.ok for check in edited)
    assert (wrong.ok, wrong.kind) == (False, "input")
    assert job.status() == "dead"
