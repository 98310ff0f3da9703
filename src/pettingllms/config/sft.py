"""Sections of the commands that learn from stored episodes: `sft` and `dpo`."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class SftConfig(Section):
    """Options of `pettingllms sft`."""

    player: str = ""
    """Scripted player that demonstrates training tasks, in every role."""
    num_episodes: int = Field(default=1000, ge=1)
    """Training tasks that the player demonstrates."""
    with_solo: bool = False
    """Also demonstrate the tasks in the environment's solo form, so that a team and a single role
    can start from the same weights. Needs exactly one policy that learns."""
    episodes: list[str] = Field(default_factory=list)
    """Episode files or run folders to learn from; instead of a player."""
    only_success: bool = False
    """Learn only from roles that succeeded (rejection sampling)."""
    num_steps: int = Field(default=200, ge=1)
    """Optimizer steps per policy."""
    num_turns: int = Field(default=256, ge=1)
    """Minimum turns per step: each epoch is split evenly into batches of at least this size."""
    lr: float | None = Field(default=None, gt=0)
    """Initial learning rate, which decays linearly to a tenth. Left out: each policy's lr."""


class DpoConfig(Section):
    """Options of `pettingllms dpo`: each role learns from pairs of its replies to one prompt."""

    episodes: list[str] = Field(default_factory=list)
    """Episode files or run folders to build pairs from."""
    beta: float = Field(default=0.1, gt=0)
    """Strength of the implicit KL penalty: a small beta lets a policy move far from its initial
    weights."""
    pairs: Literal["extremes", "all"] = "extremes"
    """Pairs per role and prompt. `extremes`: highest against lowest reward. `all`: every two
    replies with different rewards."""
    margin: float = Field(default=0.0, ge=0)
    """Rewards that differ by at most this margin are a tie and form no pair."""
    max_pairs: int = Field(default=16, ge=1)
    """Maximum pairs per prompt, largest reward difference first."""
    num_steps: int = Field(default=200, ge=1)
    """Optimizer steps per policy."""
    num_pairs: int = Field(default=64, ge=1)
    """Minimum pairs per step: each epoch is split evenly into batches of at least this size."""
    lr: float | None = Field(default=None, gt=0)
    """Initial learning rate, which decays linearly to a tenth. Left out: each policy's lr."""
