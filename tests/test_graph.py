"""What a graph and a batch become before they are written, and what is refused at the door."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from windlass import Windlass
from windlass.declare.jobtype import PlainJob
from windlass.errors import EnqueueError, FlowError
from windlass.handles.batch import plan
from windlass.handles.graph import Graph
from windlass.handles.job import JobHandle
from windlass.model.job import Edge, NewJob, Policy, Wait, new_id

NAMES = ["fetch", "parse", "report"]


class Desk:
    """An app whose client keeps what it is given, and answers with the keys that the story says are held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = Windlass("sqlite:///nowhere.db")
        self.written: list[NewJob] = []
        self.held: dict[str, UUID] = {}  # by type
        monkeypatch.setattr(self.app.client, "enqueue", self._enqueue)
        self.types: dict[str, PlainJob[[], None]] = {name: self._declare(name) for name in NAMES}

    def _declare(self, name: str) -> PlainJob[[], None]:
        @self.app.job(type=name)
        def work() -> None: ...

        return work

    def _enqueue(self, jobs: Sequence[NewJob], conn: object, *, async_name: str) -> dict[UUID, UUID]:
        self.written += jobs
        return {job.id: self.held[job.type] for job in jobs if job.type in self.held}

    def call(self, name: str = "fetch") -> Any:
        return self.types[name].call()

    def graph(self, **after: Any) -> Graph:
        """A graph of nodes by their names."""
        graph = self.app.graph()
        for name, before in after.items():
            graph.add(name, self.call(name if name in NAMES else "fetch"), after=before)
        return graph


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


# What is written


def test_a_node_waits_for_its_dependencies_and_knows_them_by_name(desk: Desk) -> None:
    graph = desk.app.graph()
    fetch = graph.add("fetch", desk.call("fetch"))
    parse = graph.add("parse", desk.call("parse"), after=[fetch])
    graph.add("report", desk.call("report"), after={fetch: "continue", parse: "skip"})

    handles = graph.enqueue()

    first, second, third = desk.written
    assert [job.type for job in desk.written] == NAMES
    assert (first.wait, first.links) == (None, ())
    assert second.wait == Wait(edges=(Edge(first.id, Policy.FAIL),), need=1)
    assert third.wait == Wait(edges=(Edge(first.id, Policy.CONTINUE), Edge(second.id, Policy.SKIP)), need=2)
    assert third.links == (("fetch", first.id), ("parse", second.id))
    assert {name: handle.id for name, handle in handles.items()} == {job.type: job.id for job in desk.written}
    assert not first.followed  # the store sets the mark on what is awaited
    assert second.followed


def test_a_name_may_be_added_later_and_what_is_awaited_is_written_first(desk: Desk) -> None:
    graph = desk.graph(report=["fetch", "parse"], parse=["fetch"], fetch=[])

    assert list(graph.enqueue()) == ["report", "parse", "fetch"]
    assert [job.type for job in desk.written] == ["fetch", "parse", "report"]


def test_a_job_that_exists_is_known_by_its_id(desk: Desk) -> None:
    existing: JobHandle[None] = JobHandle(desk.app.client, new_id())

    desk.graph(fetch=[], parse={existing: "skip", "fetch": "fail"}).enqueue()

    fetch, parse = desk.written
    assert parse.links == ((str(existing.id), existing.id), ("fetch", fetch.id))
    assert parse.wait == Wait(edges=(Edge(existing.id, Policy.SKIP), Edge(fetch.id, Policy.FAIL)), need=2)


def test_a_node_whose_key_is_held_is_answered_with_the_holder(desk: Desk) -> None:
    desk.held["fetch"] = holder = new_id()

    handles = desk.graph(fetch=[], parse=["fetch"]).enqueue()

    assert handles["fetch"].id == holder
    assert handles["parse"].id == desk.written[1].id


def test_every_enqueue_makes_new_jobs(desk: Desk) -> None:
    graph = desk.graph(fetch=[], parse=["fetch"])
    first, second = graph.enqueue(), graph.enqueue()

    assert len({handle.id for handle in (*first.values(), *second.values())}) == 4


def test_thousands_of_nodes_take_little_work_and_no_stack(desk: Desk) -> None:
    def work(count: int) -> int:
        """How many functions are called for a chain and a fan of so many nodes."""
        calls = 0

        def count_call(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            chain, fan = desk.app.graph(), desk.app.graph()
            for n in range(count):
                chain.add(f"{n}", desk.call(), after=[f"{n + 1}"] if n < count - 1 else [])  # each before it is there
                fan.add(f"{n}", desk.call())
            fan.add("end", desk.call(), after=[f"{n}" for n in range(count)])
            chain.enqueue()
            fan.enqueue()
        finally:
            sys.setprofile(None)
        return calls

    few, many = work(500), work(2_000)

    assert many < 5 * few, "four times the nodes are four times the work, not sixteen times"
    assert len(desk.written) == 2 * 2_500 + 2
    assert desk.written[-1].wait is not None
    assert desk.written[-1].wait.need == 2_000


# What is refused


@pytest.mark.parametrize(
    ("after", "way"),
    [
        ({"fetch": ["parse"], "parse": ["fetch"]}, "fetch → parse → fetch"),
        ({"fetch": ["report"], "parse": ["fetch"], "report": ["parse"]}, "fetch → parse → report → fetch"),
        ({"a": [], "b": ["a", "d"], "c": ["b"], "d": ["c"], "e": ["d"]}, "b → c → d → b"),
        ({"e": ["d"], "b": ["d"], "d": ["b"]}, "b → d → b"),
    ],
    ids=["two", "three", "in-the-middle", "before-it"],
)
def test_a_cycle_is_told_with_its_way_round(desk: Desk, after: dict[str, list[str]], way: str) -> None:
    with pytest.raises(FlowError, match=f"cycle.*: {way}; take one edge out"):
        desk.graph(**after).enqueue()
    assert desk.written == []


def test_a_long_cycle_is_told_by_its_ends(desk: Desk) -> None:
    graph = desk.app.graph()
    for n in range(5_000):
        graph.add(f"n{n}", desk.call(), after=[f"n{(n - 1) % 5_000}"])

    with pytest.raises(FlowError, match=r"n1 → n2 → .* → … 4988 more … → .* → n0 → n1;") as error:
        graph.enqueue()
    assert len(str(error.value)) < 300


def test_an_empty_graph_is_refused(desk: Desk) -> None:
    with pytest.raises(FlowError, match="the graph is empty; add a node"):
        desk.app.graph().enqueue()


@pytest.mark.parametrize(("name", "hint"), [("fetsh", "did you mean 'fetch'"), ("zzz", "add it before the enqueue")])
def test_an_unknown_name_is_refused(desk: Desk, name: str, hint: str) -> None:
    with pytest.raises(FlowError, match=f"node 'parse' depends on '{name}', which is not in the graph; {hint}"):
        desk.graph(fetch=[], parse=[name]).enqueue()
    assert desk.written == []


def test_a_name_belongs_to_one_node(desk: Desk) -> None:
    graph = desk.graph(fetch=[])

    with pytest.raises(FlowError, match="has a node 'fetch' already"):
        graph.add("fetch", desk.call("parse"))
    assert len(graph) == 1


@pytest.mark.parametrize("name", ["", " a", "a\n", 7, "x" * 201])
def test_a_name_is_text(desk: Desk, name: Any) -> None:
    with pytest.raises(FlowError, match="the name of a node"):
        desk.app.graph().add(name, desk.call())


def test_a_node_cannot_depend_on_itself(desk: Desk) -> None:
    with pytest.raises(FlowError, match="'fetch' depends on itself"):
        desk.graph(fetch=["fetch"])


def test_a_node_of_another_graph_is_refused(desk: Desk) -> None:
    other = desk.app.graph().add("fetch", desk.call())

    with pytest.raises(FlowError, match=r"'fetch' of another graph; .* after=\[handles\['fetch'\]\]"):
        desk.graph(parse=[other])


@pytest.mark.parametrize("policy", ["count", "explode", None, 3, ["fail"]])
def test_an_unknown_policy_is_refused(desk: Desk, policy: Any) -> None:
    with pytest.raises(FlowError, match=re.escape(f"no policy {policy!r}; write one of fail, skip, continue")):
        desk.graph(fetch=[], parse={"fetch": policy})


def test_one_edge_has_one_policy(desk: Desk) -> None:
    graph = desk.app.graph()
    fetch = graph.add("fetch", desk.call())

    with pytest.raises(FlowError, match="names 'fetch' twice"):
        graph.add("parse", desk.call("parse"), after={fetch: "fail", "fetch": "skip"})


@pytest.mark.parametrize("after", ["fetch", 7, None])
def test_after_is_a_list(desk: Desk, after: Any) -> None:
    with pytest.raises(FlowError, match=r"after= takes a list, not \w+; write after=\[…\]"):
        desk.graph(fetch=[], parse=after)


def test_after_is_a_list_of_dependencies(desk: Desk) -> None:
    with pytest.raises(FlowError, match="depends on int; after= takes nodes, their names, and handles"):
        desk.graph(fetch=[], parse=[7])


@pytest.mark.parametrize("how", ["function", "job type", "handle"])
def test_a_node_is_a_call(desk: Desk, how: str) -> None:
    given: dict[str, Any] = {
        "function": print,
        "job type": desk.types["fetch"],
        "handle": JobHandle(desk.app.client, new_id()),
    }
    with pytest.raises(FlowError, match=r"node 'x' is given \w+, not a call; write: send.call"):
        desk.app.graph().add("x", given[how])
    with pytest.raises(FlowError, match=r"callback \(then=\) is given \w+, not a call; write: send.call"):
        plan([desk.call()], given[how], "continue", desk.app.settings)


def test_a_connection_is_given_to_the_whole(desk: Desk) -> None:
    call = desk.types["fetch"].options(conn=object()).call()

    with pytest.raises(FlowError, match=r"one transaction takes them all: g.enqueue\(conn=conn\)"):
        desk.app.graph().add("fetch", call)
    with pytest.raises(FlowError, match=r"one transaction takes them all: app.batch\(…, conn=conn\)"):
        plan([desk.call()], call, "continue", desk.app.settings)


@pytest.mark.parametrize("when", [{"delay": "10m"}, {"run_at": datetime(2031, 1, 1, tzinfo=UTC)}])
def test_what_waits_is_due_when_its_wait_is_over(desk: Desk, when: dict[str, Any]) -> None:
    late = desk.types["parse"].options(**when).call()
    graph = desk.app.graph()
    graph.add("late", late)  # a first node may begin later

    with pytest.raises(FlowError, match=r"cannot have a delay or run_at as well; .* ctx.sleep"):
        graph.add("parse", late, after=["late"])
    with pytest.raises(FlowError, match=r"cannot have a delay or run_at as well; .* ctx.sleep"):
        plan([late], late, "continue", desk.app.settings)


# Batches


def test_a_batch_is_its_jobs_and_a_callback_that_is_their_parent(desk: Desk) -> None:
    batch = desk.app.batch((desk.call() for _ in range(3)), then=desk.call("report"), policy="skip")

    *members, callback = desk.written
    assert [job.id for job in batch.jobs] == [job.id for job in members]
    assert (batch.id, callback.type) == (callback.id, "report")
    assert {job.parent for job in members} == {callback.id}
    assert callback.wait == Wait(edges=tuple(Edge(job.id, Policy.SKIP) for job in members), need=3, batch=True)
    assert callback.links == tuple((str(n), job.id) for n, job in enumerate(members))
    assert repr(batch) == f"<batch {callback.id} of 3 jobs>"


def test_a_batch_of_nothing_is_refused(desk: Desk) -> None:
    with pytest.raises(EnqueueError, match="no calls"):
        desk.app.batch([], then=desk.call("report"))
    assert desk.written == []


def test_a_batch_has_a_policy_of_a_graph(desk: Desk) -> None:
    with pytest.raises(FlowError, match="the batch: there is no policy 'count'"):
        desk.app.batch([desk.call()], then=desk.call("report"), policy="count")


def test_a_batch_needs_its_callback(desk: Desk) -> None:
    with pytest.raises(TypeError, match="then"):
        desk.app.batch([desk.call()])  # type: ignore[call-arg]
