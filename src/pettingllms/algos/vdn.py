"""VDN: the team's value is the sum of its roles' (Sunehag et al., 2018).

A team has one reward, and each role wants to know its own part in it. One critic reads each role's
prompt and reply by themselves: v is what the role is expected to add before it replies, q what it
adds once it has. Over the roles that speak at the same time, the sum of all v and the sum of all q
are both trained to be what the team is paid from then on. To make the sums right the critic must
give each role the part that goes with its own words, and a reply's advantage is its q less its v.

Roles that speak one after another are not summed: the second has read the first, so its v would
know already what the first had said, and leave it nothing to add. Only team rewards count.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from pettingllms.algos.base import Mixer
from pettingllms.algos.credit import team_reward, team_rewards
from pettingllms.algos.gae import discounted
from pettingllms.algos.valued import Estimate, Valued, ValuedConfig, targets_at, values_of
from pettingllms.types import Episode, Scored, Turn


class VdnConfig(ValuedConfig):
    """Options of VDN and QMIX."""

    standardize: bool = False
    """Whether a policy's advantages are brought to mean 0 and deviation 1 over the batch. While
    the critic knows little, that blows up what it does not know."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """What a reward is worth one step later."""


class Vdn(Valued):
    """A = q - v, where the sums of q and of v over a step are trained on the team's return."""

    Config = VdnConfig
    config: VdnConfig
    mixer: ClassVar[Mixer | None] = "sum"

    def joints(self, episodes: Sequence[Episode]) -> list[list[Turn]]:
        return [joint for episode in episodes for joint, _ in self._joints(episode)]

    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        for episode in episodes:
            for joint, paid in self._joints(episode):
                for turn in joint:
                    targets = targets_at(turn, {0: paid, -1: paid})
                    yield Estimate(turn, [self.advantage_of(turn)], targets)

    def advantage_of(self, turn: Turn) -> float:
        """What the reply changed in the team's value, the others as they were expected."""
        values = values_of(turn)
        return values[-1] - values[0]

    def _joints(self, episode: Episode) -> Iterator[tuple[list[Turn], float]]:
        """For each step the replies that learn, and the team's return from it on."""
        steps = episode.trunk()
        if not steps or not isinstance(team_reward(episode, steps[0], self.reward), Scored):
            return
        paid = team_rewards(episode, steps, self.reward)
        for at, value in zip(steps, discounted(paid, self.config.gamma), strict=True):
            turns = (episode.turns[index] for index in episode.steps[at].turns)
            if joint := [turn for turn in turns if self.learns(turn)]:
                yield joint, value
