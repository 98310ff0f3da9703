"""VDN: the team's value is the sum of its roles' (Sunehag et al., 2018).

A team has one reward, and each role wants to know its own part in it. One critic reads each role's
prompt and reply by themselves: v is what the role is expected to add before it replies, q what it
adds once it has. Over the roles that speak at the same time the sum of all q is trained to be what
the team is paid from then on, and so is each sum in which one role's q is its v. A reply's
advantage is what the team was paid less that last sum of its role: all that the others added is in
it, so what is left is the reply's own. Nothing in it depends on the reply itself, so a critic that
is wrong makes advantages noisy, and does not turn them round.

Roles that speak one after another are not summed: the second has read the first, so its v would
know already what the first had said, and leave it nothing to add. Only team rewards count.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from pettingllms.algos.base import Mixer
from pettingllms.algos.credit import team_reward, team_rewards
from pettingllms.algos.gae import discounted
from pettingllms.algos.valued import Estimate, Valued, ValuedConfig, targets_at
from pettingllms.types import Episode, Scored, Turn


class VdnConfig(ValuedConfig):
    """Options of VDN and QMIX."""

    gamma: float = Field(default=1.0, gt=0, le=1)
    """What a reward is worth one step later."""


class Vdn(Valued):
    """A = R - sum(v of this role, q of the others), with R what the team is paid from here on."""

    Config = VdnConfig
    config: VdnConfig
    mixer: ClassVar[Mixer | None] = "sum"

    def joint_actions(self, episodes: Sequence[Episode]) -> list[list[Turn]]:
        return [
            joint_action for episode in episodes for joint_action, _ in self._joint_actions(episode)
        ]

    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        for episode in episodes:
            for joint_action, paid in self._joint_actions(episode):
                for turn in joint_action:
                    targets = targets_at(turn, {0: paid, -1: paid})
                    yield Estimate(
                        turn, [paid - (turn.credit.counterfactual_value or 0.0)], targets
                    )

    def _joint_actions(self, episode: Episode) -> Iterator[tuple[list[Turn], float]]:
        """For each step the replies that learn, and the team's return from it on."""
        steps = episode.main_branch()
        if not steps or not isinstance(team_reward(episode, steps[0], self.reward), Scored):
            return
        paid = team_rewards(episode, steps, self.reward)
        for at, value in zip(steps, discounted(paid, self.config.gamma), strict=True):
            turns = (episode.turns[index] for index in episode.steps[at].turns)
            if joint_action := [turn for turn in turns if self.learns(turn)]:
                yield joint_action, value
