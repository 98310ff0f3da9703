"""Learning from episodes that are there already: whose replies, and for how long."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class SftConfig(Section):
    """What `pettingllms sft` does before, or instead of, reinforcement learning."""

    player: str = ""
    """Scripted player whose plays of training tasks are learnt from, in every role."""
    num_episodes: int = Field(default=1000, ge=1)
    """Training tasks that the player plays."""
    episodes: list[str] = Field(default_factory=list)
    """Files of episodes to learn from, as runs and rollouts write them; instead of a player."""
    only_success: bool = False
    """Learn only from roles that reached their aim: rejection sampling."""
    num_steps: int = Field(default=200, ge=1)
    """Optimizer steps of each policy."""
    num_turns: int = Field(default=256, ge=1)
    """Turns in one step, at least: an epoch is cut into even parts of no fewer."""
    lr: float | None = Field(default=None, gt=0)
    """Learning rate at the start, which falls to a tenth at the end; left out: each policy's
    own."""


class DpoConfig(Section):
    """What `pettingllms dpo` does: each role learns from pairs of its own replies to one prompt."""

    episodes: list[str] = Field(default_factory=list)
    """Files of episodes that pairs are made of, as runs and rollouts write them."""
    beta: float = Field(default=0.1, gt=0)
    """Strength of the implicit KL penalty: a small beta lets a policy move far from its initial
    weights."""
    pairs: Literal["extremes", "all"] = "extremes"
    """Of the replies of a role to one prompt. `extremes`: the best paid against the worst paid.
    `all`: every two that were paid differently."""
    margin: float = Field(default=0.0, ge=0)
    """Rewards that differ by this much or less are a tie, which makes no pair."""
    max_pairs: int = Field(default=16, ge=1)
    """Pairs of one prompt, those that were paid most differently first."""
    num_steps: int = Field(default=200, ge=1)
    """Optimizer steps of each policy."""
    num_pairs: int = Field(default=64, ge=1)
    """Pairs in one step, at least, as above."""
    lr: float | None = Field(default=None, gt=0)
    """Learning rate at the start, which falls to a tenth at the end; left out: each policy's
    own."""
