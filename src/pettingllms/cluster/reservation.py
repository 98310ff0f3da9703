"""Where each process of a run is placed, reserved in Ray before anything is created.

On GPUs a run is one placement group. It has a bundle per process group and node, pinned to the node
of the planned layout, and is reserved whole or not at all. Without GPUs nothing is reserved:
processes of a cluster are spread over its nodes, and learner ranks stay together.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError
from pettingllms.policies import ModelGroup, Node, check_resources, group_resources
from pettingllms.policies.layout import Layout, Placed, Share, spread_over_nodes
from pettingllms.policies.resources import process_groups
from pettingllms.runtime.resources import CoreShare, wanted_threads

RESERVE_SECONDS = 60.0
"""How long a run waits for GPUs that other programs hold."""
RELEASE_SECONDS = 10.0
"""How long a run waits for held GPUs if it would divide a process group without them: those of a
run that just ended are reported as held for a moment."""
DEVICE_SECONDS = 300.0
"""How long Ray may take to start a worker that names the devices of a node; seconds when idle."""
NODE_ID = "ray.io/node-id"
VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_CORES = {"num_cpus": 0, "memory": 1}
"""Resources of an actor that a strategy places: with none at all, Ray ignores the strategy and
picks a random node. One byte is never missing."""
KEEP_VISIBLE = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Otherwise Ray hides all GPUs from an actor that requests none."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one actor runs."""

    options: Mapping[str, Any]
    """Ray's options of the actor."""
    core_share: CoreShare


@dataclass(slots=True)
class Reservation:
    """The places of a run's actors, by the name of their model or critic."""

    engines: dict[str, list[Place]] = field(default_factory=dict)
    learners: dict[str, list[Place]] = field(default_factory=dict)
    layout: Layout | None = None
    group: Any = None
    """Ray's placement group; None without GPUs."""

    def check(self) -> None:
        """Raise ClusterError if a node with reserved GPUs left: nothing can start on it."""
        if self.group is not None and placement_group_table(self.group)["state"] != "CREATED":
            raise ClusterError(
                "a node with GPUs of the run left the cluster; resume the run once it is back, or "
                "on the others if they have enough"
            )

    def release(self) -> None:
        """Give the GPUs back."""
        if self.group is not None:
            remove_placement_group(self.group)
            self.group = None


def local_places(num: int, num_gpus: float = 0) -> list[Place]:
    """Places of processes that share this machine's cores, where Ray finds GPUs."""
    shares = (CoreShare(number, num, wanted_threads()) for number in range(num))
    return [Place({"num_cpus": 0, "num_gpus": num_gpus}, share) for share in shares]


def reserve(
    config: RunConfig, groups: Sequence[ModelGroup], device: str, learning: bool, sampling: bool
) -> Reservation:
    """Places for the engines and learners of a run, or one kind; raises ClusterError if the run
    does not fit."""
    if device == "cpu":
        return _on_cores(config, groups, learning, sampling)
    return _on_gpus(config, groups, learning, sampling)


def find_nodes(resource: str) -> dict[str, Node]:
    """The nodes that have some of a resource, by id, in the order of their names."""
    from ray._private.state import available_resources_per_node

    free: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]
    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    addresses = [node["NodeManagerAddress"] for node in alive]
    found: dict[str, Node] = {}
    for node in alive:
        key, address, total = node["NodeID"], node["NodeManagerAddress"], node["Resources"]
        name = address if addresses.count(address) == 1 else f"{address}/{key[:6]}"
        num, unused = int(total.get(resource, 0)), int(free.get(key, {}).get(resource, 0))
        if num:
            found[key] = Node(name, unused, num - unused)
    return dict(sorted(found.items(), key=lambda item: item[1].name))


def _on_cores(
    config: RunConfig, groups: Sequence[ModelGroup], learning: bool, sampling: bool
) -> Reservation:
    """This machine, or the nodes of a cluster."""
    cluster = config.cluster.model_copy(update={"placement": "separate"})
    config = config.model_copy(update={"cluster": cluster})
    nodes = find_nodes("CPU") if config.cluster.address else {}
    ids = list(nodes) if len(nodes) > 1 else [""]
    cores = [Node(n.name, n.num_gpus + n.num_held) for n in nodes.values()]
    parts = process_groups(config, groups, learning, sampling)
    layout = spread_over_nodes(parts, tuple(cores) if len(nodes) > 1 else (Node("", 1),))
    found = Reservation(layout=layout)
    for one in layout.placed:
        for share in one.shares:
            options: dict[str, Any] = {**NO_CORES, "num_gpus": 0}
            if ids[share.node]:  # soft: an engine whose node is gone restarts on another
                affinity = NodeAffinitySchedulingStrategy(ids[share.node], soft=True)
                options["scheduling_strategy"] = affinity
            num = 1 if one.group.kind == "engine" else len(share.gpus)
            _add(found, layout, one, share, [options] * num)
    return found


def _on_gpus(
    config: RunConfig, groups: Sequence[ModelGroup], learning: bool, sampling: bool
) -> Reservation:
    ids, layout = _plan(config, groups, learning, sampling)
    shares = [(one, share) for one in layout.placed for share in one.shares]
    if not shares:
        return Reservation()
    found = Reservation(layout=layout, group=_reserved(ids, layout, shares))
    try:
        devices = _shared_devices(found.group, shares)
    except ClusterError:
        found.release()
        raise
    widths = {group.name: group_resources(config, group).tensor_parallel for group in groups}
    for bundle, (one, share) in enumerate(shares):
        strategy = PlacementGroupSchedulingStrategy(found.group, bundle)
        options = {"num_cpus": 0, "scheduling_strategy": strategy}
        if one.group.kind == "engine":
            _add(found, layout, one, share, [{**options, "num_gpus": len(share.gpus)}])
        elif one.group.kind != "colocated":
            _add(found, layout, one, share, [{**options, "num_gpus": 1}] * len(share.gpus))
        else:
            own, width = devices[bundle], widths[one.group.model]
            engines = [own[at : at + width] for at in range(0, len(own), width)]
            _add(found, layout, one, share, [_seeing(options, each) for each in engines], True)
            _add(found, layout, one, share, [_seeing(options, [device]) for device in own])
    return found


def _plan(
    config: RunConfig, groups: Sequence[ModelGroup], learning: bool, sampling: bool
) -> tuple[list[str], Layout]:
    """The ids of nodes, and a layout on their free GPUs. What does not fit an idle cluster is
    refused at once; GPUs that other programs hold may become free."""
    whole = [Node(n.name, n.num_gpus + n.num_held) for n in find_nodes("GPU").values()]
    ideal = check_resources(config, groups, whole, learning, sampling)
    start = time.monotonic()
    while True:
        nodes, waited = find_nodes("GPU"), time.monotonic() - start
        try:
            found = check_resources(config, groups, list(nodes.values()), learning, sampling)
            if len(found.divided) <= len(ideal.divided) or waited > RELEASE_SECONDS:
                return list(nodes), found
        except ClusterError as error:
            if waited > RESERVE_SECONDS:
                raise ClusterError(f"{error} (waited {RESERVE_SECONDS:g} s)") from None
        time.sleep(0.5)


def _reserved(ids: Sequence[str], layout: Layout, shares: Sequence[tuple[Placed, Share]]) -> Any:
    """The placement group, once Ray has reserved all of it."""
    group = placement_group(
        [{"GPU": float(len(share.gpus))} for _, share in shares],
        strategy="PACK",
        bundle_label_selector=[{NODE_ID: ids[share.node]} for _, share in shares],
    )
    if group.wait(RESERVE_SECONDS):
        return group
    free = find_nodes("GPU")
    remove_placement_group(group)
    planned = dict[int, int]()
    for _, share in shares:
        planned[share.node] = planned.get(share.node, 0) + len(share.gpus)
    missing = []
    for node, num in sorted(planned.items()):
        left = free[ids[node]].num_gpus if ids[node] in free else 0
        if left < num:
            missing.append(f"{layout.nodes[node].name} has {left} free GPUs of {num} planned")
    raise ClusterError(
        f"Ray did not reserve the GPUs of the run within {RESERVE_SECONDS:g} s: "
        f"{', '.join(missing) or 'the nodes are busy'}; other programs may have taken them, see "
        "`ray status`"
    )


def _shared_devices(group: Any, shares: Sequence[tuple[Placed, Share]]) -> dict[int, list[str]]:
    """The devices of each bundle whose GPUs several actors share: Ray gives a GPU to one actor, so
    these request none and see those of their bundle."""

    def name_devices() -> list[str]:  # sent by value, so that workers import nothing of ours
        return [str(device) for device in ray.get_gpu_ids()]

    asked = {
        bundle: ray.remote(name_devices)
        .options(
            num_cpus=0,
            num_gpus=len(share.gpus),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
        )
        .remote()
        for bundle, (one, share) in enumerate(shares)
        if one.group.kind == "colocated"
    }
    try:
        found = ray.get(list(asked.values()), timeout=DEVICE_SECONDS)
    except GetTimeoutError:
        raise ClusterError(
            f"Ray did not name the devices of the reserved GPUs within {DEVICE_SECONDS:g} s; are "
            "the nodes overloaded? `ray status` shows them"
        ) from None
    return dict(zip(asked, found, strict=True))


def _seeing(options: Mapping[str, Any], devices: Sequence[str]) -> dict[str, Any]:
    variables = {VISIBLE: ",".join(devices), **KEEP_VISIBLE}
    return {**options, "num_gpus": 0, "runtime_env": {"env_vars": variables}}


def _add(
    found: Reservation,
    layout: Layout,
    one: Placed,
    share: Share,
    options: Sequence[Mapping[str, Any]],
    engines: bool = False,
) -> None:
    """Add the places of actors on one node, with their share of its cores: engines work at the same
    time, and learners one after another."""
    if engines or one.group.kind == "engine":
        first, count = _engines_before(layout, one, share.node)
        numbers, by_name = range(first, first + len(options)), found.engines
    else:
        count = len(options)
        numbers, by_name = range(count), found.learners
    places = by_name.setdefault(one.group.model, [])
    for number, each in zip(numbers, options, strict=True):
        places.append(Place(each, CoreShare(number, count, wanted_threads())))


def _engines_before(layout: Layout, one: Placed, node: int) -> tuple[int, int]:
    """Engines on a node: of process groups before this one, and of all."""
    before = layout.placed[: layout.placed.index(one)]
    return _num_engines(before, node), _num_engines(layout.placed, node)


def _num_engines(placed: Sequence[Placed], node: int) -> int:
    return sum(
        len(share.gpus) // one.group.piece
        for one in placed
        for share in one.shares
        if share.node == node and one.group.kind in ("engine", "colocated")
    )
