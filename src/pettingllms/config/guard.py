"""When a run is taken to have collapsed, and what is done then."""

from typing import Literal

from pydantic import Field

from pettingllms.config.section import Section


class GuardConfig(Section):
    """Guards against collapse: what every step measures of a policy that learns, held to bounds."""

    action: Literal["pause", "warn", "off"] = "pause"
    """What a collapse does. `pause`: the run is saved and stops, `pettingllms resume` goes on.
    `warn`: a message. `off`: nothing is looked at."""
    patience: int = Field(default=5, ge=1)
    """Steps in a row past a bound after which a policy has collapsed."""
    min_replies: float = Field(default=1.05, ge=1)
    """Different replies that a policy gives over different prompts, as an effective number: 1 for
    one reply whatever it is asked, 2 for two alike in number, 1.05 if one in a hundred differs.
    1 turns this guard off, for games in which one reply is always right."""
    min_prompts: int = Field(default=8, ge=2)
    """Different prompts in a step without which its replies are not counted."""
    enough_success: float = Field(default=0.9, ge=0, le=1)
    """A policy whose roles all reach their aim in this share of episodes may repeat itself, and be
    sure of it. Success is that of ordinary samples, never of the best of several siblings."""
    min_entropy: float = Field(default=0.001, ge=0)
    """Mean of -log p of what a policy samples. A policy that is sure of its play is well above."""
    max_repetition: float = Field(default=0.8, ge=0, le=1)
    """Share of runs of four tokens inside a reply that stood in it before, as a mean over replies;
    those under 32 tokens count as 0."""
    anchors: list[str] = Field(default_factory=list)
    """Scripted players of the environment. With every evaluation (train.eval_every), each role of a
    policy that learns also plays the test tasks with one of them in all other players."""
    max_anchor_drop: float = Field(default=0.3, gt=0, le=1)
    """How far success against an anchor may fall below the best that was measured."""
    anchor_patience: int = Field(default=2, ge=1)
    """Evaluations in a row past that bound after which a policy has collapsed."""

    def unused_keys(self) -> set[str]:
        """Keys of `anchors`, or all if the guards are off."""
        if self.action == "off":
            return set(type(self).model_fields)
        return set() if self.anchors else {"max_anchor_drop", "anchor_patience"}
