"""What a learner is created from, as plain data that is sent to its ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pettingllms.config import CriticConfig, LearnerConfig, LossConfig
from pettingllms.config.engines import Dtype, resolve_dtype
from pettingllms.config.policies import FullPolicy, LoraPolicy


@dataclass(frozen=True, slots=True)
class LearnerSpec:
    """A model, the policies that share it, and their training options."""

    model: Path
    policies: Mapping[str, LoraPolicy | FullPolicy]
    config: LearnerConfig
    loss: LossConfig
    max_reply_tokens: int
    seed: int
    device: str = "cpu"
    critic: CriticConfig | None = None
    """If set, every policy has a value head."""

    @property
    def dtype(self) -> Dtype:
        """Type of the arithmetic on this device."""
        return resolve_dtype(self.config.dtype, self.device)
