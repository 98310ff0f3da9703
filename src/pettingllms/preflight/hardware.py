"""Named GPUs and the hardware that a memory plan is made for."""

import re
from dataclasses import dataclass

from pettingllms.errors import ConfigError
from pettingllms.runtime.resources import GIB

MIB = 2**20
GPUS = {
    "t4-16": 15360,
    "l4-24": 23034,
    "a10-24": 23028,
    "rtx3090-24": 24576,
    "rtx4090-24": 24564,
    "rtx5090-32": 32607,
    "a100-40": 40960,
    "l40s-48": 46068,
    "a6000-48": 49140,
    "a100-80": 81920,
    "h100-80": 81559,
    "h200-141": 143771,
    "b200-192": 183359,
}
"""Device memory in MiB, as nvidia-smi reports it: less than the name, because error correction and
the driver take a part."""
UNITS = {"MIB": MIB, "GIB": GIB, "TIB": 1024 * GIB, "MB": 10**6, "GB": 10**9, "TB": 10**12}
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT]i?B)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hardware:
    """Equal nodes with equal GPUs."""

    gpu: str
    device_bytes: int
    num_nodes: int = 1
    gpus_per_node: int = 8
    host_bytes: int | None = None
    """Memory of one node; None if it is not known."""

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes."""
        return self.num_nodes * self.gpus_per_node

    def describe(self) -> str:
        """Nodes, GPUs and memory in one line."""
        nodes = "1 node" if self.num_nodes == 1 else f"{self.num_nodes} nodes"
        host = "" if self.host_bytes is None else f", {self.host_bytes / GIB:.0f} GiB of memory"
        gpus = f"{self.gpus_per_node} GPUs {self.gpu} ({self.device_bytes / GIB:.1f} GiB)"
        return f"{nodes}, each with {gpus}{host}"


def find_hardware(
    gpu: str, num_nodes: int = 1, gpus_per_node: int = 8, host_memory: str | None = None
) -> Hardware:
    """The hardware of command-line options: a name in `GPUS`, or an amount such as 80GiB."""
    mib = GPUS.get(gpu.lower())
    device = mib * MIB if mib is not None else parse_amount(gpu)
    if device is None:
        names = ", ".join(GPUS)
        raise ConfigError("--gpu", [f"got '{gpu}', expected one of {names}, or such as 80GiB"])
    host = None if host_memory is None else parse_amount(host_memory)
    if host_memory is not None and host is None:
        raise ConfigError("--host-memory", [f"got '{host_memory}', expected such as 1024GiB"])
    return Hardware(gpu.lower() if mib else gpu, device, num_nodes, gpus_per_node, host)


def parse_amount(text: str) -> int | None:
    """Bytes of an amount such as 80GiB or 1.5TB; None if the text is none."""
    found = AMOUNT.fullmatch(text.strip())
    return int(float(found[1]) * UNITS[found[2].upper()]) if found else None
