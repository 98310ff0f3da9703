"""Published peak figures of GPUs, from NVIDIA's data sheets. Nothing here was measured."""

from dataclasses import dataclass

from pettingllms.errors import ConfigError, nearest
from pettingllms.preflight.hardware import Hardware

TERA, GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True)
class Peak:
    """One kind of GPU."""

    tflops: float
    """Dense bfloat16 arithmetic with float32 accumulation (float16 on the T4), in TFLOP/s."""
    memory: float
    """Memory bandwidth in GB/s."""
    link: float
    """Bandwidth to the other GPUs of a node, in GB/s per direction: NVLink, or PCIe."""

    @property
    def flops(self) -> float:
        """Arithmetic per second."""
        return self.tflops * TERA

    @property
    def memory_bytes(self) -> float:
        """Bytes per second from memory."""
        return self.memory * GIGA

    @property
    def link_bytes(self) -> float:
        """Bytes per second to another GPU of the node."""
        return self.link * GIGA


PEAKS = {
    "t4-16": Peak(65, 320, 16),
    "l4-24": Peak(121, 300, 32),
    "a10-24": Peak(125, 600, 32),
    "rtx3090-24": Peak(71, 936, 32),
    "rtx4090-24": Peak(165, 1008, 32),
    "rtx5090-32": Peak(209, 1792, 64),
    "a100-40": Peak(312, 1555, 300),
    "l40s-48": Peak(362, 864, 32),
    "a6000-48": Peak(155, 768, 32),
    "a100-80": Peak(312, 2039, 300),
    "h100-80": Peak(989, 3350, 450),
    "h200-141": Peak(989, 4800, 450),
    "b200-192": Peak(2250, 7700, 900),
}
"""By the names of `preflight.hardware.GPUS`; SXM versions where there are several."""


def peak_of(hardware: Hardware) -> Peak:
    """The peak figures of a kind of GPU; ConfigError if they are not known."""
    found = PEAKS.get(hardware.gpu)
    if found is None:
        raise ConfigError(
            "--gpu",
            [f"the speed of '{hardware.gpu}' is not known; {nearest(hardware.gpu, PEAKS)}"],
        )
    return found
