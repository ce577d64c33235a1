"""The places of jobs in a graph: by the longest path, without crossings that can be avoided, and at most 60 nodes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.model.reports.story import GraphNode, JobGraph
from windlass.model.state import State
from windlass.policy.reports.graph_layout import MOST_NODES, describe, lay_out


def nodes(*names: str, **fields: object) -> list[GraphNode]:
    return [GraphNode(key=name, name=name, type="match", **fields) for name in names]  # type: ignore[arg-type]


def places(graph: JobGraph) -> dict[str, tuple[float, float]]:
    return {node.key: (node.x, node.y) for node in graph.nodes}


def test_a_row_stands_in_one_row() -> None:
    graph = lay_out(nodes("load", "match", "score"), [("load", "match"), ("match", "score")])

    assert places(graph) == {"load": (0, 0), "match": (1, 0), "score": (2, 0)}
    assert (graph.width, graph.height, graph.grouped) == (3, 1, False)


def test_a_fan_out_is_centred_and_the_longest_path_counts() -> None:
    edges = [("load", f"match[{n}]") for n in range(4)] + [(f"match[{n}]", "score") for n in range(4)]
    graph = lay_out(nodes("load", *(f"match[{n}]" for n in range(4)), "score"), [*edges, ("load", "score")])

    assert places(graph) == {
        "load": (0, 1.5),
        "match[0]": (1, 0),
        "match[1]": (1, 1),
        "match[2]": (1, 2),
        "match[3]": (1, 3),
        "score": (2, 1.5),
    }


def test_crossings_are_avoided() -> None:
    """Two chains whose second nodes come in the wrong order."""
    graph = lay_out(nodes("a", "b", "under b", "under a"), [("a", "under a"), ("b", "under b")])

    found = places(graph)
    assert (found["a"][1] < found["b"][1]) is (found["under a"][1] < found["under b"][1])


def test_a_circle_is_laid_out_as_well() -> None:
    graph = lay_out(nodes("a", "b", "c"), [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a"), ("a", "unknown")])

    assert places(graph) == {"a": (0, 0), "b": (1, 0), "c": (2, 0)}
    assert graph.edges == (("a", "b"), ("b", "c"), ("c", "a"))


def test_sixty_nodes_stay_and_sixty_one_are_grouped_by_name_and_type() -> None:
    names = [f"match[{n}]" for n in range(MOST_NODES - 1)]
    top = GraphNode(key="top", name="project", type="project", current=True)
    edges = [("top", name) for name in names]

    whole = lay_out([top, *nodes(*names)], edges)
    dead = GraphNode(key="more", name="match[60]", type="match", state=State.DEAD, dead=1)
    grouped = lay_out([top, *nodes(*names, state=State.SUCCEEDED), dead], [*edges, ("top", "more")])

    assert (len(whole.nodes), whole.grouped) == (60, False)
    assert grouped.grouped
    project, match = grouped.nodes
    assert (project.key, project.current) == ("top", True)
    assert (match.name, match.type, match.count, match.dead, match.state) == ("match", "match", 60, 1, State.DEAD)
    assert match.text == "match × 60, 1 dead"
    assert grouped.edges == (("top", match.key),)
    assert (project.x, match.x) == (0, 1)


def test_many_names_are_grouped_by_type_and_many_types_by_size() -> None:
    by_type = lay_out(nodes(*(f"name {chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(100))), [])
    types = [GraphNode(key=f"{n}", name=f"{n}", type=f"type {n}", count=n + 1) for n in range(100)]
    by_size = lay_out(types, [])

    assert [(node.name, node.count) for node in by_type.nodes] == [("match", 100)]
    assert len(by_size.nodes) <= MOST_NODES
    assert sum(node.count for node in by_size.nodes) == sum(range(1, 101))
    assert max(node.count for node in by_size.nodes if node.name != "others") == 100


def test_groups_that_depend_on_each_other_have_their_places() -> None:
    """Given a chain of 200 jobs with two names in turn, the two groups point at each other."""
    chain = nodes(*(f"{'even' if n % 2 == 0 else 'odd'}[{n}]" for n in range(200)))
    graph = lay_out(chain, [(chain[n].key, chain[n + 1].key) for n in range(199)])

    assert [(node.name, node.count, node.x) for node in graph.nodes] == [("even", 100, 0), ("odd", 100, 1)]


def test_a_count_that_was_cut_off_says_so() -> None:
    assert describe("match", 10_000, 3) == "match × 10,000, 3 dead"
    assert describe("match", 10_001, 0) == "match × 10,000+"


def test_nothing_is_laid_out_as_nothing() -> None:
    assert lay_out([], []) == JobGraph(nodes=(), edges=(), width=0, height=0)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 90), st.lists(st.tuples(st.integers(0, 89), st.integers(0, 89)), max_size=200))
def test_every_graph_has_distinct_places_and_edges_that_go_right(size: int, pairs: list[tuple[int, int]]) -> None:
    given_nodes = [GraphNode(key=str(n), name=f"{'abc'[n % 3]}[{n}]", type="abc"[n % 3]) for n in range(size)]
    edges = [(str(first), str(second)) for first, second in pairs if first < second]  # no circle

    graph = lay_out(given_nodes, edges)

    assert len(graph.nodes) <= MOST_NODES
    assert sum(node.count for node in graph.nodes) == size
    found = places(graph)
    assert len(set(found.values())) == len(graph.nodes)
    assert all(0 <= y < graph.height and 0 <= x < graph.width for x, y in found.values())
    if not graph.grouped:
        assert all(found[first][0] < found[second][0] for first, second in graph.edges)
    assert lay_out(given_nodes, edges) == graph
