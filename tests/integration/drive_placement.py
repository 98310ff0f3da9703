"""Random plans as real placement groups on simulated nodes with simulated GPUs, in a process of its
own: Ray's simulated clusters run without token authentication."""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
os.environ.update(RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="1")  # as on a node that others started

import ray
from plans import GPUS_PER_NODE, NUM_NODES, config_of, is_feasible, must_divide, random_plan
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table

from pettingllms.cluster import reservation
from pettingllms.cluster.reservation import Place, Reservation, find_nodes, reserve
from pettingllms.cluster.rollout_pool import OPTIONS
from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError
from pettingllms.policies import ModelGroup, plan_models
from pettingllms.policies.layout import Layout
from pettingllms.policies.resources import process_groups

STORE = 80 * 2**20
KEEP_WORKERS = {"num_workers_soft_limit": 16, "idle_worker_killing_time_threshold_ms": 600_000}


class Process:
    """A process of a run that only tells where it is."""

    def place(self) -> tuple[str, list[str]]:
        context = ray.get_runtime_context()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return context.get_node_id(), [device for device in visible.split(",") if device]


def where() -> tuple[str, list[str]]:
    return Process().place()


def found_places(places: list[Place], actors: bool) -> list[tuple[str, list[str]]]:
    """Where the processes run, all at the same time if they are actors. Tasks are faster: Ray uses
    its workers again, unless they have their own environment variables."""
    if not actors:
        options = [{k: v for k, v in o.options.items() if k != "runtime_env"} for o in places]
        return ray.get([ray.remote(where).options(**one).remote() for one in options])
    started = [ray.remote(Process).options(**one.options).remote() for one in places]
    found = ray.get([actor.place.remote() for actor in started])
    for actor in started:
        ray.kill(actor)
    return found


def check(found: Reservation, layout: Layout, ids: list[str], actors: bool) -> int:
    """Compare where processes run with the layout; the number of processes."""
    parts = [("engine", found.engines), ("learner", found.learners)]
    flat = [(kind, name, one) for kind, own in parts for name in own for one in own[name]]
    used: dict[str, Counter[tuple[str, str]]] = {kind: Counter() for kind, _ in parts}
    seen = found_places([one for _, _, one in flat], actors)
    for (kind, name, _), (node, devices) in zip(flat, seen, strict=True):
        planned = {
            ids[share.node]
            for one in layout.placed
            if one.group.model == name and one.group.kind in (kind, "colocated")
            for share in one.shares
        }
        assert node in planned, f"{name} runs on {node}, planned on {planned}"
        used[kind].update((node, device) for device in devices)
    if actors:  # tasks run one after another and may see the same devices
        engines, ranks = used["engine"], used["learner"]
        assert {*engines.values(), *ranks.values()} <= {1}, "a GPU is given twice"
        assert len(engines.keys() | ranks.keys()) == layout.num_gpus, "some GPU is missing"
        shared = sum(p.group.num_gpus for p in layout.placed if p.group.kind == "colocated")
        assert len(engines.keys() & ranks.keys()) == shared
    return len(flat)


def place_plans(seeds: range, every: int) -> dict[str, Any]:
    """Reserve each plan and start processes in it: actors in each `every`th plan, else tasks."""
    counts: Counter[str] = Counter()
    seconds: list[float] = []
    for seed in seeds:
        config, groups = random_plan(seed)
        parts = process_groups(config, groups)
        before = len(placement_group_table())
        if not is_feasible(parts):
            said = refusal(config, groups)
            assert "missing" in said or "on one node" in said, f"seed {seed}: '{said}'"
            assert len(placement_group_table()) == before, "something was created"
            counts["refused"] += 1
            continue
        start = time.perf_counter()
        found = reserve(config, groups, "cuda", learning=True, sampling=True)
        seconds.append(time.perf_counter() - start)
        layout = found.layout
        assert layout is not None
        divided = [one for one in layout.divided if one.group.num_gpus <= GPUS_PER_NODE]
        assert bool(divided) == must_divide(parts)
        counts["divided"] += len(layout.divided)
        actors = seed % every == 0
        counts["with actors"] += actors
        counts["processes"] += check(found, layout, list(find_nodes("GPU")), actors)
        found.release()
        counts["placed"] += 1
    states = Counter(one["state"] for one in placement_group_table().values())
    assert set(states) == {"REMOVED"}, states
    return {**counts, "slowest": max(seconds), "mean": sum(seconds) / len(seconds)}


def refusal(config: RunConfig, groups: list[ModelGroup]) -> str:
    """Why a plan is refused; empty if it is placed."""
    try:
        reserve(config, groups, "cuda", learning=True, sampling=True)
    except ClusterError as error:
        return str(error)
    return ""


def hold_gpus() -> dict[str, str]:
    """What is said if other programs hold GPUs, before and after a layout was planned."""
    reservation.RESERVE_SECONDS = 1.0
    config, groups = config_of(), random_plan(0)[1][:1]
    ids, said = list(find_nodes("GPU")), {}
    held = ray.util.placement_group([{"GPU": 8.0}] * NUM_NODES, strategy="STRICT_SPREAD")
    assert held.wait(30)
    said["held"] = refusal(config, groups)
    free = {key: find_nodes("GPU")[key] for key in ids}
    whole = {key: type(node)(node.name, 8) for key, node in free.items()}
    now = reservation.find_nodes
    answers = [whole, whole, free]  # GPUs are taken between planning and reserving
    reservation.find_nodes = lambda resource: answers.pop(0)
    said["taken"] = refusal(config, groups)
    reservation.find_nodes = now
    ray.util.remove_placement_group(held)
    return said


def spread_on_cpus() -> dict[str, Any]:
    """The nodes of processes on a cluster without GPUs, by kind."""
    sections = {"inference": {"num_replicas": 8}, "learner": {"num_ranks": 2}}
    config = config_of(**sections)
    cluster = config.cluster.model_copy(update={"address": "joined"})
    config = config.model_copy(update={"cluster": cluster})
    found = reserve(config, plan_models(config), "cpu", learning=True, sampling=True)
    nodes = {}
    for kind, places in (("engines", found.engines), ("ranks", found.learners)):
        every = [one for own in places.values() for one in own]
        seen = [node for node, _ in found_places(every, actors=True)]
        planned = [one.options["scheduling_strategy"].node_id for one in every]
        assert seen == planned, f"{kind} run on {seen}, planned on {planned}"
        nodes[kind] = {"processes": len(seen), "nodes": len(set(seen))}
        nodes[kind]["shares"] = sorted({one.core_share.count for one in every})
    options = {**OPTIONS, "max_concurrency": 1}  # of a class that is not async
    workers = [ray.remote(Process).options(**options).remote() for _ in range(2 * NUM_NODES)]
    on = Counter(node for node, _ in ray.get([worker.place.remote() for worker in workers]))
    nodes["workers per node"] = sorted(on.values())
    for worker in workers:
        ray.kill(worker)
    return nodes


def main(first: int, last: int, every: int, result: Path) -> None:
    start = time.perf_counter()
    head = {"num_cpus": 1, "num_gpus": GPUS_PER_NODE, "object_store_memory": STORE}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**head, "include_dashboard": False, "_system_config": KEEP_WORKERS},
    )
    for _ in range(NUM_NODES - 1):
        cluster.add_node(**head)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        found: dict[str, Any] = {"started": time.perf_counter() - start}
        start = time.perf_counter()
        found["plans"] = place_plans(range(first, last), every)
        found["seconds"] = time.perf_counter() - start
        found["cpus"] = spread_on_cpus()
        found["said"] = hold_gpus()
        result.write_text(json.dumps(found))
    finally:  # otherwise later programs of this machine try to join the cluster
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))
