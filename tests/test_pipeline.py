"""Pipelines as they are declared: what is refused, where a job goes next, and what its states are called."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from windlass import Context, Job, Pipeline, State, Windlass, phase
from windlass.declare.pipeline import next_phase, phases, sizes
from windlass.errors import EnqueueError, FlowError, InvalidInput, RegistrationError
from windlass.model.flow import Advance
from windlass.model.job import new_id

LABELS = {"queued": "not-started", "succeeded": "completed", "dead": "failed", "cancelled": "canceled"}


@pytest.fixture
def app(tmp_path: Path) -> Windlass:
    return Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")


@pytest.fixture
def site(app: Windlass) -> Pipeline[..., object]:
    @app.job(max_attempts=2)
    async def analyse(url: str, depth: int = 1) -> dict[str, int]:
        return {url: depth}

    @app.job(queue="models")
    async def form(ctx: Context, url: str) -> list[str]:
        return [url]

    @app.job
    async def ask(ctx: Context, depth: int = 1) -> tuple[int, ...]:
        return (depth,)

    return app.pipeline("site", phase(analyse, name="analysis", processors=3), form, ask, labels=LABELS)


def record(**values: Any) -> Job:
    blank: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    blank |= {"id": new_id(), "pipeline": "site", "phase": "analysis", "phase_rank": 0, "status": State.QUEUED}
    return Job(**(blank | values))


def test_a_job_goes_from_phase_to_phase(app: Windlass, site: Pipeline[..., object]) -> None:
    first = record(type="analyse", phase="analysis")
    second = record(type="form", phase="form", phase_rank=1)
    last = record(type="ask", phase="ask", phase_rank=2)

    assert next_phase(app._registry, first) == Advance(
        type="form", phase="form", phase_rank=1, queue="models", max_attempts=4
    )
    assert next_phase(app._registry, second) == Advance(
        type="ask", phase="ask", phase_rank=2, queue="default", max_attempts=4
    )
    assert next_phase(app._registry, last) is None
    assert next_phase(app._registry, record(pipeline=None, phase="default")) is None


def test_a_phase_that_the_program_does_not_have_any_more_is_an_error(
    app: Windlass, site: Pipeline[..., object]
) -> None:
    with pytest.raises(FlowError, match=r"phase 'gone', which pipeline 'site' .* there are: analysis, form, ask"):
        next_phase(app._registry, record(phase="gone"))
    with pytest.raises(FlowError, match="pipeline 'other', which this program does not have"):
        next_phase(app._registry, record(pipeline="other"))


def test_a_call_makes_a_job_in_the_first_phase(app: Windlass, site: Pipeline[..., object]) -> None:
    job = site.options(priority=5, tenant="acme").call("https://example.org", depth=2).new_job(app.settings)

    assert (job.pipeline, job.phase, job.phase_rank, job.type) == ("site", "analysis", 0, "analyse")
    assert (job.queue, job.max_attempts, job.priority, job.tenant) == ("default", 2, 5, "acme")
    assert job.input == '{"url":"https://example.org","depth":2}'
    with pytest.raises(InvalidInput, match=r"site\(\) missing required argument 'url'"):
        site.call()
    assert repr(site) == "<pipeline 'site': analysis → form → ask>"


def test_the_result_is_the_last_phases(app: Windlass, site: Pipeline[..., object]) -> None:
    job = record(type="ask", phase="ask", phase_rank=2)
    definition = app._registry.of(job)

    assert definition is not None
    assert definition.signature.result("[1, 2]") == (1, 2)
    assert app._registry.of(record(pipeline=None, type="form")) is app._registry.get("form")


def test_phases_name_the_pools(app: Windlass, site: Pipeline[..., object]) -> None:
    assert phases(app._registry) == {"analysis": ["analyse"], "form": ["form"], "ask": ["ask"]}
    assert sizes(app._registry) == {"analysis": 3}


@pytest.mark.parametrize(
    ("status", "phase", "rank", "label"),
    [
        (State.QUEUED, "analysis", 0, "not-started"),
        (State.RUNNING, "analysis", 0, "analysis"),
        (State.FAILED, "analysis", 0, "analysis"),
        (State.QUEUED, "form", 1, "form"),
        (State.RUNNING, "form", 1, "form"),
        (State.WAITING, "ask", 2, "ask"),
        (State.SUCCEEDED, "ask", 2, "completed"),
        (State.DEAD, "form", 1, "failed"),
        (State.CANCELLED, "form", 1, "canceled"),
    ],
)
def test_the_label_of_a_job_that_moves_on_is_its_phase(
    site: Pipeline[..., object], status: State, phase: str, rank: int, label: str
) -> None:
    assert site.label(record(status=status, phase=phase, phase_rank=rank)) == label


def test_without_labels_states_have_their_own_names(app: Windlass) -> None:
    @app.job
    async def one() -> None: ...

    @app.job(labels={"dead": "failed"})
    async def other() -> None: ...

    line = app.pipeline("line", one, other)

    assert [line.label(record(status=state, phase="one")) for state in (State.QUEUED, State.DEAD)] == ["queued", "dead"]
    assert [other.label(record(status=state)) for state in (State.QUEUED, State.DEAD)] == ["queued", "failed"]


def test_two_pipelines_may_share_a_phase(app: Windlass) -> None:
    @app.job
    async def fetch(url: str) -> None: ...

    @app.job
    async def read(url: str) -> None: ...

    @app.job
    async def store(url: str) -> None: ...

    app.pipeline("web", fetch, phase(store, processors=2))
    app.pipeline("mail", read, phase(store, processors=2))

    assert phases(app._registry) == {"fetch": ["fetch"], "read": ["read"], "store": ["store"]}
    with pytest.raises(RegistrationError, match="'store' is phase 'keep' here and phase 'store' of pipeline"):
        app.pipeline("third", fetch, phase(store, name="keep", processors=2))
    with pytest.raises(RegistrationError, match="processors=None here and processors=2 in pipeline"):
        app.pipeline("third", fetch, store)
    assert list(app._registry.pipelines) == ["web", "mail"]


def declarations() -> dict[str, tuple[Callable[[Windlass, dict[str, Any]], object], str]]:
    def pipeline(*items: str, **options: Any) -> Callable[[Windlass, dict[str, Any]], object]:
        return lambda app, types: app.pipeline("line", *[types[item] for item in items], **options)

    return {
        "empty": (pipeline(), "has no phases"),
        "one type twice": (pipeline("one", "two", "one"), "has job type 'one' twice"),
        "a list": (lambda app, types: app.pipeline("line", [types["one"]]), "list its phases one by one"),  # type: ignore[call-overload]
        "text": (lambda app, types: app.pipeline("line", "one"), "'one' is neither a job type"),  # type: ignore[call-overload]
        "no job type": (lambda app, types: app.pipeline("line", print), "neither a job type"),  # type: ignore[call-overload]
        "options": (lambda app, types: app.pipeline("line", types["one"].options(priority=1)), "neither a job type"),
        "phase of options": (lambda app, types: phase(types["one"].options(priority=1)), "@app.job, without options"),
        "duplicate phase": (
            lambda app, types: app.pipeline("line", types["one"], phase(types["two"], name="one")),
            "two phases 'one'",
        ),
        "bad phase name": (lambda app, types: app.pipeline("line", phase(types["one"], name=" ")), "is empty"),
        "bad name": (lambda app, types: app.pipeline("", types["one"]), "the name of a pipeline is empty"),
        "no processors": (lambda app, types: phase(types["one"], processors=0), "at least 1 processor"),
        "half a processor": (lambda app, types: phase(types["one"], processors=1.5), "at least 1 processor"),  # type: ignore[arg-type]
        "unknown parameter": (pipeline("one", "needs"), "'extra' of phase 'needs' is not in the input"),
        "default in the first": (pipeline("optional", "one"), "'n' of phase 'one' has no default, but has one"),
        "follow-up of a phase": (pipeline("one", "followed"), "has on_dead of its own"),
        "unknown label": (pipeline("one", labels={"ded": "failed"}), "did you mean 'dead'"),
        "empty label": (pipeline("one", labels={"dead": ""}), "the label of 'dead' is empty"),
        "labels that are none": (pipeline("one", labels=["failed"]), "is no dict"),
        "bad follow-up": (pipeline("one", on_dead="no such\n"), "give a job type of this program"),
    }


@pytest.mark.parametrize("what", declarations())
def test_a_declaration_that_cannot_be_is_refused(app: Windlass, what: str) -> None:
    @app.job
    async def one(n: int) -> None: ...

    @app.job
    async def two(n: int) -> None: ...

    @app.job
    async def needs(n: int, extra: str) -> None: ...

    @app.job
    async def optional(n: int = 1) -> None: ...

    @app.job(on_dead="two")
    async def followed(n: int) -> None: ...

    types = {"one": one, "two": two, "needs": needs, "optional": optional, "followed": followed}
    declare, message = declarations()[what]

    with pytest.raises(RegistrationError, match=message):
        declare(app, types)
    assert app._registry.pipelines == {}


def test_types_of_another_app_and_names_used_twice_are_refused(app: Windlass, tmp_path: Path) -> None:
    @app.job
    async def one() -> None: ...

    stranger = Windlass(f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(RegistrationError, match="'one' belongs to another app"):
        stranger.pipeline("line", one)

    line = app.pipeline("line", one)
    with pytest.raises(RegistrationError, match="pipeline 'line' is declared twice"):
        app.pipeline("line", one)
    with pytest.raises(RegistrationError, match="a pipeline cannot follow by itself"):

        @app.job(on_dead=line)  # type: ignore[call-overload, untyped-decorator]
        async def dying() -> None: ...

    with pytest.raises(RegistrationError, match="labels name a state"):

        @app.job(labels={"finished": "done"})
        async def labelled() -> None: ...


def test_a_follow_up_is_the_pipelines(app: Windlass) -> None:
    @app.job
    async def one(n: int) -> None: ...

    @app.job
    async def alarm(id: str) -> None: ...

    line = app.pipeline("line", one, on_dead=alarm)
    job = line.call(1).new_job(app.settings)

    assert job.follow_ups is not None
    assert '"type":"alarm"' in job.follow_ups
    lost = app.pipeline("lost", one, on_dead="nobody")
    with pytest.raises(EnqueueError, match="no job type 'nobody'"):
        lost.call(1).new_job(app.settings)


def test_later_parameters_are_read_from_the_one_input(app: Windlass) -> None:
    @app.job
    async def one(url: str, at: datetime, depth: int = 1) -> None: ...

    @app.job
    async def two(ctx: Context, *, at: datetime, depth: int = 5) -> None: ...

    line = app.pipeline("line", one, two)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    job = line.call("x", noon).new_job(app.settings)
    signature = app._registry.require("two").signature

    assert signature.unbind(job.input, lenient=True) == ([], {"at": noon, "depth": 5})
    with pytest.raises(InvalidInput, match="unknown field `url`"):
        signature.unbind(job.input)
