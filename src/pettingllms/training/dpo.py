"""Direct preference optimization (DPO) from episodes: each role learns from pairs of its replies.

Two replies make a pair if one role gave them to the same prompt of one task, and their rewards
differ. Only the reply differs, so the preference is about nothing else. In trees these are
siblings. In linear episodes these are replies of the first turn, and later ones that share a
prompt. A policy with several roles learns from the pairs of each role, never from pairs across
roles.

The reference model is the policy's initial weights. Its log-probs never change, so they are
computed once, before the first step, and no second model is kept.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pettingllms.algos.base import task_key
from pettingllms.algos.credit import sibling_rewards, turn_reward
from pettingllms.cluster.start import ray_running
from pettingllms.config import RewardConfig, RunConfig, loss_config
from pettingllms.config.sft import DpoConfig
from pettingllms.errors import ConfigError
from pettingllms.learners.batches import Pair, replies_of
from pettingllms.runs.callbacks import Callback, running_callbacks
from pettingllms.runs.folder import RunFolder
from pettingllms.training.sft import (
    batches_of,
    check_reply_lengths,
    episodes_in,
    learner_of,
    renderers_of,
    supervised_config,
    train_batches,
    training_item,
)
from pettingllms.types import Episode, Reward, Scored, Turn

__all__ = ["dpo"]

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


LearnerOf = Callable[[Episode, Turn], str | None]
"""The policy that learns from a reply, if any."""


@dataclass(frozen=True, slots=True)
class Preferred:
    """Two replies of one role to one prompt, with different rewards."""

    role: str
    policy: str
    """The policy that learns from the pair."""
    chosen: Turn
    rejected: Turn
    margin: float
    """Difference of the rewards."""


def dpo(config: RunConfig, folder: RunFolder, callback: Callback | None = None) -> None:
    """Train every policy on pairs of its replies, and write a checkpoint."""
    with running_callbacks(callback, config.log.callbacks) as callbacks:
        _prepare_and_train(config, folder, callbacks)


def _prepare_and_train(config: RunConfig, folder: RunFolder, callback: Callback) -> None:
    callback.on_phase("collecting")
    section = _section(config)
    if not section.episodes:
        advice = "give files after the configuration, such as RUN/episodes/*.zip"
        raise ConfigError("dpo", [f"no episodes are given; {advice}"])
    episodes = episodes_in(section.episodes, "dpo.episodes")
    found = preferred(episodes, config.reward, section, partial(learner_of, config))
    counts = Counter(one.role for one in found)
    callback.on_message("pairs: " + (", ".join(f"{n} of {r}" for r, n in counts.items()) or "none"))
    pairs = pairs_by_policy(config, found)
    callback.on_phase("starting Ray")
    with ray_running(config.cluster):
        from pettingllms.cluster.watched_run import run_watched

        run_watched(
            _dpo(_dpo_config(config), pairs, folder, callback), config.cluster, callback.on_message
        )


async def _dpo(
    config: RunConfig, pairs: Mapping[str, Sequence[Pair]], folder: RunFolder, callback: Callback
) -> None:
    async def prepare(team: "Team") -> dict[str, Iterator[list[Pair]]]:
        callback.on_phase("computing reference log-probs")
        known = {name: await with_reference(team, name, some) for name, some in pairs.items()}
        return {
            name: batches_of(some, _section(config).num_pairs, config, name, "dpo")
            for name, some in known.items()
        }

    await train_batches(config, prepare, _section(config).num_steps, folder, callback)


def preferred(
    episodes: Iterable[Episode], mix: RewardConfig, config: DpoConfig, learner_of_turn: LearnerOf
) -> list[Preferred]:
    """The pairs of all prompts, in the order of the prompts."""
    return [
        Preferred(prompt.role, prompt.policy, chosen, rejected, margin)
        for prompt, replies in _by_prompt(episodes, mix, learner_of_turn).items()
        for chosen, rejected, margin in _pairs(replies, config)
    ]


def pairs_by_policy(config: RunConfig, found: Sequence[Preferred]) -> dict[str, list[Pair]]:
    """Training pairs of each policy that learns, as ids, from all of its roles."""
    renderers = renderers_of(config)
    pairs: dict[str, list[Pair]] = {name: [] for name in renderers}
    for one in found:
        if one.policy in renderers:
            renderer = renderers[one.policy]
            chosen = training_item(one.chosen, one.policy, renderer)
            rejected = training_item(one.rejected, one.policy, renderer)
            pairs[one.policy].append(Pair(chosen, replace(rejected, advantage=-1.0)))
    for policy, some in pairs.items():
        if not some:
            reason = (
                f"'{policy}' has no pair to learn from: no two replies of one of its roles to one "
                "prompt have different rewards; sample more per task, or lower dpo.margin"
            )
            raise ConfigError("dpo", [reason])
    check_reply_lengths(config, {name: replies_of(some) for name, some in pairs.items()}, "dpo")
    return pairs


async def with_reference(team: "Team", policy: str, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with reference log-probs: those of the policy's initial weights."""
    items = replies_of(pairs)
    logprobs = await team.logprobs(policy, items)
    known = [replace(item, reference=row) for item, row in zip(items, logprobs, strict=True)]
    return [Pair(*both) for both in zip(known[::2], known[1::2], strict=True)]


Rewarded = list[tuple[Turn, float]]
"""Replies to one prompt with their rewards."""


class Prompt(NamedTuple):
    """The key of replies that are compared."""

    problem: tuple[Hashable, ...]
    where: tuple[Hashable, ...]
    role: str
    policy: str
    """The policy that learns from them."""
    shown: Hashable


def _by_prompt(
    episodes: Iterable[Episode], mix: RewardConfig, learner_of_turn: LearnerOf
) -> dict[Prompt, Rewarded]:
    found: dict[Prompt, Rewarded] = {}
    for number, episode in enumerate(episodes):
        for where, turn, reward in _rewards(episode, number, mix):
            policy = learner_of_turn(episode, turn)
            if isinstance(reward, Scored) and len(turn.response_ids) and policy is not None:
                key = Prompt(task_key(episode), where, turn.role, policy, turn.prompt_key())
                found.setdefault(key, []).append((turn, reward.value))
    return found


def _rewards(
    episode: Episode, number: int, mix: RewardConfig
) -> Iterator[tuple[tuple[Hashable, ...], Turn, Reward]]:
    """Every scored reply, with the key of the replies that it is compared with.

    Siblings of a tree are compared only within their decision, because other branches end there.
    Other replies are compared if their prompt and the number of their role's earlier turns are
    equal, by their returns: earlier turns have more reward to come.
    """
    decisions: dict[tuple[Hashable, ...], list[Turn]] = {}
    for turn in episode.turns:
        if turn.links.branch is not None and turn.links.step is not None:
            decision = (number, episode.steps[turn.links.step].parent, turn.role)
            decisions.setdefault(decision, []).append(turn)
    for where, turns in decisions.items():
        for turn, reward in zip(turns, sibling_rewards(episode, turns, mix), strict=True):
            yield where, turn, reward
    num_turns: Counter[str] = Counter()
    for turn in episode.main_turns():
        if turn.links.branch is None:
            where = (num_turns[turn.role],)
            yield where, turn, episode.failure or turn_reward(episode, turn, mix)
        num_turns[turn.role] += 1


def _pairs(replies: Rewarded, config: DpoConfig) -> list[tuple[Turn, Turn, float]]:
    """Pairs of different replies to one prompt whose rewards differ by more than the margin.

    A reply cut at a limit is never the chosen one. `extremes` keeps the pair with the largest
    difference."""
    best_first = sorted(replies, key=lambda one: -one[1])
    found = [
        (chosen, rejected, high - low)
        for (chosen, high), (rejected, low) in itertools.combinations(best_first, 2)
        if high - low > config.margin
        and not chosen.limit
        and not np.array_equal(chosen.response_ids, rejected.response_ids)
    ]
    number = 1 if config.pairs == "extremes" else config.max_pairs
    return sorted(found, key=lambda pair: -pair[2])[:number]


def _dpo_config(config: RunConfig) -> RunConfig:
    """The configuration of a run that learns from pairs only."""
    section = _section(config)
    loss = loss_config("dpo", beta=section.beta)
    return supervised_config(config, loss, section.num_steps, section.lr)


def _section(config: RunConfig) -> DpoConfig:
    return config.dpo or DpoConfig()
