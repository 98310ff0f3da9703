"""The guard section: bounds past which a policy counts as collapsed, and what happens then."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class GuardConfig(Section):
    """Guards against policy collapse: bounds on metrics of each policy that learns."""

    action: Literal["pause", "warn", "off"] = "pause"
    """Action on collapse. `pause`: save a checkpoint and stop; `pettingllms resume` continues.
    `warn`: print a message. `off`: check nothing."""
    patience: int = Field(default=5, ge=1)
    """Consecutive steps past a bound that count as collapse."""
    min_replies: float = Field(default=1.05, ge=1)
    """Minimum effective number of distinct replies over distinct prompts: 1 if all replies are
    equal, 2 for two equally frequent replies, about 1.05 if one in a hundred differs. 1 turns this
    guard off, for games in which one reply is always right."""
    min_prompts: int = Field(default=8, ge=2)
    """Distinct prompts per step below which min_replies is not checked."""
    enough_success: float = Field(default=0.9, ge=0, le=1)
    """Success rate of all roles of a policy at which min_replies and min_entropy are not checked.
    Success is that of ordinary samples, never of the best of several siblings."""
    min_entropy: float = Field(default=0.001, ge=0)
    """Minimum mean of -log p over sampled tokens. Confident but healthy policies are well above the
    default."""
    max_repetition: float = Field(default=0.8, ge=0, le=1)
    """Maximum share of repeated 4-grams within a reply, averaged over replies; replies under 32
    tokens count as 0."""
    anchors: list[str] = Field(default_factory=list)
    """Scripted players. At every evaluation (train.eval_every), each role of a policy that learns
    also runs the test tasks with an anchor in all other roles."""
    max_anchor_drop: float = Field(default=0.3, gt=0, le=1)
    """Maximum drop of success against an anchor below the best measured value."""
    anchor_patience: int = Field(default=2, ge=1)
    """Consecutive evaluations past max_anchor_drop that count as collapse."""

    def unused_keys(self) -> set[str]:
        """Keys of `anchors`, or all if the guards are off."""
        if self.action == "off":
            return set(type(self).model_fields)
        return set() if self.anchors else {"max_anchor_drop", "anchor_patience"}
