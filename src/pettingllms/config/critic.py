"""The critic section: value functions of algorithms that need a baseline."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class CriticConfig(Section):
    """The critic. It exists only if the algorithm needs values."""

    kind: Literal["auto", "head", "model"] = "auto"
    """`head`: a value head on the policy's model, trained with it. `model`: a separate model.
    `auto`: a head, or a model if one critic serves all roles."""
    model: str = ""
    """Folder or hub name of a critic of the kind `model`; it must use the policy's tokenizer.
    Empty: the policy's model."""
    lr: float = Field(default=1e-5, gt=0)
    """Learning rate of a critic of the kind `model`."""
    head_lr: float | None = Field(default=None, gt=0)
    """Learning rate of a value head, which is trained from scratch. Left out: ten times the
    policy's."""
    mixer_lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the mixing network of `qmix`."""
    clip: float | None = Field(default=None, gt=0)
    """Value clipping: maximum change of a value from its value before the batch that still reduces
    the loss. Left out: no clipping."""

    def unused_keys(self) -> set[str]:
        """Keys of another kind of critic."""
        return {"lr", "mixer_lr"} if self.kind == "head" else set()
