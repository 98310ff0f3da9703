"""Supervised training: whose replies are learnt from, and for how long."""

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
    """Turns in one step."""
    lr: float | None = Field(default=None, gt=0)
    """Learning rate at the start, which falls to a tenth at the end; left out: each policy's
    own."""
