"""`job.story()` of real jobs, blocking and awaited, on both stores: a fan-out, a pipeline, a graph, a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from servers import url_of
from windlass import Context, JobNotFound, State, Windlass, fixed
from windlass.documents import story_document
from windlass.model.reports.story import LifeKind
from windlass.testing import Harness, harness


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


def decoded(story: Any) -> Any:
    """The story as a page receives it."""
    return msgspec.json.decode(msgspec.json.encode(story_document(story)))


def test_the_details_of_a_fan_out_list_a_page_of_its_jobs_and_count_all(
    bench: Harness, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job
    async def match(number: int) -> int:
        return number

    @app.job
    async def project(ctx: Context) -> None:
        ctx.spawn_many("match", [match.call(number) for number in range(5)])

    job = project.enqueue()
    bench.drain()
    monkeypatch.setattr("windlass.methods.story.LINKED", 3)

    details = job.details()

    assert [link.name.strip() for link in details.links] == ["match[0]", "match[1]", "match[2]"]
    assert details.linked == {State.SUCCEEDED: 5}


def test_a_fan_out_waits_for_its_jobs_and_then_ends(bench: Harness, app: Windlass) -> None:
    @app.job(retry=fixed("80s"))
    async def match(ctx: Context, number: int) -> int:
        if number == 2 and ctx.attempt == 1:
            raise ValueError("429")
        return number

    @app.job
    async def project(ctx: Context) -> int:
        children = ctx.spawn_many("match", [match.call(number) for number in range(4)])
        await ctx.wait(children)
        return 4

    job = project.enqueue()
    bench.clock.advance("2s")
    bench.drain(raise_errors=False)
    bench.clock.advance("1s")

    waits, awaited = job.story(), asyncio.run(job.astory())

    assert (
        waits.text.replace("\N{NO-BREAK SPACE}", " ") == "Waits for 1 of its 4 jobs. One of them retries in 1 m 19 s."
    )
    assert awaited.text == waits.text
    page = decoded(waits)
    assert [link["name"] for link in page["links"]] == ["match[0]", "match[1]", "match[2]", "match[3]"]
    assert [link["state"] for link in page["links"]] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert page["links"][2]["error"] == "ValueError: 429"
    assert page["next_kind"] == "child"
    assert page["life"]["parts"][-1][0] == "jobs"
    assert sum(span for _, span in page["life"]["parts"]) == page["life"]["total"] == 3_000
    assert {node["x"] for node in page["graph"]["nodes"] if node["current"]} == {0}

    bench.clock.advance("2m")
    bench.drain()
    ended = job.story()
    assert ended.text.startswith("Succeeded after 2")
    assert ended.actions == ("rerun",)
    assert ended.life.sums[LifeKind.JOBS] > 100
    assert sum(ended.life.sums.values()) == pytest.approx(ended.life.total)


def test_a_pipeline_shows_its_phases_in_one_row(bench: Harness, app: Windlass) -> None:
    @app.job
    async def form(site: str) -> str:
        return site

    @app.job
    async def ask(site: str) -> str:
        return site

    site = app.pipeline("site", form, ask)
    job = site.enqueue("a.org")
    bench.drain()

    phases = job.story().phases

    assert phases is not None
    assert [(node.name, node.state, node.y) for node in phases.nodes] == [
        ("form", "succeeded", 0),
        ("ask", "succeeded", 0),
    ]


def test_a_graph_and_a_batch_are_drawn_in_the_order_in_which_they_run(bench: Harness, app: Windlass) -> None:
    @app.job
    async def work(number: int) -> int:
        return number

    graph = app.graph()
    load = graph.add("load", work.call(1))
    graph.add("score", work.call(2), after=[load])
    jobs = graph.enqueue()
    batch = app.batch([work.call(1), work.call(2)], then=work.call(3))

    drawn = jobs["score"].story().graph
    batched = batch.callback.story().graph

    assert drawn is not None
    assert {node.id: node.x for node in drawn.nodes} == {jobs["load"].id: 0, jobs["score"].id: 1}
    assert batched is not None
    assert {node.id: node.x for node in batched.nodes} == {
        batch.jobs[0].id: 0,
        batch.jobs[1].id: 0,
        batch.callback.id: 1,
    }


def test_a_job_that_is_gone_has_no_story(bench: Harness, app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def fail() -> None:
        raise ValueError("no")

    job = fail.enqueue()
    bench.drain(raise_errors=False)
    assert job.story().actions == ("replay", "discard", "rerun")
    job.discard()

    with pytest.raises(JobNotFound):
        job.story()
