"""VDN: the value of the team is the sum of the values of its roles (Sunehag et al., 2018).

A team has one reward, and each role needs its contribution. One critic reads the prompt and reply
of each role separately: v is the role's contribution before it replies, q its contribution after.
For simultaneous roles the sum of all q is trained toward the return of the team, and so is each sum
in which v replaces the q of one role. That sum is the counterfactual value of the role. A reply's
advantage is the return of the team minus that value, which contains the contributions of all other
roles. The value does not depend on the reply itself, so a wrong critic adds variance but no bias.

Sequential roles are not summed: the second role has read the first reply, so its v already contains
the contribution of the first role. Only team rewards count.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from pettingllms.algos.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    Estimate,
    discounted,
    targets_at,
)
from pettingllms.algos.base import Mixer
from pettingllms.algos.credit import team_reward, team_rewards
from pettingllms.types import Episode, Scored, Turn


class VdnConfig(ActorCriticConfig):
    """Options of VDN and QMIX."""

    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount factor per step."""


class Vdn(ActorCritic):
    """A = R - sum(v of this role, q of the others), with R the return of the team from here on."""

    Config = VdnConfig
    config: VdnConfig
    mixer: ClassVar[Mixer | None] = "sum"
    team_only = True

    def joint_actions(self, episodes: Sequence[Episode]) -> list[list[Turn]]:
        return [
            joint_action for episode in episodes for joint_action, _ in self._joint_actions(episode)
        ]

    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        for episode in episodes:
            for joint_action, team_return in self._joint_actions(episode):
                for turn in joint_action:
                    targets = targets_at(turn, {0: team_return, -1: team_return})
                    yield Estimate(
                        turn, [team_return - (turn.credit.counterfactual_value or 0.0)], targets
                    )

    def _joint_actions(self, episode: Episode) -> Iterator[tuple[list[Turn], float]]:
        """The trainable replies of each step, and the return of the team from it on."""
        steps = episode.main_branch()
        if not steps or not isinstance(team_reward(episode, steps[0], self.reward), Scored):
            return
        rewards = team_rewards(episode, steps, self.reward)
        for at, value in zip(steps, discounted(rewards, self.config.gamma), strict=True):
            turns = (episode.turns[index] for index in episode.steps[at].turns)
            if joint_action := [turn for turn in turns if self.learns(turn)]:
                yield joint_action, value
