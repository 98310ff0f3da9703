"""PPO: a reply is compared with what a critic expected of it (Schulman et al., 2015 and 2017).

A critic replaces the other samples of a task: one play of each is enough, and what a late reply
did well is not blamed for what an early one did badly. Each policy has a critic of its own, which
sees what the policy sees.

Over turns, a reply is one action: the critic's word counts where its prompt ends, and all its
tokens share one advantage. Over tokens, each token is an action, the reward falls on the last one
of the reply, and what is expected after it is what the critic says when the same role is asked
next. Either way a role's chain of states is its own: what is paid to it between two of its turns
is added up, and no chain crosses roles or plays.

An episode that a limit cut with rollout.on_limit = "bootstrap" has no end to learn from. A role's
last turn is then where its chain stops: the critic's value there stands for the rest, and the turn
itself, whose effect is unknown, is not trained on. Over tokens, a reply that was itself cut is
trained on up to its last token, and the value after that stands for the rest.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from pettingllms.algos.credit import rewards_between
from pettingllms.algos.gae import gae
from pettingllms.algos.valued import Estimate, Valued, ValuedConfig, targets_at, values_of
from pettingllms.types import Episode, Turn


class PpoConfig(ValuedConfig):
    """Options of PPO and MAPPO."""

    level: Literal["turn", "token"] = "turn"
    """Whether a reply is one action, or each of its tokens is."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """What a reward is worth one action later."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """1: advantages are returns less values. 0: the error of one action. Counted in actions, so a
    long reply by tokens wants it near 1."""


class Ppo(Valued):
    """A = generalised advantage estimate of the role's rewards and its critic's values."""

    Config = PpoConfig
    config: PpoConfig
    bootstraps = True

    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        whole = [episode for episode in episodes if not episode.is_bootstrapped]
        for episode, _, part in self.plays(whole):
            yield from self._chain(part.turns, rewards_between(episode, part.turns, self.reward))
        for episode in episodes:
            if episode.is_bootstrapped:
                for turns in self.parts(episode).values():
                    yield from self._cut_chain(episode, turns)

    def _cut_chain(self, episode: Episode, turns: list[Turn]) -> Iterator[Estimate]:
        """One role's part in an episode that a limit cut, up to where the critic's value stands for
        the rest."""
        rewards, last = rewards_between(episode, turns, self.reward), turns[-1]
        was_cut = last.links.step == episode.last and last.finish == "length"
        if self.config.level == "token" and was_cut:
            yield from self._chain(turns, rewards, values_of(last)[-1])
        else:
            yield from self._chain(turns[:-1], rewards[:-1], values_of(last)[0])

    def _chain(
        self, turns: Sequence[Turn], rewards: Sequence[float], last_value: float = 0.0
    ) -> Iterator[Estimate]:
        """One role's part in one play. A reply without a token still is a state."""
        by_token = self.config.level == "token"
        counts = [max(1, turn.num_tokens) if by_token else 1 for turn in turns]
        values = [
            value
            for turn, count in zip(turns, counts, strict=True)
            for value in values_of(turn)[:count]
        ]
        paid = [
            number
            for reward, count in zip(rewards, counts, strict=True)
            for number in [*[0.0] * (count - 1), reward]
        ]
        found = gae(paid, values, self.config.gamma, self.config.gae_lambda, last_value)
        start = 0
        for turn, count in zip(turns, counts, strict=True):
            part = slice(start, start + count)
            targets = [a + v for a, v in zip(found[part], values[part], strict=True)]
            returns = targets_at(turn, dict(enumerate(targets)))
            yield Estimate(turn, found[part], returns, by_token and turn.num_tokens > 0)
            start += count
