"""The [loss] section: options common to all losses, read by the class that `loss.type` names."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from pettingllms.config.section import Section, section_of
from pettingllms.registry import LOSSES

DEFAULT = "clip"


class LossConfig(Section):
    """Options of every loss. Losses add their own fields."""

    type: str = DEFAULT
    """Name of the loss, or `file.py:Class`. `clip`: one clipped ratio per token. `gspo`: one
    clipped ratio per reply. `plain`: policy gradient without a ratio; with advantages of 1 this is
    supervised training. `dpo`: pairs of replies; only for `pettingllms dpo`."""
    kl_coef: float = Field(default=0.0, ge=0)
    """KL penalty coefficient. The reference model is the `model` of the policy, so this
    cannot be combined with train.init_from."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Entropy bonus coefficient."""
    normalize: Literal["token", "sequence", "constant"] = "token"
    """`token`: mean over the tokens of a batch. `sequence`: mean over replies of each reply's mean
    over tokens. `constant`: sum over tokens, divided by replies times rollout.max_reply_tokens."""
    value_coef: float = Field(default=0.5, ge=0)
    """Coefficient of the squared error of a value head; see [critic]."""

    @classmethod
    def unknown_key(cls, key: str) -> str:
        """Name the losses that have the option."""
        owners = [name for name in LOSSES.names() if key in LOSSES.load(name).Config.model_fields]
        if not owners:
            return super().unknown_key(key)
        return f"this loss has no such option, only {' and '.join(owners)}; leave the key out"

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[dict[str, Any]]]:
        """Pickle plain data, so that a process that has not loaded a user's file can read it."""
        return read_loss, (self.model_dump(),)


def loss_config(name: str = DEFAULT, **options: Any) -> LossConfig:
    """The section of a loss by its name, such as `loss_config("gspo", kl_coef=0.01)`."""
    return read_loss({"type": name, **options})


def read_loss(data: Any) -> LossConfig:
    """Read [loss] with the configuration class of the loss that `type` names."""
    named = {"type": DEFAULT, **data} if isinstance(data, dict) else data
    found: LossConfig = section_of(LOSSES, "type", named)
    return found
