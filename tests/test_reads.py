"""What a program reads: `app.jobs`, `queues`, `limits`, `audit` and more, blocking and awaited, on both stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from servers import url_of
from windlass import Context, JobType, State, Windlass, fixed, limit
from windlass.errors import BlockingCall, FilterError, JobNotFound, ScheduleError, ScheduleNotFound, UnknownLimit
from windlass.methods.reads import Reads
from windlass.model.admission import GateState
from windlass.model.filter import parse
from windlass.model.rows import JobRow, Liveness, WaitKind
from windlass.store.protocol import NewWorker
from windlass.testing import Harness, ManualClock, harness

Read = Callable[..., Any]


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture
def send(app: Windlass) -> JobType[[str], str]:
    @app.job(queue="mail", retry=fixed("1m"), max_attempts=2, labels={"dead": "lost"}, limits=[limit("host", 1)])
    def send(to: str) -> str:
        if to == "nowhere":
            raise ValueError("no such address")
        return f"sent to {to}"

    app.schedule("nightly", send.call("ann"), cron="0 3 * * *", tz="Europe/Berlin")
    return send


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, send: JobType[[str], str]) -> Iterator[Harness]:
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


def register(app: Windlass, *, queues: tuple[str, ...] | None = None, lease: float = 600.0) -> None:
    worker = NewWorker(id=uuid4(), name="host:1", lease=lease, queues=queues, types=("send",), concurrency=3)
    app._client.ask(lambda store: store.register(worker))


# Jobs


def test_jobs_are_listed_newest_first_in_pages(bench: Harness, send: JobType[[str], str], read: Read) -> None:
    jobs = [send.enqueue(name).id for name in ("ann", "bob", "eve")]

    first = read("jobs", "queue:mail", count=2)
    second = read("jobs", "queue:mail", count=2, below=first[-1].id)
    again = read("jobs", parse("queue:mail"), count=2, below=str(first[-1].id))

    assert [row.id for row in first + second] == jobs[::-1]
    assert again == second
    assert read("jobs", "input.to:bob")[0].id == jobs[1]
    assert len(read("jobs")) == 3


def test_a_row_has_the_record_decoded_and_counted(bench: Harness, send: JobType[[str], str], read: Read) -> None:
    good, bad = send.enqueue("ann"), send.enqueue("nowhere")
    bench.drain()
    bench.clock.advance("2m")
    bench.drain()

    (sent,), (lost,) = read("jobs", f"id:{good.id}"), read("jobs", f"id:{bad.id}")

    assert (sent.status, sent.arguments(), sent.result(), sent.retries) == (
        State.SUCCEEDED,
        {"to": "ann"},
        "sent to ann",
        0,
    )
    assert (sent.failure(), sent.label) == (None, None)
    assert (lost.status, lost.label, lost.retries, lost.reason) == (State.DEAD, "lost", 1, "exhausted")
    assert lost.failure().message == "no such address"
    assert [attempt.outcome for attempt in lost.attempts_made()] == ["raised", "raised"]
    assert lost.result() is None


def test_a_row_can_be_sent_as_json_and_has_no_token(bench: Harness, app: Windlass) -> None:
    tokens: list[Any] = []

    @app.job
    async def look(ctx: Context) -> None:
        (row,) = await app.ajobs(f"id:{ctx.job.id}")
        shown = str(ctx.job.token) in str(ctx.job.document())
        tokens.append((ctx.job.token is not None, row.token, row.status, shown))

    job = look.enqueue()
    bench.run_one(job)

    assert tokens == [(True, None, State.RUNNING, False)]
    (row,) = app.jobs(f"id:{job.id}")
    assert msgspec.json.decode(msgspec.json.encode(row), type=JobRow) == row


def test_the_document_of_a_row_is_plain_json_with_its_decoded_input(bench: Harness, app: Windlass) -> None:
    @app.job(max_attempts=1, labels={"dead": "lost"})
    async def post(to: str, at: datetime) -> None:
        raise ValueError("no such address")

    job = post.enqueue("ann", datetime(2026, 1, 1, tzinfo=UTC))
    app.pause(queue="default", reason="the server moves")
    (waits,) = app.jobs("")
    app.resume(queue="default")
    bench.drain()
    (dead,) = app.jobs("")

    assert waits.document()["why"]["text"].endswith("the server moves")
    document = dead.document()
    assert json.loads(json.dumps(document)) == document
    assert (document["id"], document["state"], document["label"]) == (str(job.id), "dead", "lost")
    assert document["input"] == {"to": "ann", "at": "2026-01-01T00:00:00Z"}
    assert (document["output"], document["error"]["message"]) == (None, "no such address")
    assert [attempt["outcome"] for attempt in document["attempts"]] == ["raised"]
    assert {**job.record().document(), "label": "lost", "why": None} == document
    assert {"token", "lease"}.isdisjoint(document)


def test_a_stored_text_that_python_cannot_decode_stays_a_text(bench: Harness, app: Windlass) -> None:
    @app.job
    async def post(to: str) -> None: ...

    post.enqueue("ann")
    (row,) = app.jobs("")

    odd = msgspec.structs.replace(row, input='{"n": 1e999}', error="no JSON")
    assert (odd.document()["input"], odd.document()["error"]) == ('{"n": 1e999}', "no JSON")


def test_wrong_arguments_are_refused_before_the_store_is_asked(app: Windlass) -> None:
    for page in (0, 1_001, True, 2.5):
        with pytest.raises(FilterError, match="give a whole number from 1 to 1,000"):
            app.jobs(count=page)  # type: ignore[arg-type]
        with pytest.raises(FilterError, match="give a whole number from 1 to 1,000"):
            app.audit(count=page)  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="there is no field 'quue'; did you mean 'queue'"):
        app.jobs("quue:mail")
    with pytest.raises(FilterError, match="a filter is text such as"):
        app.jobs(7)  # type: ignore[arg-type]
    with pytest.raises(JobNotFound, match="is not a job id"):
        app.jobs(below="7")


def test_the_details_of_a_job_are_its_reasons_links_steps_signals_and_audit(
    bench: Harness, app: Windlass, send: JobType[[str], str]
) -> None:
    @app.job
    async def parent(ctx: Context) -> None:
        await ctx.step("first", lambda: 1)
        ctx.spawn("child", send.call("ann"))
        await ctx.wait_signal("go")

    job = parent.enqueue()
    bench.run_one(job)
    job.signal("other")
    details = job.details()

    assert [(reason.kind, reason.name) for reason in details.reasons] == [(WaitKind.SIGNAL, "go")]
    assert details.waits is not None
    assert details.waits.signal == "go"
    assert ([link.name.strip() for link in details.links], details.foreign) == (["child"], frozenset())
    assert (list(details.steps), list(details.signals)) == (["first"], ["other"])
    job.cancel()
    assert [(row.action, row.actor) for row in job.details().audit] == [
        ("JOB_CANCELLED", "ann"),
        ("JOB_SIGNALLED", "ann"),
    ]
    assert job.why() is None


# Queues, workers, and what may run


def test_queues_have_their_workers_and_gates(
    bench: Harness, app: Windlass, send: JobType[[str], str], read: Read
) -> None:
    send.enqueue("ann")
    register(app, queues=("mail",))
    register(app, queues=("other",))
    register(app, lease=0.0)

    (before,) = read("queues")
    app.pause(all=True)
    (closed,) = read("queues")
    app.pause(queue="mail", claimed="finish")
    (own,) = read("queues")

    assert (before.queue, before.queued, before.workers, before.gate) == ("mail", 1, 1, GateState.OPEN)
    assert (closed.gate, own.gate) == (GateState.PAUSED, GateState.DRAINING)
    assert [gate.describe() for gate in read("gates")] == [
        "everything is paused by ann",
        "queue mail is draining, paused by ann",
    ]


def test_workers_have_their_state_by_the_clock_of_the_store(bench: Harness, app: Windlass, read: Read) -> None:
    register(app, lease=60.0)

    (alive,) = read("workers")
    bench.clock.advance("2m")
    (silent,) = read("workers")

    assert (alive.alive, alive.state, alive.serves_queue("mail")) == (True, Liveness.BUSY, True)
    assert (silent.alive, silent.state, silent.serves_queue("mail")) == (False, Liveness.SILENT, False)


def test_limits_have_their_holders_and_waiters(bench: Harness, app: Windlass, read: Read) -> None:
    async def fill(ctx: Context) -> None:
        seen.append((await app.alimit_use("slot"), await app.alimits("slot"), await app.alimits("other")))

    seen: list[Any] = []
    fill_job = app.job(limits=[limit("slot", 1)])(fill)
    first, second = fill_job.enqueue(), fill_job.enqueue()
    bench.run_one(first)

    use, rows, others = seen[0]
    assert ([(job.id, job.token) for job in use.holders], use.waiters) == ([(first.id, None)], [])
    assert [(row.key, row.used, row.most, row.describe_use()) for row in rows] == [("slot", 1, 1, "1 of 1")]
    assert (others, use.limit) == ([], rows[0])
    assert second.status() is State.QUEUED
    assert [row.used for row in read("limits")] == [0]
    with pytest.raises(UnknownLimit, match=r"the key 'slt' is not in use.*did you mean 'slot'"):
        read("limit_use", "slt")


def test_budgets_and_tenants_are_listed(bench: Harness, app: Windlass, send: JobType[[str], str], read: Read) -> None:
    app.set_budget(tenant="acme", cents=500, per="day")
    app.set_budget(queue="mail", cents=0, per="month")
    app.set_weight("acme", 3)
    send.options(tenant="acme").enqueue("ann")

    rows = {(row.kind, row.name): row for row in read("budgets")}
    (tenant,) = [row for row in read("tenants") if row.name == "acme"]

    assert [(row.left, row.is_spent) for row in (rows["tenant", "acme"], rows["queue", "mail"])] == [
        (500, False),
        (0, True),
    ]
    assert (tenant.weight, tenant.queued) == (3.0, 1)


# Schedules and the audit


def test_schedules_have_their_next_ticks_and_words(bench: Harness, read: Read) -> None:
    (row,) = read("schedules")

    assert (row.name, row.when, len(row.upcoming)) == ("nightly", "at 03:00 every day (Europe/Berlin)", 5)
    assert (row.upcoming[0], row.late) == (row.next_at, None)
    bench.clock.advance_to(row.next_at + timedelta(minutes=1))
    assert read("schedules", "nightly")[0].late == 60.0
    assert (read("schedules", "other"), read("ticks", "nightly")) == ([], [])
    bench.drain()
    assert [tick.at for tick in read("ticks", "nightly", count=1)] == [row.next_at]
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'nightli'; did you mean 'nightly'"):
        read("ticks", "nightli")


@pytest.fixture
def stranger(bench: Harness) -> Iterator[Windlass]:
    """A program on the same database that declares nothing."""
    other = Windlass(bench.url, actor="eve", clock=bench.clock)
    yield other
    other.close()


def test_a_schedule_is_operated_by_its_name_from_any_program(bench: Harness, stranger: Windlass) -> None:
    nightly = stranger.find_schedule("nightly")

    assert (nightly.pause("closing"), nightly.pause(), nightly.record().paused_by) == (True, False, "eve")
    assert (nightly.edit(queue="late"), nightly.record().job.queue) == (True, "late")
    assert (nightly.reset(), nightly.resume(), nightly.record().job.queue) == (True, True, "mail")
    job = nightly.fire()
    bench.drain()
    assert (job.result(), [tick.job for tick in nightly.ticks()]) == ("sent to ann", [job.id])
    assert {row.actor for row in stranger.audit() if row.subject == "schedule:nightly"} == {"eve"}


async def test_a_schedule_is_found_awaited(bench: Harness, stranger: Windlass) -> None:
    nightly = await stranger.afind_schedule("nightly")

    assert await nightly.apause()
    assert (await nightly.arecord()).paused
    with pytest.raises(BlockingCall, match=r"find_schedule\(\) would block .*use: await app\.afind_schedule\(…\)"):
        stranger.find_schedule("nightly")
    await stranger.aclose()


def test_a_schedule_of_this_program_is_found_with_its_results_type(bench: Harness, app: Windlass) -> None:
    job = app.find_schedule("nightly").fire()

    bench.drain()

    assert job.result() == "sent to ann"


def test_a_schedule_that_was_never_declared_is_not_found(bench: Harness, app: Windlass, stranger: Windlass) -> None:
    with pytest.raises(
        ScheduleNotFound, match=r"'nightli'; did you mean 'nightly'\? \(list them: windlass schedules\)$"
    ):
        stranger.find_schedule("nightli")
    with pytest.raises(ScheduleNotFound, match="'yearly'; there are: nightly"):
        app.find_schedule("yearly")


def test_a_schedule_is_forgotten_when_no_worker_may_declare_it(
    bench: Harness, app: Windlass, stranger: Windlass
) -> None:
    nightly = stranger.find_schedule("nightly")
    register(app)

    with pytest.raises(
        ScheduleError, match=r"it is not late and a worker is alive(.|\n)*windlass schedules pause nightly"
    ):
        nightly.forget()
    assert [row.name for row in stranger.schedules()] == ["nightly"]

    bench.clock.advance("25h")  # it is late, and the worker is dead
    nightly.forget()
    assert stranger.schedules() == []
    for act in (nightly.pause, nightly.fire, nightly.record, nightly.forget):
        with pytest.raises(ScheduleNotFound, match="nor any other"):
            act()


def test_a_schedule_is_forgotten_by_force(bench: Harness, app: Windlass, stranger: Windlass) -> None:
    register(app)

    stranger.find_schedule("nightly").forget(force=True)

    assert stranger.schedules() == []


def test_the_audit_is_read_in_pages_by_job_and_by_action(
    bench: Harness, app: Windlass, send: JobType[[str], str], read: Read
) -> None:
    first, second = send.enqueue("ann"), send.enqueue("bob")
    first.cancel()
    second.cancel()
    app.pause(queue="mail", reason="moving")

    rows = read("audit", count=2)
    rest = read("audit", count=2, below=rows[-1].number)

    assert [(row.action, row.actor, row.subject) for row in rows[:1]] == [("GATE_PAUSED", "ann", "queue:mail")]
    assert [row.job for row in [*rows[1:], *rest]] == [second.id, first.id]
    assert read("audit", job=str(first.id)) == rest
    assert len(read("audit", action="job_cancelled")) == 2


# Every call


def test_every_read_waits_in_one_form_and_is_awaited_in_the_other(bench: Harness, app: Windlass) -> None:
    names = [name for name in vars(Reads) if name.startswith("a") and not name.startswith("aud")]

    needed: dict[str, list[Any]] = {"alimit_use": ["slot"], "aticks": ["nightly"], "afind": [uuid4()], "astates": [[]]}

    async def call() -> None:
        for name in names:
            with pytest.raises(BlockingCall, match=rf"await app\.{name}\("):
                getattr(app, name[1:])(*needed.get(name, []))

    asyncio.run(call())
    assert len(names) == 18
    assert all(
        "app." in (getattr(Reads, name).__doc__ or "") or "row." in (getattr(Reads, name).__doc__ or "")
        for name in names
    )


def test_why_a_job_waits_is_said_by_the_clock_of_the_store(
    bench: Harness, app: Windlass, send: JobType[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a caller whose clock is five minutes behind, when its queue is paused, then that is the reason."""
    job = send.enqueue("ann")
    app.pause(queue="mail", reason="the server moves")
    late = ManualClock(start=bench.clock.now() - timedelta(minutes=5))
    monkeypatch.setattr(app._client, "clock", late)

    why, (row,) = job.why(), app.jobs()

    assert why is not None
    assert (why.kind, why.text) == (WaitKind.GATE, "queue mail is paused by ann: the server moves")
    assert row.why == why


def test_counts_have_every_state(bench: Harness, send: JobType[[str], str], read: Read) -> None:
    send.enqueue("ann")

    assert read("counts") == {**dict.fromkeys(State, 0), State.QUEUED: 1}


# States


def test_the_states_of_jobs_are_read_by_their_ids(bench: Harness, read: Read, send: JobType[[str], str]) -> None:
    done = send.enqueue("ann")
    bench.drain()
    queued = send.enqueue("bob")

    found = read("states", [str(done.id), queued.id, queued.id, uuid4()])

    assert {id: row.state for id, row in found.items()} == {done.id: State.SUCCEEDED, queued.id: State.QUEUED}
    assert (found[done.id].attempt, found[done.id].tenant) == (1, done.record().tenant)
    assert read("states", []) == {}


def test_states_of_too_many_jobs_or_of_no_list_are_refused(bench: Harness, read: Read) -> None:
    assert read("states", [uuid4() for _ in range(1_000)]) == {}
    with pytest.raises(FilterError, match="1,001 ids at once; 1,000 is the most"):
        read("states", [uuid4() for _ in range(1_001)])
    with pytest.raises(FilterError, match=r"is one id; write a list: app.states\(\[id\]\)"):
        read("states", str(uuid4()))


# The scope of a tenant


def test_a_list_in_a_tenants_scope_has_only_its_jobs(bench: Harness, read: Read, send: JobType[[str], str]) -> None:
    own = send.options(tenant="acme").enqueue("ann")
    send.enqueue("bob")

    assert [row.id for row in read("jobs", "tenant:*", tenant="acme")] == [own.id]
    assert len(read("jobs", "tenant:*")) == 2


@pytest.mark.parametrize("tenant", ["", "a\0b", 7])
def test_a_scope_that_is_no_name_is_refused(bench: Harness, read: Read, tenant: Any) -> None:
    """An empty scope must not mean "every tenant"."""
    with pytest.raises(FilterError, match="tenant"):
        read("jobs", tenant=tenant)
