"""What the page of one job asks for: its story, its life, and the jobs around it; and `job.details()`.

Everything that is read is bounded. Of a job with 10,000 children, 200 are listed, and all are counted by one statement.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from windlass.model.reports.story import GraphNode, JobGraph, JobLink, JobStory, LifeKind, LinkGroup, Relation
from windlass.model.rows import COUNTED, JobDetails, WaitReason
from windlass.model.state import State
from windlass.policy.reports.graph_layout import MOST_NODES, describe, join, lay_out, stem
from windlass.policy.reports.life import life_of
from windlass.policy.reports.story import actions_of, next_of, story_of, summarize_failure
from windlass.store.reasons import read_reasons

if TYPE_CHECKING:
    from windlass.model.flow import Recollection
    from windlass.model.job import Job
    from windlass.store.protocol import Store

LISTED = 200  # jobs around a job
LINKED = 1_000  # links of its details …
SHOWN = 20  # … of which so many are looked up, and rows of the audit
NEAR = 60  # jobs that are read of each other job of its graph
ROUNDS = 8  # how many edges away a job of its graph is looked for
AUDITED = 20  # rows of the audit in which the actor of a cancel is looked for


async def read_details(store: Store, job: Job) -> JobDetails:
    """What the store holds about a job beside its own row; of its links a page, and how many there are by state."""
    links = await store.links(job.id, page=LINKED)
    known = await store.find_many([link.id for link in links[:SHOWN]]) if links else {}
    memory = await store.recall(job.id)
    return JobDetails(
        reasons=(await read_reasons(store, [job]))[job.id],
        waits=(await store.waits([job.id])).get(job.id) if job.status is State.WAITING else None,
        links=links,
        foreign=frozenset(id for id, other in known.items() if other.parent != job.id),
        steps=_list_steps(memory),
        signals=sorted(memory.signals),
        audit=await store.audit(job=job.id, page=SHOWN + 1),
        workers={row.id: row.name for row in await store.workers()},
        linked=_count_states(await store.link_groups(job.id, most=COUNTED + 1) if links else ()),
    )


def _list_steps(memory: Recollection) -> list[str]:
    """The program's names of steps, sleeps and signals with a timeout; the names that Windlass gives have a space."""
    return sorted(name for name in memory.steps if name == name.strip() and "/ " not in name)


async def read_story(store: Store, job: Job, hide: Callable[[Job], Job] | None = None) -> JobStory:
    """The story of a job. Its parts are read one after the other, and may be some milliseconds apart.

    `hide` takes the secrets out of the errors of the jobs around it. The caller does so with the job itself.
    """
    circle = Circle(job)
    await circle.read(store)
    if hide is not None:
        await circle.hide_errors(store, hide)
    groups = await store.link_groups(job.id, most=COUNTED + 1) if circle.own else []
    linked = [circle.jobs[id] for id in circle.listed() if id in circle.jobs]
    reasons = await read_reasons(store, [job, *linked])
    details = JobDetails(
        reasons=reasons[job.id],
        waits=(await store.waits([job.id])).get(job.id) if job.status is State.WAITING else None,
        links=(),
        foreign=frozenset(),
        steps=(),
        signals=(),
        audit=await store.audit(job=job.id, page=AUDITED) if job.status is State.CANCELLED else (),
        workers={row.id: row.name for row in await store.workers()} if job.status is State.RUNNING else {},
        linked=_count_states(groups),
    )
    now = await store.now()
    retry_at = min((other.run_at for other in linked if other.status is State.FAILED), default=None)
    next_at, next_kind = next_of(job, details, retry_at=retry_at)
    return JobStory(
        text=story_of(job, details, now, retry_at=retry_at),
        life=life_of(job, now, next(iter(reasons[job.id]), None), await _kind_of_waits(store, job, groups)),
        next_at=next_at,
        next_kind=next_kind,
        actions=actions_of(job),
        links=[circle.link(id, now, reasons) for id in circle.listed()],
        groups=groups,
        more=sum(group.count for group in groups) > COUNTED,
        graph=make_graph(circle, groups),
        phases=await read_phases(store, job),
        now=now,
    )


def _count_states(groups: Iterable[LinkGroup]) -> dict[State | None, int]:
    counted: Counter[State | None] = Counter()
    for group in groups:
        counted[group.state] += group.count
    return dict(counted)


async def _kind_of_waits(store: Store, job: Job, groups: Sequence[LinkGroup]) -> LifeKind:
    """What the job waited for in waits that are over: its row does not tell, and its links and signals do.

    With both, each wait may have been for either: then no part of its life is named after one of them.
    """
    signals = bool((await store.recall(job.id)).signals) if job.fence > 1 else False
    if groups and not signals:
        return LifeKind.JOBS
    return LifeKind.SIGNAL if signals and not groups else LifeKind.OTHER


class Circle:
    """The jobs around one job: its parent, the jobs that it knows by name, and its graph in both directions."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.jobs: dict[UUID, Job] = {job.id: job}
        self.names: dict[UUID, str] = {}
        self.children: dict[UUID, None] = {}  # in their order
        self.members: dict[UUID, None] = {}  # of its graph, without itself
        self.edges: dict[tuple[UUID, UUID], None] = {}  # the first is before the second
        self.own: dict[UUID, str] = {}  # the names of the jobs that it knows itself

    async def read(self, store: Store) -> None:
        """Go from job to job along links and edges, a round per step, until no job is new or enough are known."""
        frontier, page = [self.job.id], LISTED
        for _ in range(ROUNDS):
            found = await store.relatives(frontier, page=page)
            wanted = {relative.other for relative in found} | ({self.job.parent} if self.job.parent else set())
            missing = sorted(wanted - self.jobs.keys())
            self.jobs |= await store.find_brief(missing) if missing else {}
            before = len(self.members)
            for relative in found:
                self._place(relative.job, relative.name, relative.other)
            frontier, page = list(self.members)[before:], NEAR
            if not frontier or len(self.jobs) > LISTED:
                break
        if self.job.parent is not None:
            self._join_family(self.job.parent, self.job.id)

    async def hide_errors(self, store: Store, hide: Callable[[Job], Job]) -> None:
        """An error may repeat a secret of its own job's input, which was not read so far."""
        failed = [id for id in self.listed() if id in self.jobs and self.jobs[id].error is not None]
        for start in range(0, len(failed), SHOWN):  # inputs may be large
            for id, job in (await store.find_many(failed[start : start + SHOWN])).items():
                shown = await asyncio.to_thread(hide, job)
                self.jobs[id] = msgspec.structs.replace(self.jobs[id], error=shown.error, reason=shown.reason)

    def _place(self, job: UUID, name: str | None, other: UUID) -> None:
        """Note one relative of this job, or of another job of its graph."""
        here, found, mine = self.jobs.get(job), self.jobs.get(other), job == self.job.id
        if name is None:  # it waits for `job`
            if here is not None and other != here.parent and other != self.job.id and found is not None:
                self.members.setdefault(other)
                self.edges.setdefault((job, other))
            return
        if mine:
            self.own.setdefault(other, name.strip())
        is_child = found is None or found.parent == job
        if is_child and mine:
            self.children.setdefault(other)
            self._join_family(job, other)
        elif not is_child or other < job:  # a spawned child of another job of the graph is not of the graph
            self.edges.setdefault((other, job))
            if other != self.job.id:
                self.members.setdefault(other)
        else:
            return
        self.names.setdefault(other, name.strip())

    def _join_family(self, parent: UUID, child: UUID) -> None:
        """A parent is before the children that it spawned. The callback of a batch is after its jobs.

        Ids grow with time: the callback is made after the jobs of its batch, and a spawned child after its parent.
        """
        self.edges.setdefault((parent, child) if parent < child else (child, parent))

    def listed(self) -> list[UUID]:
        """The jobs that are listed: its parent, its graph, its children; at most 200."""
        parent = [self.job.parent] if self.job.parent is not None else []
        around = dict.fromkeys([*parent, *self.members, *self.children])
        return [id for id in around if id != self.job.id][:LISTED]

    def relation(self, id: UUID) -> Relation:
        if id in self.children:
            return Relation.CHILD
        if id == self.job.parent:
            return Relation.PARENT
        if id in self.before:
            return Relation.BEFORE
        return Relation.AFTER if id in self.after else Relation.BESIDE

    @cached_property
    def before(self) -> frozenset[UUID]:
        """The jobs from which a path of edges leads to this one."""
        return self._reach((second, first) for first, second in self.edges)

    @cached_property
    def after(self) -> frozenset[UUID]:
        """The jobs to which a path of edges leads from this one."""
        return self._reach(self.edges)

    def _reach(self, edges: Iterable[tuple[UUID, UUID]]) -> frozenset[UUID]:
        following: dict[UUID, list[UUID]] = {}
        for first, second in edges:
            following.setdefault(first, []).append(second)
        reached = {self.job.id}
        ways = [self.job.id]
        for id in ways:  # grows during the loop
            new = set(following.get(id, ())) - reached
            reached |= new
            ways += new
        return frozenset(reached)

    def name(self, id: UUID) -> str:
        job = self.jobs.get(id)
        return self.names.get(id) or (job.type if job is not None else str(id))

    def link(self, id: UUID, now: datetime, reasons: Mapping[UUID, Sequence[WaitReason]]) -> JobLink:
        relation, name, job = self.relation(id), self.name(id), self.jobs.get(id)
        if job is None:
            return JobLink(relation=relation, name=name, id=id)
        failure = job.failure() if job.status in (State.FAILED, State.DEAD) else None
        why = next(iter(reasons.get(id, ())), None)
        return JobLink(
            relation=relation,
            name=name,
            id=id,
            type=job.type,
            state=job.status,
            tenant=job.tenant,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            total=job.total,
            processed=job.processed,
            error=None if failure is None else summarize_failure(failure),
            run_at=job.run_at,
            why=None if why is None else why.text,
            life=life_of(job, now, why),
        )


# Graphs


def make_graph(circle: Circle, groups: Sequence[LinkGroup]) -> JobGraph | None:
    """The jobs around this one as a graph. Above 60 the jobs that it knows by name are groups, with exact counts."""
    job = circle.job
    around = dict.fromkeys([job.id, *circle.listed()])
    if len(around) == 1:
        return None
    edges = [(str(first), str(second)) for first, second in circle.edges]
    if len(around) <= MOST_NODES and sum(group.count for group in groups) < MOST_NODES:
        return lay_out([_node(circle, id) for id in around], edges)
    nodes = [_node(circle, id) for id in around if id not in circle.own]
    callback = any(child < job.id for child in circle.children)
    keys: dict[GroupKey, str] = {}
    for place, (group, members) in enumerate(_group_nodes(groups).items()):
        key = keys[group] = f"group {place}"
        nodes.append(join(key, members))
        edges.append((str(job.id), key) if group.child and not callback else (key, str(job.id)))
    shown = {str(id): keys.get(_group_of(circle, id), str(id)) for id in circle.own}
    return lay_out(nodes, [(shown.get(first, first), shown.get(second, second)) for first, second in edges])


class GroupKey(NamedTuple):
    """What the jobs of one node have in common."""

    name: str
    type: str | None
    child: bool


def _group_of(circle: Circle, id: UUID) -> GroupKey:
    job = circle.jobs.get(id)
    name = stem(circle.own[id])
    return GroupKey(name, None, False) if job is None else GroupKey(name, job.type, job.parent == circle.job.id)


def _node(circle: Circle, id: UUID) -> GraphNode:
    job = circle.jobs.get(id)
    state = None if job is None else job.status
    return GraphNode(
        key=str(id),
        id=id,
        name=circle.name(id),
        type=None if job is None else job.type,
        state=state,
        dead=int(state is State.DEAD),
        current=id == circle.job.id,
    )


def _group_nodes(groups: Sequence[LinkGroup]) -> dict[GroupKey, list[GraphNode]]:
    """A node for each state of the jobs of one name and type."""
    members: dict[GroupKey, list[GraphNode]] = {}
    for group in groups:
        name, dead = group.name or group.type or "", group.count if group.state is State.DEAD else 0
        node = GraphNode(
            key="",
            name=name,
            type=group.type,
            state=group.state,
            count=group.count,
            dead=dead,
            text=describe(name, group.count, dead) if group.count > 1 else "",
        )
        members.setdefault(GroupKey(group.name.strip(), group.type, group.child), []).append(node)
    return members


async def read_phases(store: Store, job: Job) -> JobGraph | None:
    """The phases of a pipeline in one row. Without an announced pipeline, those that the job has been in."""
    if job.pipeline is None:
        return None
    announced = next((row.phases for row in await store.types(job.pipeline) if row.name == job.pipeline), ())
    passed = [attempt.phase for attempt in job.attempts_made() if attempt.phase]
    names = list(dict.fromkeys([*(announced or passed), job.phase]))
    current = names.index(job.phase)
    nodes = [
        GraphNode(
            key=name,
            name=name,
            state=State.SUCCEEDED if place < current else job.status if place == current else None,
            current=place == current,
        )
        for place, name in enumerate(names)
    ]
    return lay_out(nodes, list(pairwise(names)))
