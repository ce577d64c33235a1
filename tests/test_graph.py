"""What a graph and a batch become before they are written, and what the enqueue refuses."""

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


class RecordingApp:
    """An app with a client that records the new jobs, and answers with the keys that the test declares as held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = Windlass("sqlite:///nowhere.db")
        self.written: list[NewJob] = []
        self.held: dict[str, UUID] = {}  # by type
        monkeypatch.setattr(self.app._client, "enqueue", self._enqueue)
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
def recorder(monkeypatch: pytest.MonkeyPatch) -> RecordingApp:
    return RecordingApp(monkeypatch)


# What is written


def test_a_node_waits_for_its_dependencies_and_knows_them_by_name(recorder: RecordingApp) -> None:
    graph = recorder.app.graph()
    fetch = graph.add("fetch", recorder.call("fetch"))
    parse = graph.add("parse", recorder.call("parse"), after=[fetch])
    graph.add("report", recorder.call("report"), after={fetch: "continue", parse: "skip"})

    handles = graph.enqueue()

    first, second, third = recorder.written
    assert [job.type for job in recorder.written] == NAMES
    assert (first.wait, first.links) == (None, ())
    assert second.wait == Wait(edges=(Edge(first.id, Policy.FAIL),), need=1)
    assert third.wait == Wait(edges=(Edge(first.id, Policy.CONTINUE), Edge(second.id, Policy.SKIP)), need=2)
    assert third.links == (("fetch", first.id), ("parse", second.id))
    assert {name: handle.id for name, handle in handles.items()} == {job.type: job.id for job in recorder.written}
    assert not first.followed  # the store sets the mark on what is awaited
    assert second.followed


def test_a_name_may_be_added_later_and_what_is_awaited_is_written_first(recorder: RecordingApp) -> None:
    graph = recorder.graph(report=["fetch", "parse"], parse=["fetch"], fetch=[])

    assert list(graph.enqueue()) == ["report", "parse", "fetch"]
    assert [job.type for job in recorder.written] == ["fetch", "parse", "report"]


def test_a_job_that_exists_is_known_by_its_id(recorder: RecordingApp) -> None:
    existing: JobHandle[None] = JobHandle(recorder.app._client, new_id())

    recorder.graph(fetch=[], parse={existing: "skip", "fetch": "fail"}).enqueue()

    fetch, parse = recorder.written
    assert parse.links == ((str(existing.id), existing.id), ("fetch", fetch.id))
    assert parse.wait == Wait(edges=(Edge(existing.id, Policy.SKIP), Edge(fetch.id, Policy.FAIL)), need=2)


def test_a_node_whose_key_is_held_is_answered_with_the_holder(recorder: RecordingApp) -> None:
    recorder.held["fetch"] = holder = new_id()

    handles = recorder.graph(fetch=[], parse=["fetch"]).enqueue()

    assert handles["fetch"].id == holder
    assert handles["parse"].id == recorder.written[1].id


def test_every_enqueue_makes_new_jobs(recorder: RecordingApp) -> None:
    graph = recorder.graph(fetch=[], parse=["fetch"])
    first, second = graph.enqueue(), graph.enqueue()

    assert len({handle.id for handle in (*first.values(), *second.values())}) == 4


def test_thousands_of_nodes_take_little_work_and_no_stack(recorder: RecordingApp) -> None:
    def work(count: int) -> int:
        """How many functions are called for a chain and a fan of so many nodes."""
        calls = 0

        def count_call(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            chain, fan = recorder.app.graph(), recorder.app.graph()
            for n in range(count):
                chain.add(
                    f"{n}", recorder.call(), after=[f"{n + 1}"] if n < count - 1 else []
                )  # each before it is there
                fan.add(f"{n}", recorder.call())
            fan.add("end", recorder.call(), after=[f"{n}" for n in range(count)])
            chain.enqueue()
            fan.enqueue()
        finally:
            sys.setprofile(None)
        return calls

    few, many = work(500), work(2_000)

    assert many < 5 * few, "four times the nodes are four times the work, not sixteen times"
    assert len(recorder.written) == 2 * 2_500 + 2
    assert recorder.written[-1].wait is not None
    assert recorder.written[-1].wait.need == 2_000


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
def test_the_error_for_a_cycle_lists_its_names(recorder: RecordingApp, after: dict[str, list[str]], way: str) -> None:
    with pytest.raises(FlowError, match=f"cycle.*: {way}; take one edge out"):
        recorder.graph(**after).enqueue()
    assert recorder.written == []


def test_the_error_for_a_long_cycle_lists_its_ends(recorder: RecordingApp) -> None:
    graph = recorder.app.graph()
    for n in range(5_000):
        graph.add(f"n{n}", recorder.call(), after=[f"n{(n - 1) % 5_000}"])

    with pytest.raises(FlowError, match=r"n1 → n2 → .* → … 4988 more … → .* → n0 → n1;") as error:
        graph.enqueue()
    assert len(str(error.value)) < 300


def test_an_empty_graph_is_refused(recorder: RecordingApp) -> None:
    with pytest.raises(FlowError, match="the graph is empty; add a node"):
        recorder.app.graph().enqueue()


@pytest.mark.parametrize(("name", "hint"), [("fetsh", "did you mean 'fetch'"), ("zzz", "add it before the enqueue")])
def test_an_unknown_name_is_refused(recorder: RecordingApp, name: str, hint: str) -> None:
    with pytest.raises(FlowError, match=f"node 'parse' depends on '{name}', which is not in the graph; {hint}"):
        recorder.graph(fetch=[], parse=[name]).enqueue()
    assert recorder.written == []


def test_a_name_belongs_to_one_node(recorder: RecordingApp) -> None:
    graph = recorder.graph(fetch=[])

    with pytest.raises(FlowError, match="has a node 'fetch' already"):
        graph.add("fetch", recorder.call("parse"))
    assert len(graph) == 1


@pytest.mark.parametrize("name", ["", " a", "a\n", 7, "x" * 201])
def test_a_name_is_text(recorder: RecordingApp, name: Any) -> None:
    with pytest.raises(FlowError, match="the name of a node"):
        recorder.app.graph().add(name, recorder.call())


def test_a_node_cannot_depend_on_itself(recorder: RecordingApp) -> None:
    with pytest.raises(FlowError, match="'fetch' depends on itself"):
        recorder.graph(fetch=["fetch"])


def test_a_node_of_another_graph_is_refused(recorder: RecordingApp) -> None:
    other = recorder.app.graph().add("fetch", recorder.call())

    with pytest.raises(FlowError, match=r"'fetch' of another graph; .* after=\[handles\['fetch'\]\]"):
        recorder.graph(parse=[other])


@pytest.mark.parametrize("policy", ["count", "explode", None, 3, ["fail"]])
def test_an_unknown_policy_is_refused(recorder: RecordingApp, policy: Any) -> None:
    with pytest.raises(FlowError, match=re.escape(f"no policy {policy!r}; write one of fail, skip, continue")):
        recorder.graph(fetch=[], parse={"fetch": policy})


def test_one_edge_has_one_policy(recorder: RecordingApp) -> None:
    graph = recorder.app.graph()
    fetch = graph.add("fetch", recorder.call())

    with pytest.raises(FlowError, match="names 'fetch' twice"):
        graph.add("parse", recorder.call("parse"), after={fetch: "fail", "fetch": "skip"})


@pytest.mark.parametrize("after", ["fetch", 7, None])
def test_after_is_a_list(recorder: RecordingApp, after: Any) -> None:
    with pytest.raises(FlowError, match=r"after= takes a list, not \w+; write after=\[…\]"):
        recorder.graph(fetch=[], parse=after)


def test_after_is_a_list_of_dependencies(recorder: RecordingApp) -> None:
    with pytest.raises(FlowError, match="depends on int; after= takes nodes, their names, and handles"):
        recorder.graph(fetch=[], parse=[7])


@pytest.mark.parametrize("how", ["function", "job type", "handle"])
def test_a_node_is_a_call(recorder: RecordingApp, how: str) -> None:
    given: dict[str, Any] = {
        "function": print,
        "job type": recorder.types["fetch"],
        "handle": JobHandle(recorder.app._client, new_id()),
    }
    with pytest.raises(FlowError, match=r"node 'x' is given \w+, not a call; write: send.call"):
        recorder.app.graph().add("x", given[how])
    with pytest.raises(FlowError, match=r"callback \(then=\) is given \w+, not a call; write: send.call"):
        plan([recorder.call()], given[how], "continue", recorder.app.settings)


def test_a_connection_is_given_to_the_whole(recorder: RecordingApp) -> None:
    call = recorder.types["fetch"].options(conn=object()).call()

    with pytest.raises(FlowError, match=r"one transaction takes them all: g.enqueue\(conn=conn\)"):
        recorder.app.graph().add("fetch", call)
    with pytest.raises(FlowError, match=r"one transaction takes them all: app.batch\(…, conn=conn\)"):
        plan([recorder.call()], call, "continue", recorder.app.settings)


@pytest.mark.parametrize("when", [{"delay": "10m"}, {"run_at": datetime(2031, 1, 1, tzinfo=UTC)}])
def test_what_waits_is_due_when_its_wait_is_over(recorder: RecordingApp, when: dict[str, Any]) -> None:
    late = recorder.types["parse"].options(**when).call()
    graph = recorder.app.graph()
    graph.add("late", late)  # a first node may begin later

    with pytest.raises(FlowError, match=r"cannot have a delay or run_at as well; .* ctx.sleep"):
        graph.add("parse", late, after=["late"])
    with pytest.raises(FlowError, match=r"cannot have a delay or run_at as well; .* ctx.sleep"):
        plan([late], late, "continue", recorder.app.settings)


# Batches


def test_a_batch_is_its_jobs_and_a_callback_that_is_their_parent(recorder: RecordingApp) -> None:
    batch = recorder.app.batch((recorder.call() for _ in range(3)), then=recorder.call("report"), policy="skip")

    *members, callback = recorder.written
    assert [job.id for job in batch.jobs] == [job.id for job in members]
    assert (batch.id, callback.type) == (callback.id, "report")
    assert {job.parent for job in members} == {callback.id}
    assert callback.wait == Wait(edges=tuple(Edge(job.id, Policy.SKIP) for job in members), need=3, batch=True)
    assert callback.links == tuple((str(n), job.id) for n, job in enumerate(members))
    assert repr(batch) == f"<batch {callback.id} of 3 jobs>"


def test_a_batch_of_nothing_is_refused(recorder: RecordingApp) -> None:
    with pytest.raises(EnqueueError, match="no calls"):
        recorder.app.batch([], then=recorder.call("report"))
    assert recorder.written == []


def test_a_batch_has_a_policy_of_a_graph(recorder: RecordingApp) -> None:
    with pytest.raises(FlowError, match="the batch: there is no policy 'count'"):
        recorder.app.batch([recorder.call()], then=recorder.call("report"), policy="count")  # type: ignore[arg-type]


def test_a_batch_needs_its_callback(recorder: RecordingApp) -> None:
    with pytest.raises(TypeError, match="then"):
        recorder.app.batch([recorder.call()])  # type: ignore[call-arg]
