"""The section of the `verifier` commands."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class VerifierConfig(Section):
    """Options of `pettingllms verifier data` and `pettingllms verifier train`."""

    episodes: list[str] = Field(default_factory=list)
    """Episode files or run folders whose replies are the answers. Empty: sample from the policies
    of the config."""
    num_tasks: int = Field(default=256, ge=1)
    """Sampling: training tasks."""
    first_task: int = Field(default=0, ge=0)
    """Sampling: index of the first training task. Questions of earlier tasks are left out, so that
    a run with env.num_tasks = first_task trains on none of the verifier's questions."""
    num_samples: int = Field(default=8, ge=2)
    """Sampling: episodes per task."""
    roles: list[str] = Field(default_factory=list)
    """Roles whose replies are answers. Empty: all."""
    turns: Literal["last", "all"] = "last"
    """Which replies of a role are labeled with its success. In environments that submit to a judge,
    all submitted answers are labeled by the environment's rule instead."""
    balance: bool = True
    """Balance correct and wrong answers per question, so that the question alone predicts nothing.
    Questions with only correct or only wrong answers are left out."""
    max_each: int = Field(default=8, ge=1)
    """Balanced: maximum correct answers, and maximum wrong answers, per question."""
    test_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of questions held out for `verifier eval`, with all their answers."""
    kind: Literal["lora", "full"] = "lora"
    """`lora`: train an adapter and the head. `full`: train the whole model, for tiny models."""
    model: str = ""
    """Folder or hub name of the model. Empty: that of the first policy that learns."""
    rank: int = Field(default=16, ge=1, le=512)
    """LoRA rank."""
    alpha: int = Field(default=32, ge=1)
    """LoRA alpha."""
    lr: float = Field(default=1e-4, gt=0)
    """Initial learning rate, which decays linearly to a tenth."""
    num_steps: int = Field(default=200, ge=1)
    """Optimizer steps."""
    num_answers: int = Field(default=64, ge=1)
    """Answers per step."""
    every_token: bool = False
    """Predict the label after every token of an answer instead of only after the last."""
    max_tokens: int = Field(default=2048, ge=16)
    """Maximum tokens of prompt and answer together. Longer answers are excluded from training and
    not scored."""
