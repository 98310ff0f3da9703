"""The memory plan of a configuration on named hardware, and whether it fits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pettingllms.config import RunConfig
from pettingllms.errors import ClusterError, ModelError
from pettingllms.policies import Node, num_gpus_needed, plan_critics, plan_models
from pettingllms.policies.layout import Layout, plan_layout
from pettingllms.policies.resources import process_groups
from pettingllms.preflight.absent import size_here_or_published
from pettingllms.preflight.estimates import Part, ProcessEstimate, amount, largest
from pettingllms.preflight.hardware import Hardware
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.memory import estimate_gpus, num_cached_sequences
from pettingllms.preflight.model_size import ModelSize
from pettingllms.runtime.resources import GIB

DRIVER = 4 * GIB
"""Host memory of the driver process with environments, and of Ray with its object store."""
SLOWER = "gradients cross the network between nodes, which is slower"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The processes of a run on named hardware."""

    config: RunConfig
    hardware: Hardware
    sizes: Mapping[str, ModelSize]
    processes: tuple[ProcessEstimate, ...]
    num_gpus: int
    layout: Layout | None
    """None if there is none, for the reason `missing`."""
    missing: str = ""

    @property
    def fits(self) -> bool:
        """Whether there are enough GPUs and every process fits."""
        return not self.shortage

    def room(self, process: ProcessEstimate) -> float:
        """Bytes of a device that a process may use."""
        return process.share * self.hardware.device_bytes

    def overflow(self, process: ProcessEstimate) -> float:
        """Bytes by which a process exceeds its devices."""
        return max(0.0, process.num_bytes - self.room(process))

    @property
    def shortage(self) -> float:
        """Bytes that are missing, over all GPUs and hosts; 0 if and only if the plan fits."""
        hardware = self.hardware
        missing = max(0, self.num_gpus - hardware.num_gpus)
        missing += max(
            (max(0, one.gpus_per_process - hardware.gpus_per_node) for one in self.processes),
            default=0,
        )
        if self.layout is None:
            missing = max(missing, 1)
        host = 0.0 if hardware.host_bytes is None else self.node_bytes - hardware.host_bytes
        devices = sum(map(self.overflow, self.processes))
        return missing * hardware.device_bytes + devices + max(0.0, host)

    @property
    def node_bytes(self) -> float:
        """Host memory of the fullest node, if its GPUs hold the processes that need most."""
        free, needed = self.hardware.gpus_per_node, float(DRIVER)
        for process in sorted(self.processes, key=_host_bytes_per_gpu, reverse=True):
            count = min(process.num_processes, free // process.gpus_per_process)
            needed += count * process.host_bytes
            free -= count * process.gpus_per_process
        return needed

    def findings(self) -> list[Finding]:
        """What fits and what does not."""
        return [self._check_gpus(), *self._check_devices(), self._check_host()]

    def _check_gpus(self) -> Finding:
        what = f"GPUs: {self.num_gpus} needed of {self.hardware.num_gpus}"
        if self.layout is None:
            reason, _, advice = self.missing.rpartition("; ")
            return Finding("problem", f"{what}; {reason}", advice)
        if not self.layout.divided:
            return Finding("ok", what)
        names = ", ".join(one.group.name for one in self.layout.divided)
        return Finding("note", f"{what}; over several nodes: {names}", SLOWER)

    def _check_devices(self) -> Iterator[Finding]:
        for process in self.processes:
            need, room = process.num_bytes, self.room(process)
            if need > room:
                what = f"{process.name}: needs {amount(need)} per GPU, and can use {amount(room)}"
                yield Finding("problem", what, f"most of it: {_list(largest(process.device))}")
                continue
            count = num_cached_sequences(process, self.hardware.device_bytes)
            if count is not None and count < self.config.inference.max_num_seqs:
                what = (
                    f"{process.name}: its KV cache holds {int(count)} sequences of "
                    f"{self.config.inference.max_model_len} tokens, and inference.max_num_seqs is "
                    f"{self.config.inference.max_num_seqs}"
                )
                advice = "longer sequences wait; raise inference.tensor_parallel or num_replicas"
                yield Finding("note", what, advice)

    def _check_host(self) -> Finding:
        what = f"host memory: {amount(self.node_bytes)} on the fullest node"
        room = self.hardware.host_bytes
        if room is None:
            return Finding("ok", what)
        what = f"{what}, of {amount(room)}"
        if self.node_bytes <= room:
            return Finding("ok", what)
        parts = [part for process in self.processes for part in process.host]
        advice = f"use more nodes; largest per process: {_list(largest(parts))}"
        return Finding("problem", what, advice)


def plan_memory(
    config: RunConfig, hardware: Hardware, sizes: Mapping[str, ModelSize] | None = None
) -> MemoryPlan:
    """The plan of a configuration. Without `sizes`, the folders of its models are read."""
    groups = plan_models(config)
    sizes = read_sizes(config) if sizes is None else sizes
    processes = estimate_gpus(config, groups, sizes, hardware.device_bytes)
    needed = num_gpus_needed(config, groups)
    layout, missing = find_layout(config, hardware.num_nodes, hardware.gpus_per_node)
    return MemoryPlan(config, hardware, sizes, tuple(processes), needed, layout, missing)


def find_layout(config: RunConfig, num_nodes: int, gpus_per_node: int) -> tuple[Layout | None, str]:
    """The layout of a run on equal nodes, or why there is none."""
    nodes = tuple(Node(f"node {at}", gpus_per_node) for at in range(num_nodes))
    try:
        return plan_layout(process_groups(config, plan_models(config)), nodes), ""
    except ClusterError as error:
        return None, str(error)


def read_sizes(config: RunConfig) -> dict[str, ModelSize]:
    """The sizes of all models of a run: a folder with a config.json is enough, and sizes of Qwen3
    are known."""
    models = [group.model for group in plan_models(config)]
    models += [plan.model for plan in plan_critics(config)]
    sizes = {model: size_here_or_published(model) for model in dict.fromkeys(models)}
    for model, size in sizes.items():
        if size.missing:
            raise ModelError(
                f"config.json of '{model}' lacks {', '.join(size.missing)}, so activations cannot "
                "be planned; use a decoder such as Llama or Qwen"
            )
    return sizes


def _host_bytes_per_gpu(process: ProcessEstimate) -> float:
    return process.host_bytes / process.gpus_per_process


def _list(parts: Sequence[Part]) -> str:
    return ", ".join(f"{part.name} {amount(part.num_bytes)}" for part in parts)
