"""The page of one job: its story and the jobs around it, with reads that are bounded whatever the job has started."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.documents import story_document
from windlass.methods.story import LISTED, read_story
from windlass.model.flow import Flow, Link, Spawn
from windlass.model.job import Edge, Policy, Wait, new_id
from windlass.model.job_types import TypeRow
from windlass.model.reports.story import LifeKind, LinkGroup, NextKind, Relation
from windlass.model.state import State, Verb

from .flows import be_discarded, end, fan_out, waiting_for
from .rig import alone

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.model.job import NewJob
    from windlass.model.reports.story import JobStory

    from .rig import Rig

ENTRY = (
    '{"attempt":1,"fence":1,"worker":null,"started_at":"2026-01-01T12:00:00Z","finished_at":"2026-01-01T12:00:00Z",'
    '"outcome":"raised"}'
)
ERROR = '{"type":"Boom","message":"no","attempt":1,"attemptedAt":"2026-01-01T12:00:00Z"}'


class Watched:
    """A store that counts its calls and the rows of its answers."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            answer = await getattr(self._store, name)(*arguments, **options)
            self.calls[name] += 1
            self.rows[name] += len(answer) if hasattr(answer, "__len__") else 1
            return answer

        return call


async def story_of(rig: Rig, job: UUID) -> JobStory:
    story = await read_story(rig.store, await rig.find(job))
    assert story.text
    assert story_document(story)["story"] == story.text
    return story


def relations(story: JobStory) -> dict[str, tuple[Relation, State | None]]:
    return {link.name: (link.relation, link.state) for link in story.links}


# The job itself


async def test_a_job_that_stands_alone_has_a_story_and_no_graph(rig: Rig) -> None:
    job = await rig.enqueue(queue="mail")
    await rig.advance(4)

    watched = Watched(rig.store)
    story = await read_story(watched, await rig.find(job))

    assert story.text.startswith("Waits for a processor for 4")
    assert story.life.parts == ((LifeKind.WAIT, 4.0),)
    assert (story.links, story.groups, story.graph, story.phases) == ([], [], None, None)
    assert story.actions == ("cancel", "signal", "rerun")
    assert "link_groups" not in watched.calls
    assert watched.calls["relatives"] == 1


async def test_a_failed_job_says_when_it_is_tried_again(rig: Rig) -> None:
    job = await rig.running(queue="mail")
    await rig.advance(10)
    await rig.finish(job, Verb.FAIL, delay=38.0, attempt=1, error=ERROR, entry=ENTRY, elapsed=10.0)

    story = await story_of(rig, job.id)

    assert story.text.replace("\N{NO-BREAK SPACE}", " ") == "Failed once: Boom: no. Retries in 38 s, attempt 2 of 4."
    assert (story.next_at, story.next_kind) == ((await rig.find(job.id)).run_at, NextKind.RETRY)
    assert story.actions[0] == "retry"


async def test_a_running_job_names_its_worker_and_a_cancelled_one_its_operator(rig: Rig) -> None:
    running, queued = await rig.running(), await rig.enqueue(queue="other")
    await rig.store.operate(Verb.CANCEL, queued, actor="ann")

    assert "on host:1, attempt 1 of 4." in (await story_of(rig, running.id)).text
    assert (await story_of(rig, queued)).text == "Was cancelled by ann before it ran."


# Children


async def test_children_are_listed_with_their_lives_and_drawn_after_their_parent(rig: Rig) -> None:
    parent = await rig.running()
    children = [alone(parent=parent.id, input='{"secret": 1}') for _ in range(4)]
    flow = Flow(
        spawns=tuple(Spawn(name=f"match[{n}]", job=child) for n, child in enumerate(children)),
        wait=waiting_for(*children, need=2),
    )
    await rig.finish(parent, Verb.WAIT, flow=flow)
    await end(rig, children[0].id)
    await end(rig, children[1].id, Verb.FAIL, delay=80.0, attempt=1, error=ERROR)
    await rig.take(children[2].id)
    await be_discarded(rig, children[3].id)

    story = await story_of(rig, parent.id)

    assert story.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "Waits for 2 of its 4 jobs; 1 more must succeed. One of them retries in 1 m 20 s."
    )
    assert (story.next_kind, story.next_at) == (NextKind.CHILD, (await rig.find(children[1].id)).run_at)
    assert relations(story) == {
        "match[0]": (Relation.CHILD, State.SUCCEEDED),
        "match[1]": (Relation.CHILD, State.FAILED),
        "match[2]": (Relation.CHILD, State.RUNNING),
        "match[3]": (Relation.CHILD, None),
    }
    assert [link.error for link in story.links] == [None, "Boom: no", None, None]
    assert [link.life is None for link in story.links] == [False, False, False, True]
    assert story.graph is not None
    places = {node.id: (node.x, node.y) for node in story.graph.nodes}
    assert places == {
        parent.id: (0, 1.5),
        **{child.id: (1, place) for place, child in enumerate(children)},
    }
    assert "secret" not in repr(story)
    own = await story_of(rig, children[0].id)
    assert relations(own) == {parent.type: (Relation.PARENT, State.WAITING)}
    assert own.graph is not None
    assert own.graph.edges == ((str(parent.id), str(children[0].id)),)


async def test_ten_thousand_children_are_counted_exactly_by_one_statement(rig: Rig) -> None:
    """Given 10,000 children, three of which are dead, two ended and two failed, 200 are read and all are counted."""
    parent = await rig.running()
    children = [alone(parent=parent.id, type="entity.match", queue="children") for _ in range(10_000)]
    spawns = tuple(Spawn(name=f"match[{n}]", job=child) for n, child in enumerate(children))
    await rig.finish(parent, Verb.WAIT, flow=Flow(spawns=spawns, wait=waiting_for(*children, need=9_000)))
    verbs = [Verb.BURY] * 3 + [Verb.SUCCEED] * 2 + [Verb.FAIL] * 2
    for job, verb in zip(await rig.claim(room=7, types=("entity.match",)), verbs, strict=True):
        await rig.finish(job, verb, delay=60.0)

    watched = Watched(rig.store)
    story = await read_story(watched, await rig.find(parent.id))

    assert watched.calls["link_groups"] == 1
    assert sum(watched.calls.values()) <= 16
    assert sum(watched.rows.values()) <= 3 * LISTED
    assert "links" not in watched.calls
    assert {(group.name, group.type, group.state): group.count for group in story.groups} == {
        ("match", "entity.match", State.DEAD): 3,
        ("match", "entity.match", State.SUCCEEDED): 2,
        ("match", "entity.match", State.FAILED): 2,
        ("match", "entity.match", State.QUEUED): 9_993,
    }
    assert (len(story.links), story.more) == (LISTED, False)
    assert story.graph is not None
    whole, match = story.graph.nodes
    assert (whole.id, whole.current, whole.x) == (parent.id, True, 0)
    assert (match.text, match.state, match.x) == ("match × 10,000, 3 dead", State.DEAD, 1)
    assert story.graph.edges == ((whole.key, match.key),)
    assert story.text == "Waits for 9,995 of its 10,000 jobs; 8,998 more must succeed. 3 of them are dead."


async def test_a_child_of_a_large_family_reads_none_of_its_siblings(rig: Rig) -> None:
    parent = await rig.running()
    children = [alone(parent=parent.id) for _ in range(300)]
    await rig.finish(parent, Verb.WAIT, flow=fan_out(*children))

    watched = Watched(rig.store)
    story = await read_story(watched, await rig.find(children[7].id))

    assert [link.id for link in story.links] == [parent.id]
    assert sum(watched.rows.values()) < 20


async def test_links_above_the_cap_are_not_counted(rig: Rig) -> None:
    parent = await rig.running()
    children = [alone(parent=parent.id) for _ in range(30)]
    await rig.finish(parent, Verb.WAIT, flow=fan_out(*children))

    groups = await rig.store.link_groups(parent.id, most=20)
    relatives = await rig.store.relatives([parent.id, children[0].id], page=5)

    assert groups == [LinkGroup(name="child-", type="mail.send", state=State.QUEUED, child=True, count=20)]
    assert len([one for one in relatives if one.job == parent.id]) == 5
    assert [(one.name, one.other) for one in relatives if one.job == children[0].id] == [(None, parent.id)]


async def test_jobs_are_found_without_input_and_output(rig: Rig) -> None:
    job = await rig.running(input='{"secret": 1}')
    await rig.finish(job, Verb.SUCCEED, output='"secret"')
    queued = await rig.enqueue(input='{"secret": 1}')

    found = await rig.store.find_brief([job.id, queued, new_id()])

    assert {id: (row.status, row.input, row.output) for id, row in found.items()} == {
        job.id: (State.SUCCEEDED, "{}", None),
        queued: (State.QUEUED, "{}", None),
    }
    assert await rig.store.find_brief([]) == {}


# Graphs, batches, pipelines


def node(name: str, *before: tuple[str, NewJob]) -> NewJob:
    edges = tuple(Edge(job.id, Policy.FAIL) for _, job in before)
    wait = Wait(edges=edges, need=len(edges)) if edges else None
    return alone(type=name, links=tuple((known, job.id) for known, job in before), wait=wait)


async def test_a_graph_is_found_from_any_of_its_jobs_while_it_goes_on(rig: Rig) -> None:
    load = node("load")
    left, right = node("left", ("load", load)), node("right", ("load", load))
    score = node("score", ("left", left), ("right", right))
    await rig.store.enqueue([load, left, right, score])

    seen = {name: await story_of(rig, job.id) for name, job in (("left", left), ("score", score), ("load", load))}

    assert {name: link[0] for name, link in relations(seen["left"]).items()} == {
        "load": Relation.BEFORE,
        "right": Relation.BESIDE,
        "score": Relation.AFTER,
    }
    assert {name: link[0] for name, link in relations(seen["load"]).items()} == {
        "left": Relation.AFTER,
        "right": Relation.AFTER,
        "score": Relation.AFTER,
    }
    for story in seen.values():
        assert story.graph is not None
        assert {node.type: node.x for node in story.graph.nodes} == {"load": 0, "left": 1, "right": 1, "score": 2}
        assert len(story.graph.edges) == 4


async def test_what_a_finished_graph_depended_on_is_still_drawn(rig: Rig) -> None:
    load = node("load")
    score = node("score", ("load", load))
    await rig.store.enqueue([load, score])
    rig.worker = await rig.register(types=("load", "score"))
    await rig.advance(5)
    await end(rig, load.id)
    await end(rig, score.id)

    story = await story_of(rig, score.id)

    assert relations(story) == {"load": (Relation.BEFORE, State.SUCCEEDED)}
    assert story.graph is not None
    assert story.graph.edges == ((str(load.id), str(score.id)),)
    assert story.life.sums == {LifeKind.JOBS: 5.0}


async def test_a_large_graph_shows_groups_with_the_jobs_before_and_after_them(rig: Rig) -> None:
    load = node("load")
    matches = [node("match", ("load", load)) for _ in range(100)]
    score = node("score", *((f"match[{place}]", job) for place, job in enumerate(matches)))
    approve = node("approve", ("score", score))
    await rig.store.enqueue([load, *matches, score, approve])

    story = await story_of(rig, score.id)

    assert story.graph is not None
    names = {node.key: node.text or node.type for node in story.graph.nodes}
    assert {names[node.key]: node.x for node in story.graph.nodes} == {
        "load": 0,
        "match × 100": 1,
        "score": 2,
        "approve": 3,
    }
    assert {(names[first], names[second]) for first, second in story.graph.edges} == {
        ("load", "match × 100"),
        ("match × 100", "score"),
        ("score", "approve"),
    }


async def test_what_another_job_of_the_graph_spawned_is_not_of_the_graph(rig: Rig) -> None:
    load = node("load")
    score = node("score", ("load", load))
    await rig.store.enqueue([load, score])
    rig.worker = await rig.register(types=("load", "score"))
    children = [alone(parent=load.id) for _ in range(3)]
    await rig.finish(await rig.take(load.id), Verb.WAIT, flow=fan_out(*children))

    story = await story_of(rig, score.id)

    assert relations(story) == {"load": (Relation.BEFORE, State.WAITING)}
    assert {link.relation for link in (await story_of(rig, load.id)).links} == {Relation.AFTER, Relation.CHILD}


async def test_the_callback_of_a_batch_is_drawn_after_its_jobs(rig: Rig) -> None:
    members = [alone() for _ in range(2)]
    callback = alone(
        wait=Wait(edges=tuple(Edge(job.id, Policy.FAIL) for job in members), need=2, batch=True),
        links=tuple((str(place), job.id) for place, job in enumerate(members)),
    )
    jobs = [msgspec.structs.replace(job, parent=callback.id) for job in members]
    await rig.store.enqueue([*jobs, callback])

    for id in (callback.id, members[0].id):
        story = await story_of(rig, id)
        assert story.graph is not None
        assert {node.id: node.x for node in story.graph.nodes}[callback.id] == 1
        assert {node.id: node.x for node in story.graph.nodes}[members[0].id] == 0


async def test_an_existing_job_that_is_waited_for_is_no_child(rig: Rig) -> None:
    other = await rig.enqueue(queue="other")
    job = await rig.running()
    await rig.finish(job, Verb.WAIT, flow=Flow(links=(Link("other", other),), wait=waiting_for(other)))

    story = await story_of(rig, job.id)

    assert relations(story) == {"other": (Relation.BEFORE, State.QUEUED)}
    assert [group.child for group in story.groups] == [False]


async def test_the_phases_of_a_pipeline_stand_in_one_row(rig: Rig) -> None:
    await rig.store.announce(
        [TypeRow(name="site", type="a", queue="q", max_attempts=4, parameters={}, phases=("form", "ask", "send"))]
    )
    job = await rig.enqueue(pipeline="site", phase="ask", phase_rank=1, queue="q")

    story = await story_of(rig, job)

    assert story.phases is not None
    assert [(node.name, node.state, node.current, node.x, node.y) for node in story.phases.nodes] == [
        ("form", State.SUCCEEDED, False, 0, 0),
        ("ask", State.QUEUED, True, 1, 0),
        ("send", None, False, 2, 0),
    ]


async def test_a_pipeline_that_no_worker_announced_has_the_phases_that_were_seen(rig: Rig) -> None:
    job = await rig.enqueue(pipeline="site", phase="ask", phase_rank=1, queue="q")

    story = await story_of(rig, job)

    assert story.phases is not None
    assert [node.name for node in story.phases.nodes] == ["ask"]
