"""Verifiers: which answers one is trained on, and how."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class VerifierConfig(Section):
    """What `pettingllms verifier data` and `train` do."""

    episodes: list[str] = Field(default_factory=list)
    """Files of episodes whose replies are the answers. Empty: the policies of the configuration
    are sampled from."""
    num_tasks: int = Field(default=256, ge=1)
    """Sampling: training tasks that are played."""
    num_samples: int = Field(default=8, ge=2)
    """Sampling: plays of each."""
    roles: list[str] = Field(default_factory=list)
    """Roles whose replies are answers; empty: all."""
    turns: Literal["last", "all"] = "last"
    """Which replies of a role are labelled by whether it reached its aim."""
    balance: bool = True
    """As many right as wrong answers of each question, so that knowing the question says nothing. A
    question that was always or never answered right is left out."""
    max_each: int = Field(default=8, ge=1)
    """Balanced: right answers of one question, and wrong ones, at most."""
    test_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the questions that are kept for `verifier eval`, with all of their answers."""
    kind: Literal["lora", "full"] = "lora"
    """`lora`: an adapter and the head are trained. `full`: the whole model, for tiny ones."""
    model: str = ""
    """Folder or hub name of the model. Empty: that of the first policy that learns."""
    rank: int = Field(default=16, ge=1, le=512)
    """Rank of the adapter."""
    alpha: int = Field(default=32, ge=1)
    """Scale of the adapter."""
    lr: float = Field(default=1e-4, gt=0)
    """Learning rate at the start, which falls to a tenth at the end."""
    num_steps: int = Field(default=200, ge=1)
    """Optimizer steps."""
    num_answers: int = Field(default=64, ge=1)
    """Answers in one step."""
    every_token: bool = False
    """Learn the label after each token of an answer, not after the last alone."""
    max_tokens: int = Field(default=2048, ge=16)
    """Prompt and answer together; what is longer is not learnt from, and not scored."""
