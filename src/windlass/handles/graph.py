"""Jobs that depend on each other, declared together and enqueued together: all of them, or none.

A node without dependencies is queued at once. Any other node begins as `waiting`. The store wakes, buries or skips it
in the transaction that writes the end of the last dependency it needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.client import Call, Client, Enqueue, awaited_enqueue, blocking_enqueue
from windlass.errors import FlowError
from windlass.handles.job import JobHandle
from windlass.model.job import Edge, EdgePolicy, NewJob, Policy, Wait
from windlass.names import name_problem

LONGEST_ROUND = 12  # names of a cycle that an error lists; of a longer cycle, the two ends

POLICIES = {policy.value: policy for policy in (Policy.FAIL, Policy.SKIP, Policy.CONTINUE)}
"""The policies of an edge. `count` is for `ctx.wait`, where a handler decides itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A job of a graph, for another node's `after=`."""

    graph: Graph = field(repr=False)
    name: str


Dependency = Node | str | JobHandle[Any]
"""A node, the name of a node that may be added later, or an existing job."""


class Before(NamedTuple):
    """One dependency of a node: what its bad end means, and which job it is."""

    policy: Policy
    job: UUID | None  # None: a node of the same graph


class Planned(NamedTuple):
    """A node as it was added."""

    call: Call
    before: dict[str, Before]


class Graph:
    """`g = app.graph()`, then `g.add(…)` for each job and one `g.enqueue()`. Every enqueue makes new jobs."""

    _noun = "graph"

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes: dict[str, Planned] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    # Declaring

    def add(self, name: str, call: Call, *, after: Iterable[Dependency] | Mapping[Dependency, EdgePolicy] = ()) -> Node:
        """Add a job that runs after others: `g.add("report", report.call(), after={a: "continue", b: "skip"})`.

        `after` lists nodes, names of nodes (which may be added later), or handles of existing jobs. When a dependency
        ends dead or cancelled, or is gone, the policy of its edge decides: `fail` (this node dies too; the policy of
        a list), `skip` (this node is cancelled) or `continue` (it counts like a success). The handler reads the results
        by name with `await ctx.dependencies()`; an existing job's name is its id.
        """
        problem = name_problem(name)
        if problem is not None:
            raise FlowError(f"the name of a node {problem}")
        if name in self._nodes:
            raise FlowError(f"the graph has a node {name!r} already; give the second one another name")
        call = check_call(call, f"node {name!r}", carrier="g.enqueue(conn=conn)")
        before = dict(self._dependencies(name, after))
        if before:
            check_due(call, f"node {name!r}")
        self._nodes[name] = Planned(call, before)
        return Node(self, name)

    # Enqueuing

    def _enqueue(self, *, conn: object | None = None) -> Enqueue[dict[str, JobHandle[object]]]:
        """Enqueue all nodes in one transaction: `jobs = g.enqueue()` has their handles by name."""
        jobs = self._new_jobs()
        return Enqueue(list(jobs.values()), conn, lambda existing: self._handles(jobs, existing))

    enqueue = blocking_enqueue(_enqueue)
    aenqueue = awaited_enqueue(_enqueue)

    def _dependencies(self, name: str, after: object) -> Iterator[tuple[str, Before]]:
        """The dependencies in `after`, each with its name for `ctx.dependencies()`."""
        if isinstance(after, str) or not isinstance(after, Iterable):
            raise FlowError(f"node {name!r}: after= takes a list, not {type(after).__name__}; write after=[…]")
        policies = after if isinstance(after, Mapping) else None
        seen: set[str] = set()
        for dependency in after:
            known, job = self._identify(name, dependency)
            if known == name and job is None:
                raise FlowError(f"node {name!r} depends on itself and would wait for ever; leave it out of after=")
            if known in seen:
                raise FlowError(f"node {name!r} names {known!r} twice in after=; one edge has one policy")
            seen.add(known)
            policy = Policy.FAIL if policies is None else check_policy(policies[dependency], f"node {name!r}")
            yield known, Before(policy, job)

    def _identify(self, name: str, dependency: object) -> tuple[str, UUID | None]:
        match dependency:
            case str():
                return dependency, None
            case Node() if dependency.graph is self:
                return dependency.name, None
            case Node():
                raise FlowError(
                    f"node {name!r} depends on {dependency.name!r} of another graph; add both to one graph, or enqueue "
                    f"that one first and give its handle: after=[handles[{dependency.name!r}]]"
                )
            case JobHandle():
                return str(dependency.id), dependency.id
            case _:
                raise FlowError(
                    f"node {name!r} depends on {type(dependency).__name__}; after= takes nodes, their names, and "
                    "handles of jobs"
                )

    def _new_jobs(self) -> dict[str, NewJob]:
        """The jobs by name, each after the jobs it depends on.

        The order matters for keys: of two nodes with one key only the earlier is written, and the later one's handle is
        that job's. So no node waits for itself.
        """
        if not self._nodes:
            raise FlowError("the graph is empty; add a node first, or skip the enqueue")
        self._check_names()
        order = in_order(
            {
                name: [known for known, before in planned.before.items() if before.job is None]
                for name, planned in self._nodes.items()
            }
        )
        jobs: dict[str, NewJob] = {}
        for name in order:
            call, before = self._nodes[name]
            links = tuple((known, jobs[known].id if job is None else job) for known, (_, job) in before.items())
            edges = tuple(Edge(id, policy) for (_, id), (policy, _) in zip(links, before.values(), strict=True))
            wait = Wait(edges=edges, need=len(edges)) if edges else None
            jobs[name] = msgspec.structs.replace(call.new_job(self._client.settings), wait=wait, links=links)
        return jobs

    def _check_names(self) -> None:
        for name, planned in self._nodes.items():
            for known, before in planned.before.items():
                if before.job is None and known not in self._nodes:
                    close = difflib.get_close_matches(known, self._nodes, n=1)
                    hint = f"did you mean {close[0]!r}?" if close else "add it before the enqueue"
                    raise FlowError(f"node {name!r} depends on {known!r}, which is not in the graph; {hint}")

    def _handles(self, jobs: Mapping[str, NewJob], existing: Mapping[UUID, UUID]) -> dict[str, JobHandle[object]]:
        return {
            name: JobHandle._of(self._client, jobs[name], planned.call.definition, existing)
            for name, planned in self._nodes.items()
        }


def in_order(after: Mapping[str, Collection[str]]) -> list[str]:
    """The names, each after its dependencies; raises FlowError with the names of a cycle."""
    missing = {name: len(before) for name, before in after.items()}
    behind: dict[str, list[str]] = {name: [] for name in after}
    for name, before in after.items():
        for other in before:
            behind[other].append(name)
    ordered = [name for name, count in missing.items() if count == 0]
    for name in ordered:  # grows during the loop
        for other in behind[name]:
            missing[other] -= 1
            if missing[other] == 0:
                ordered.append(other)
    if len(ordered) < len(after):
        names = _cycle(after, frozenset(name for name, count in missing.items() if count > 0))
        raise FlowError(f"the graph has a cycle, and none of it could ever start: {names}; take one edge out")
    return ordered


def _cycle(after: Mapping[str, Collection[str]], stuck: frozenset[str]) -> str:
    """The names of a cycle, in the order `first → second`. Each stuck name depends on another stuck one."""
    name = next(name for name in after if name in stuck)
    places: dict[str, int] = {}
    while name not in places:
        places[name] = len(places)
        name = next(other for other in after[name] if other in stuck)
    found = list(places)[places[name] :][::-1]
    first = found.index(min(found, key=list(after).index)) if len(found) <= LONGEST_ROUND else 0
    names = [*found[first:], *found[:first]]
    if len(names) > LONGEST_ROUND:
        half = LONGEST_ROUND // 2
        names = [*names[:half], f"… {len(names) - 2 * half} more …", *names[-half:]]
    return " → ".join([*names, names[0]])


def check_call(call: object, what: str, *, carrier: str) -> Call:
    """The call of a node or of a batch's callback. The connection is given for the whole graph or batch."""
    if not isinstance(call, Call):
        raise FlowError(f"{what} is given {type(call).__name__}, not a call; write: send.call(…)")
    if call.options.conn is not None:
        raise FlowError(f"the call of {what} has a connection of its own; one transaction takes them all: {carrier}")
    return call


def check_due(call: Call, what: str) -> None:
    """Refuse a time for a job that waits: it is due when its wait is over, and the time would silently be lost."""
    if call.options.delay is not None or call.options.run_at is not None:
        raise FlowError(
            f"{what} is due as soon as what it waits for has ended, and cannot have a delay or run_at as well; begin "
            "its handler with `await ctx.sleep(…)`"
        )


def check_policy(policy: object, what: str) -> Policy:
    """The policy of that name."""
    known = POLICIES.get(policy) if isinstance(policy, str) else None
    if known is None:
        raise FlowError(f"{what}: there is no policy {policy!r}; write one of {', '.join(POLICIES)}")
    return known
