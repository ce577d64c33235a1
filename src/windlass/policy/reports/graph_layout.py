"""The places of jobs in a graph: from left to right by the longest path, in few crossings, the same for the same input.

A graph of more than 60 nodes shows jobs of one name and type as one node: `match × 2,560, 3 dead`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from windlass.model.reports.story import GraphNode, JobGraph
from windlass.model.rows import COUNTED
from windlass.model.state import State

MOST_NODES = 60
SWEEPS = 2
NUMBER = re.compile(r"[\[\]0-9]+$")  # at the end of a name: `match[17]`, as the stores group names
OTHERS = "others"

CONCERN = (State.DEAD, State.FAILED, State.RUNNING, State.WAITING, State.QUEUED, State.CANCELLED, State.SUCCEEDED)
"""The state of a group is the first of these that one of its jobs has."""

Edges = Collection[tuple[str, str]]
Grouping = Callable[[GraphNode], str]


def lay_out(nodes: Sequence[GraphNode], edges: Edges) -> JobGraph:
    """Give every node its place. `x` is the length of the longest path that leads to it, `y` its row."""
    shown, joined, grouped = reduce(nodes, edges)
    keys = [node.key for node in shown]
    ahead = acyclic(keys, joined)
    columns = _columns(keys, ahead)
    rows = _rows(columns, ahead)
    places = {key: (float(x), y) for x, column in enumerate(columns) for key, y in zip(column, rows[x], strict=True)}
    placed = [msgspec.structs.replace(node, x=places[node.key][0], y=places[node.key][1]) for node in shown]
    return JobGraph(
        nodes=tuple(placed),
        edges=tuple(joined),
        grouped=grouped,
        width=float(len(columns)),
        height=float(max(map(len, columns), default=0)),
    )


# Grouping


def reduce(nodes: Sequence[GraphNode], edges: Edges) -> tuple[list[GraphNode], list[tuple[str, str]], bool]:
    """The nodes and edges that are shown: each node as it is, or groups of them, at most 60 in all."""
    known = {node.key for node in nodes}
    kept = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1] and known.issuperset(edge)]
    groupings: tuple[Grouping, ...] = (_by_name, _by_type)
    shown, joined, grouped = list(nodes), kept, False
    for group_of in groupings:
        if len(shown) <= MOST_NODES:
            break
        shown, joined, grouped = *_group(nodes, kept, group_of), True
    if len(shown) > MOST_NODES:
        sizes = sorted((node for node in shown if not node.current), key=lambda node: (-node.count, node.key))
        large = {node.key for node in sizes[: MOST_NODES - 2]}
        shown, joined = _group(shown, joined, lambda node: node.key if node.key in large or node.current else OTHERS)
    return shown, joined, grouped


def _by_name(node: GraphNode) -> str:
    return f"{stem(node.name)} {node.type}"


def _by_type(node: GraphNode) -> str:
    return f"type {node.type}"


def stem(name: str) -> str:
    """The name of a job without the number at its end: `match[17]` → `match`."""
    return NUMBER.sub("", name)


def _group(
    nodes: Iterable[GraphNode], edges: Edges, group_of: Grouping
) -> tuple[list[GraphNode], list[tuple[str, str]]]:
    """One node per group, in the order of their first members. The current job stays by itself."""
    members: dict[str, list[GraphNode]] = defaultdict(list)
    group: dict[str, str] = {}
    for node in nodes:
        group[node.key] = node.key if node.current else group_of(node)
        members[group[node.key]].append(node)
    joined = dict.fromkeys((group[first], group[second]) for first, second in edges)
    return (
        [join(key, found) for key, found in members.items()],
        [edge for edge in joined if edge[0] != edge[1]],
    )


def join(key: str, nodes: Sequence[GraphNode]) -> GraphNode:
    """Several nodes as one, with all their jobs counted."""
    if len(nodes) == 1:
        return msgspec.structs.replace(nodes[0], key=key)
    count, dead = sum(node.count for node in nodes), sum(node.dead for node in nodes)
    types = {node.type for node in nodes}
    only = next(iter(types)) if len(types) == 1 else None
    names = {stem(node.name) for node in nodes}
    name = (next(iter(names)) if len(names) == 1 else only) or only or OTHERS
    states = {node.state for node in nodes}
    return GraphNode(
        key=key,
        name=name,
        type=only,
        state=next((state for state in CONCERN if state in states), None),
        count=count,
        dead=dead,
        text=describe(name, count, dead),
    )


def describe(name: str, count: int, dead: int) -> str:
    """`match × 2,560, 3 dead`."""
    return f"{name} × {count_text(count)}" + (f", {count_text(dead)} dead" if dead else "")


def count_text(count: int) -> str:
    """`2,560`; `10,000+` where no more were counted."""
    return f"{count:,}" if count <= COUNTED else f"{COUNTED:,}+"


# Columns and rows


def acyclic(keys: Sequence[str], edges: Edges) -> dict[str, list[str]]:
    """What follows each node, without the edges that close a circle: groups of jobs may depend on each other."""
    following: dict[str, list[str]] = {key: [] for key in keys}
    for first, second in edges:
        following[first].append(second)
    seen: dict[str, bool] = {}  # False: on the way that is walked now
    for start in keys:
        way = [(start, iter(list(following[start])))] if start not in seen else []
        seen.setdefault(start, False)
        while way:
            key, rest = way[-1]
            for other in rest:
                if other not in seen:
                    seen[other] = False
                    way.append((other, iter(list(following[other]))))
                    break
                if not seen[other]:
                    following[key].remove(other)
            else:
                seen[key] = True
                way.pop()
    return following


def _columns(keys: Sequence[str], following: Mapping[str, list[str]]) -> list[list[str]]:
    """The nodes by the length of the longest path that leads to each."""
    missing = dict.fromkeys(keys, 0)
    for behind in following.values():
        for key in behind:
            missing[key] += 1
    depth = dict.fromkeys(keys, 0)
    ready = [key for key in keys if not missing[key]]
    for key in ready:  # grows during the loop
        for other in following[key]:
            depth[other] = max(depth[other], depth[key] + 1)
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for key in keys:
        columns[depth[key]].append(key)
    return columns


def _rows(columns: list[list[str]], following: Mapping[str, list[str]]) -> list[list[float]]:
    """Order each column by the barycentre of its neighbours, in two sweeps, and centre it. Changes `columns`."""
    before: dict[str, list[str]] = defaultdict(list)
    for key, behind in following.items():
        for other in behind:
            before[other].append(key)
    height = max(map(len, columns), default=0)
    place: dict[str, float] = {}

    def settle(column: Sequence[str]) -> list[float]:
        rows = [(height - len(column)) / 2 + row for row in range(len(column))]
        place.update(zip(column, rows, strict=True))
        return rows

    rows = [settle(column) for column in columns]
    for _ in range(SWEEPS):
        for order, neighbours in ((range(len(columns)), before), (reversed(range(len(columns))), following)):
            for x in order:
                columns[x].sort(key=lambda key: _barycentre(place, neighbours.get(key, ()), place[key]))
                rows[x] = settle(columns[x])
    return rows


def _barycentre(place: Mapping[str, float], neighbours: Sequence[str], own: float) -> float:
    return sum(place[other] for other in neighbours) / len(neighbours) if neighbours else own
