"""Memory estimates: parts with their formulas, and their sum per process."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pettingllms.config import RunConfig
from pettingllms.config.engines import DtypeOption, resolve_dtype
from pettingllms.runtime.resources import GIB

Device = Literal["cpu", "gpu"]
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of an estimate."""

    name: str
    formula: str
    num_bytes: float


@dataclass(frozen=True, slots=True)
class ProcessEstimate:
    """What each process of one kind needs on each of its devices and on its host."""

    name: str
    num_processes: int
    gpus_per_process: int
    device: tuple[Part, ...]
    host: tuple[Part, ...] = ()
    share: float = 1.0
    """Share of a device's memory that the process may use."""

    @property
    def num_bytes(self) -> float:
        """Bytes on each of its devices."""
        return total(self.device)

    @property
    def host_bytes(self) -> float:
        """Bytes on its host."""
        return total(self.host)

    @property
    def num_gpus(self) -> int:
        """GPUs of all processes of this kind."""
        return self.num_processes * self.gpus_per_process

    def describe(self) -> str:
        """The sum and its parts with their formulas."""
        parts = "; ".join(f"{p.name} {amount(p.num_bytes)} = {p.formula}" for p in self.device)
        return f"{self.name}: about {amount(self.num_bytes)} per GPU ({parts})"


def total(parts: Sequence[Part]) -> float:
    """The sum of parts."""
    return math.fsum(part.num_bytes for part in parts)


def largest(parts: Sequence[Part], count: int = 3) -> list[Part]:
    """The parts that dominate a sum."""
    return sorted(parts, key=lambda part: part.num_bytes, reverse=True)[:count]


def parameters_part(name: str, count: float, width: float, divisor: int = 1, of: str = "") -> Part:
    """The bytes of parameters that are divided over ranks or GPUs."""
    over = f" / {divisor} {of}" if divisor > 1 else ""
    formula = f"{millions(count)} parameters * {width:g} B{over}"
    return Part(name, formula, count * width / divisor)


def compute_width(dtype: DtypeOption, device: Device) -> int:
    """Bytes of a number in a dtype of the configuration."""
    return BYTES[resolve_dtype(dtype, device)]


def pass_tokens(config: RunConfig) -> int:
    """Tokens of the largest pass. A sequence that is longer than the limit is a pass by itself."""
    return max(config.learner.max_batch_tokens, config.inference.max_model_len)


def amount(num_bytes: float) -> str:
    """Bytes as GiB, or as MiB if they are few."""
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB / 10 else f"{num_bytes / 2**20:.0f} MiB"


def millions(count: float) -> str:
    """A number of parameters in millions or billions."""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
