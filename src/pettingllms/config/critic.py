"""Critics: who says what to expect, for algorithms that compare a reply with an expectation."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class CriticConfig(Section):
    """What learns values. It is there if the algorithm needs values, and only then."""

    kind: Literal["auto", "head", "model"] = "auto"
    """`head`: one more output of the policy's own model, trained with it. `model`: a model of its
    own. `auto`: a head, or a model where one critic serves all roles."""
    model: str = ""
    """Folder or hub name of a critic of the kind `model`; it must read the same tokens as the
    policy. Empty: the policy's own."""
    lr: float = Field(default=1e-5, gt=0)
    """Learning rate of a critic of the kind `model`."""
    head_lr: float | None = Field(default=None, gt=0)
    """Learning rate of a head, which begins with nothing on a model that has learnt. Left out: ten
    times its policy's."""
    mixer_lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the network that mixes the roles' values in `qmix`."""
    clip: float | None = Field(default=None, gt=0)
    """How far a value may move from what it was before the batch and still be paid for. Left out:
    any distance."""

    def unused_keys(self) -> set[str]:
        """Keys of another kind of critic."""
        return {"lr", "mixer_lr"} if self.kind == "head" else set()
