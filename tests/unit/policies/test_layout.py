"""Layouts against an oracle that packs by another method, and what is said if there is none."""

import itertools
import random
import time

import pytest
from plans import (
    GPUS_PER_NODE,
    NUM_NODES,
    can_be_compact,
    fewest_nodes,
    is_feasible,
    must_divide,
    random_plan,
)

from pettingllms.errors import ClusterError
from pettingllms.policies import Node
from pettingllms.policies.layout import Layout, ProcessGroup, plan_layout, spread_over_nodes
from pettingllms.policies.packing import Item, pack
from pettingllms.policies.resources import process_groups

NODES = tuple(Node(f"node {at}", GPUS_PER_NODE) for at in range(NUM_NODES))


def engines(num: int, width: int, name: str = "a") -> list[ProcessGroup]:
    key = "inference.tensor_parallel"
    return [ProcessGroup("engine", name, (name,), width, width, at, key) for at in range(num)]


def learner(num_ranks: int, name: str = "a") -> ProcessGroup:
    return ProcessGroup("learner", name, (name,), num_ranks, 1, key="learner.num_ranks")


def layout_of(*groups: ProcessGroup, nodes: tuple[int, ...] = (8,) * 8) -> Layout:
    named = tuple(Node(f"node {at}", num) for at, num in enumerate(nodes))
    return plan_layout(tuple(groups), named)


def nodes_of(layout: Layout, kind: str) -> list[list[int]]:
    return [[s.node for s in one.shares] for one in layout.placed if one.group.kind == kind]


def check_layout(layout: Layout, groups: tuple[ProcessGroup, ...]) -> None:
    """Each GPU is given once, and each group has its GPUs in whole pieces."""
    assert tuple(one.group for one in layout.placed) == groups
    given = [(s.node, gpu) for one in layout.placed for s in one.shares for gpu in s.gpus]
    assert len(given) == len(set(given))
    assert all(gpu < layout.nodes[node].num_gpus for node, gpu in given)
    for one in layout.placed:
        sizes = [len(share.gpus) for share in one.shares]
        assert sum(sizes) == one.group.num_gpus
        assert all(size % one.group.piece == 0 for size in sizes)


def test_two_hundred_random_plans_are_placed_if_and_only_if_they_fit() -> None:
    counts = dict.fromkeys(["feasible", "infeasible", "oversize", "forced"], 0)
    start = time.perf_counter()
    for seed in range(200):
        groups = process_groups(*random_plan(seed))
        if not is_feasible(groups):
            counts["infeasible"] += 1
            with pytest.raises(ClusterError, match=r"missing|on one node"):
                plan_layout(groups, NODES)
            continue
        layout = plan_layout(groups, NODES)
        check_layout(layout, groups)
        counts["feasible"] += 1
        small = [one for one in layout.divided if one.group.num_gpus <= GPUS_PER_NODE]
        counts["forced"] += bool(small)
        assert bool(small) == must_divide(groups), f"seed {seed}"
        counts["oversize"] += any(group.num_gpus > GPUS_PER_NODE for group in groups)
        if can_be_compact(groups):
            for one in layout.placed:
                assert len(one.shares) == fewest_nodes(one.group), f"seed {seed}: {one}"
    print(f"{counts} in {time.perf_counter() - start:.2f} s")
    assert min(counts.values()) >= 1, counts
    assert counts["feasible"] >= 100


def test_small_packings_divide_as_few_items_as_exhaustive_search() -> None:
    rng = random.Random(1)
    for _ in range(300):
        free = [rng.randint(0, 4) for _ in range(3)]
        items = [_item(rng) for _ in range(rng.randint(1, 5))]
        found, best = pack(items, free), _fewest_divided(items, free)
        case = f"{items} on {free}"
        assert (found is None) == (best is None), case
        if found is not None:
            largest = max(free)
            small = [
                i for i, p in zip(items, found, strict=True) if len(p) > 1 and i.size <= largest
            ]
            assert len(small) == best, case


def _item(rng: random.Random) -> Item:
    if rng.random() < 0.5:
        return Item(size := rng.randint(1, 4), size, "engine")
    piece = rng.randint(1, 2)
    return Item(piece * rng.randint(1, 4), piece)


def _fewest_divided(items: list[Item], free: list[int]) -> int | None:
    """Of items that some node could hold, by trying all placements of all pieces."""
    best: int | None = None
    ways = [_ways(item, free) for item in items]
    for chosen in itertools.product(*ways):
        if any(sum(parts[node] for parts in chosen) > room for node, room in enumerate(free)):
            continue
        divided = sum(
            sum(map(bool, parts)) > 1 and item.size <= max(free)
            for item, parts in zip(items, chosen, strict=True)
        )
        best = divided if best is None else min(best, divided)
    return best


def _ways(item: Item, free: list[int]) -> list[tuple[int, ...]]:
    options = [range(0, room + 1, item.piece) for room in free]
    return [parts for parts in itertools.product(*options) if sum(parts) == item.size]


def test_first_fit_decreasing_is_not_enough() -> None:
    sizes = (4, 3, 3, 2, 2, 2)
    layout = layout_of(
        *(e for n, s in enumerate(sizes) for e in engines(1, s, f"m{n}")), nodes=(8, 8)
    )
    assert layout.num_gpus == 16


def test_replicas_of_a_model_are_spread_over_nodes() -> None:
    layout = layout_of(*engines(8, 2), learner(8))
    assert len({node for (node,) in nodes_of(layout, "engine")}) == 7
    assert len(nodes_of(layout, "learner")[0]) == 1


def test_a_learner_that_exceeds_a_node_is_divided_over_the_fewest_nodes() -> None:
    layout = layout_of(learner(20), *engines(4, 2))
    (nodes,) = nodes_of(layout, "learner")
    assert len(nodes) == 3
    assert sorted(len(s.gpus) for s in layout.placed[0].shares) == [4, 8, 8]


def test_a_small_learner_is_divided_only_if_nothing_else_is_left() -> None:
    layout = layout_of(*engines(2, 5), learner(6), nodes=(8, 8))
    (nodes,) = nodes_of(layout, "learner")
    assert nodes == [0, 1]
    whole = layout_of(*engines(2, 5), learner(3), nodes=(8, 8))
    assert not whole.divided


@pytest.mark.parametrize(
    ("groups", "nodes", "message"),
    [
        (
            [*engines(2, 4), learner(10)],
            (8, 8),
            (
                r"needs 18 GPUs \(2 engines of 4 GPUs, 10 learner ranks\).* 16 were found on 2 "
                "nodes: 2 missing"
            ),
        ),
        (
            engines(1, 8),
            (4, 4, 4),
            (
                r"engine 0 of 'a' needs 8 GPUs on one node \(inference.tensor_parallel\), but "
                "node 0 has 4 free"
            ),
        ),
        (
            engines(3, 5),
            (8, 8),
            (
                "needs 15 of 16 GPUs, but no layout .* engine 2 of 'a' needs 5 GPUs on one node .*"
                "node 0 has 3 free, node 1 has 3 free; lower inference.tensor_parallel"
            ),
        ),
        (engines(1, 1), (), "only 0 were found"),
    ],
)
def test_what_is_missing_is_named(
    groups: list[ProcessGroup], nodes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        layout_of(*groups, nodes=nodes)


def test_gpus_that_other_programs_hold_are_named() -> None:
    held = (Node("x", 3, 5), Node("y", 2, 6))
    with pytest.raises(ClusterError, match="x has 3 free \\(5 in use by other programs\\)"):
        plan_layout(tuple(engines(1, 4)), held)
    with pytest.raises(ClusterError, match="5 were found on 2 nodes and 11 are in use"):
        plan_layout((learner(6),), held)


def test_without_gpus_engines_are_spread_and_ranks_stay_together() -> None:
    nodes = (Node("x", 2), Node("y", 4), Node("z", 2))
    layout = spread_over_nodes((*engines(4, 1), learner(3)), nodes)
    used = [node for (node,) in nodes_of(layout, "engine")]
    assert (used.count(0), used.count(1), used.count(2)) == (1, 2, 1)
    assert nodes_of(layout, "learner") == [[1]]
    (divided,) = spread_over_nodes((learner(6),), nodes).divided
    assert [len(share.gpus) for share in divided.shares] == [2, 4]
    crowded = spread_over_nodes((learner(20), *engines(1, 1)), nodes)
    assert len(crowded.placed) == 2, "cores are shared, so there is always a layout"


def test_a_thousand_gpus_are_planned_in_seconds() -> None:
    nodes = tuple(Node(f"node {at}", 8) for at in range(128))
    groups = (*engines(600, 1), *engines(75, 4, "b"), learner(64), *map(learner, [8] * 6))
    start = time.perf_counter()
    layout = plan_layout(groups, nodes)
    assert time.perf_counter() - start < 10
    check_layout(layout, groups)
    assert [len(one.shares) for one in layout.divided] == [8]
