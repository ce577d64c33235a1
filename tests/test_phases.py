"""`app.phases`: which phases are listed, in which order, and that their figures agree with the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from servers import url_of
from windlass import Context, Windlass, fixed
from windlass.config import Settings
from windlass.errors import ConfigError
from windlass.methods.phases import list_places
from windlass.model.figures import PhaseDepth
from windlass.testing import Harness, harness


def depth(pipeline: str | None, phase: str, rank: int = 0, due: int = 1) -> PhaseDepth:
    return PhaseDepth(pipeline=pipeline, phase=phase, rank=rank, due=due, running=0, counted=10)


@pytest.mark.parametrize(
    ("announced", "depths", "named", "expected"),
    [
        # The order is that of the announcement, also for phases without a job.
        ({"site": ("get", "ask", "end")}, [depth("site", "ask", 1)], [], ["site get", "site ask", "site end"]),
        # A live worker or a figure is enough; what no worker serves and no job uses is gone.
        ({"site": ("get", "ask"), "old": ("x",)}, [], ["ask"], ["site get", "site ask"]),
        # A phase that the program does not have any more comes at its place.
        ({"site": ("get", "end")}, [depth("site", "ask", 1)], [], ["site get", "site ask", "site end"]),
        # A pipeline that was never announced is in the order of its jobs.
        ({}, [depth("site", "ask", 1), depth("site", "get", 0)], [], ["site get", "site ask"]),
        # Queues come last; a name is a queue when it is no phase.
        ({"site": ("get",)}, [depth(None, "mail"), depth("site", "get")], ["get", "sms"], ["site get", "mail", "sms"]),
        # A queue in which only jobs of pipelines wait is no place of its own.
        ({}, [depth(None, "default", due=0), depth("site", "get")], [], ["site get"]),
    ],
)
def test_the_places_of_a_list(
    announced: dict[str, tuple[str, ...]], depths: list[PhaseDepth], named: list[str], expected: list[str]
) -> None:
    places = list_places(announced, {(each.pipeline, each.phase): each for each in depths}, named)

    assert [phase if pipeline is None else f"{pipeline} {phase}" for pipeline, phase in places] == expected


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db")


@pytest.fixture
def types(app: Windlass) -> SimpleNamespace:
    @app.job
    async def get(n: int) -> int:
        return n

    @app.job(max_attempts=2, retry=fixed("1s"))
    async def ask(ctx: Context, n: int) -> int:
        if n == 2 or (n == 1 and ctx.attempt == 1):
            raise ValueError("no")
        return n

    @app.job(queue="mail")
    async def send() -> None: ...

    return SimpleNamespace(site=app.pipeline("site", get, ask), send=send)


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass, types: SimpleNamespace) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s", raise_errors=False) as bench:
        yield bench


def test_the_figures_of_a_phase_agree_with_its_jobs(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    for n in range(3):  # one succeeds, one at its second attempt, one is dead
        types.site.enqueue(n)
    for _ in range(3):
        bench.drain()
        bench.clock.advance("10s")
    types.site.enqueue(3)
    types.send.enqueue()

    get, ask, mail = app.phases(since="5m")

    assert [(row.pipeline, row.phase, row.due) for row in (get, ask, mail)] == [
        ("site", "get", 1), ("site", "ask", 0), (None, "mail", 1),
    ]  # fmt: skip
    assert [(row.succeeded, row.retries, row.dead, row.per_minute) for row in (get, ask, mail)] == [
        (3, 0, 0, 3 / 5), (2, 2, 1, 3 / 5), (0, 0, 0, 0.0),
    ]  # fmt: skip
    assert [(row.success_rate, row.failure_rate, row.error_rate) for row in (get, ask, mail)] == [
        (1.0, 0.0, 0.0), (2 / 5, 3 / 5, 1 / 3), (None, None, None),
    ]  # fmt: skip
    assert [(sum(row.runs), row.run_p95 is None) for row in (get, ask, mail)] == [(3, False), (5, False), (0, True)]


def test_figures_before_the_span_are_left_out(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    types.send.enqueue()
    bench.drain()
    bench.clock.advance("20m")

    assert [row.succeeded for row in app.phases(since="1h")] == [1]
    assert app.phases() == []


async def test_the_list_can_be_awaited(app: Windlass, types: SimpleNamespace, bench: Harness) -> None:
    await types.send.aenqueue()

    (row,) = await app.aphases()

    assert (row.phase, row.due) == ("mail", 1)


def test_a_version_is_a_name() -> None:
    assert Settings.load({"WINDLASS_VERSION": "4f2c1a9"}).version == "4f2c1a9"
    with pytest.raises(ConfigError, match=r"version is empty, environment; give one such as '4f2c1a9'"):
        Settings.load({"WINDLASS_VERSION": " "})
