"""PPO: compare the return of a reply with a critic's value (Schulman et al., 2015 and 2017).

A critic replaces the other samples of a task: one episode per task is enough, and a good late reply
is not blamed for a bad early one. Each policy has its own critic, which reads the policy's prompts.

With `level = "turn"` a reply is one action: the value at the end of its prompt counts, and all its
tokens share one advantage. With `level = "token"` each token is an action, the reward falls on the
last token of the reply, and the next value is the one at the end of the role's next prompt. Either
way each role has its own trajectory: rewards between two of its turns are summed, and trajectories
never cross roles or episodes.

An episode that a limit cut with rollout.on_limit = "bootstrap" has no final return. A role's
trajectory then ends at its last turn, whose value replaces the rest of the return. That turn is not
trained on, because its effect is unknown. With `level = "token"`, a reply that was cut itself is
trained on up to its last token, and the value after that token replaces the rest.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from pettingllms.algos.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    Estimate,
    gae,
    targets_at,
    values_of,
)
from pettingllms.algos.credit import rewards_between
from pettingllms.types import Episode, Turn


class PpoConfig(ActorCriticConfig):
    """Options of PPO and MAPPO."""

    level: Literal["turn", "token"] = "turn"
    """Whether an action is a whole reply or a single token."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount factor per action. 0: each action answers for its own reward only."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """GAE lambda per action. 1: returns minus values. 0: one-step TD errors. Use values near 1 for
    long replies with level = "token"."""


class Ppo(ActorCritic):
    """A = generalized advantage estimate (GAE) of the role's rewards and its critic's values."""

    Config = PpoConfig
    config: PpoConfig
    bootstraps = True

    def estimates(self, episodes: Sequence[Episode]) -> Iterator[Estimate]:
        whole = [episode for episode in episodes if not episode.is_bootstrapped]
        for episode, _, part in self.role_returns(whole):
            yield from self._trajectory(
                part.turns, rewards_between(episode, part.turns, self.reward)
            )
        for episode in episodes:
            if episode.is_bootstrapped:
                for turns in self.turns_by_role(episode).values():
                    yield from self._cut_trajectory(episode, turns)

    def _cut_trajectory(self, episode: Episode, turns: list[Turn]) -> Iterator[Estimate]:
        """The trajectory of one role in an episode that a limit cut, up to the bootstrap value."""
        rewards, last = rewards_between(episode, turns, self.reward), turns[-1]
        was_cut = last.links.step == episode.last and last.finish == "length"
        if self.config.level == "token" and was_cut:
            yield from self._trajectory(turns, rewards, values_of(last)[-1])
        else:
            yield from self._trajectory(turns[:-1], rewards[:-1], values_of(last)[0])

    def _trajectory(
        self, turns: Sequence[Turn], rewards: Sequence[float], last_value: float = 0.0
    ) -> Iterator[Estimate]:
        """The trajectory of one role in one episode. A reply without tokens still is a state."""
        by_token = self.config.level == "token"
        counts = [max(1, turn.num_tokens) if by_token else 1 for turn in turns]
        values = [
            value
            for turn, count in zip(turns, counts, strict=True)
            for value in values_of(turn)[:count]
        ]
        action_rewards = [
            number
            for reward, count in zip(rewards, counts, strict=True)
            for number in [*[0.0] * (count - 1), reward]
        ]
        found = gae(action_rewards, values, self.config.gamma, self.config.gae_lambda, last_value)
        start = 0
        for turn, count in zip(turns, counts, strict=True):
            part = slice(start, start + count)
            targets = [a + v for a, v in zip(found[part], values[part], strict=True)]
            returns = targets_at(turn, dict(enumerate(targets)))
            yield Estimate(turn, found[part], returns, by_token and turn.num_tokens > 0)
            start += count
