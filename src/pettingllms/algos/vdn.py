"""VDN: the team's value is the sum of its roles' (Sunehag et al., 2018).

A team has one reward, and each role wants to know its own part in it. One critic reads each role's
prompt and reply by themselves: v is what the role is expected to add before it replies, q what it
adds once it has. Over a round, the sum of all v and the sum of all q are both trained to be what
the team is paid from this round on. To make the sums right the critic must give each role the part
that goes with its own words, and a reply's advantage is its q less its v. A role that did not speak
in the round has no part in the sum. Only team rewards count.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from pettingllms.algos.base import Mixer
from pettingllms.algos.credit import team_reward, team_rewards
from pettingllms.algos.gae import discounted
from pettingllms.algos.rounds import rounds, turns_in
from pettingllms.algos.valued import Estimate, Valued, ValuedConfig, targets_at, values_of
from pettingllms.types import Episode, Scored, Turn


class VdnConfig(ValuedConfig):
    """Options of VDN and QMIX."""

    standardize: bool = False
    """Whether a policy's advantages are brought to mean 0 and deviation 1 over the batch. While
    the critic knows little, that blows up what it does not know."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """What a reward is worth one round later."""


class Vdn(Valued):
    """A = q - v, where the sums of q and of v over a round are trained on the team's return."""

    Config = VdnConfig
    config: VdnConfig
    mixer: ClassVar[Mixer | None] = "sum"

    def joints(self, episodes: Sequence[Episode]) -> list[list[Turn]]:
        return [joint for episode in episodes for joint, _ in self._rounds(episode)]

    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        for episode in episodes:
            for joint, paid in self._rounds(episode):
                for turn in joint:
                    targets = targets_at(turn, {0: paid, -1: paid})
                    yield Estimate(turn, [self.advantage_of(turn)], targets)

    def advantage_of(self, turn: Turn) -> float:
        """What the reply changed in the team's value, the others as they were expected."""
        values = values_of(turn)
        return values[-1] - values[0]

    def _rounds(self, episode: Episode) -> Iterator[tuple[list[Turn], float]]:
        """For each round the replies that learn, and the team's return from it on."""
        parts = rounds(episode)
        if not parts or not isinstance(team_reward(episode, parts[0][0], self.reward), Scored):
            return
        returns = discounted(team_rewards(episode, parts, self.reward), self.config.gamma)
        for part, paid in zip(parts, returns, strict=True):
            joint = [turn for turn in turns_in(episode, part) if self.learns(turn)]
            if joint:
                yield joint, paid
