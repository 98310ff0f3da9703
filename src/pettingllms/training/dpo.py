"""Direct preference optimisation from episodes: each role learns from pairs of its own replies.

Two replies make a pair if one role gave them to one and the same prompt of one task, and was paid
more for one of them: what differs is the reply, so the preference is about nothing else. In a tree
those are siblings; in episodes side by side, the replies of the first turn and of all later ones
that happen to find the same prompt. A policy that plays several roles learns from the pairs of each
of them, and never from a pair that crosses them.

What the policy is held to are the weights it begins with. Their log-probs never change, so they are
taken once, before the first step, and no second model is kept.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pettingllms.algos.base import problem
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
    episodes_in,
    pupil,
    refuse_longer,
    renderers_of,
    taught_config,
    taught_item,
    teach,
)
from pettingllms.types import Episode, Reward, Scored, Turn

__all__ = ["dpo"]

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


PupilOf = Callable[[Episode, Turn], str | None]
"""Who learns from a reply, if anybody."""


@dataclass(frozen=True, slots=True)
class Preferred:
    """Two replies of one role to one prompt, of which one was paid more."""

    role: str
    policy: str
    """Who learns from it."""
    chosen: Turn
    rejected: Turn
    margin: float
    """By how much."""


def dpo(config: RunConfig, folder: RunFolder, callback: Callback | None = None) -> None:
    """Train every policy that has pairs of replies in its roles, and leave a checkpoint."""
    with running_callbacks(callback, config.log.callbacks) as callbacks:
        _prepare_and_train(config, folder, callbacks)


def _prepare_and_train(config: RunConfig, folder: RunFolder, callback: Callback) -> None:
    callback.on_phase("collecting")
    section = _section(config)
    if not section.episodes:
        advice = "give files behind the configuration, such as RUN/episodes/*.jsonl"
        raise ConfigError("dpo", [f"no episodes are named; {advice}"])
    episodes = episodes_in(section.episodes, "dpo.episodes")
    found = preferred(episodes, config.reward, section, partial(pupil, config))
    counts = Counter(one.role for one in found)
    callback.on_message("pairs: " + (", ".join(f"{n} of {r}" for r, n in counts.items()) or "none"))
    pairs = pairs_by_policy(config, found)
    callback.on_phase("starting Ray")
    with ray_running(config.cluster):
        asyncio.run(_dpo(_preferring(config), pairs, folder, callback))


async def _dpo(
    config: RunConfig, pairs: Mapping[str, Sequence[Pair]], folder: RunFolder, callback: Callback
) -> None:
    async def prepare(team: "Team") -> dict[str, Iterator[list[Pair]]]:
        callback.on_phase("taking log-probs to hold on to")
        known = {name: await referenced(team, name, some) for name, some in pairs.items()}
        return {
            name: batches_of(some, _section(config).num_pairs, config, name, "dpo")
            for name, some in known.items()
        }

    await teach(config, prepare, _section(config).num_steps, folder, callback)


def preferred(
    episodes: Sequence[Episode], mix: RewardConfig, config: DpoConfig, pupil_of: PupilOf
) -> list[Preferred]:
    """The pairs of all prompts, in the order in which prompts come."""
    return [
        Preferred(prompt.role, prompt.policy, chosen, rejected, margin)
        for prompt, paid in _by_prompt(episodes, mix, pupil_of).items()
        for chosen, rejected, margin in _pairs(paid, config)
    ]


def pairs_by_policy(config: RunConfig, found: Sequence[Preferred]) -> dict[str, list[Pair]]:
    """What each policy that learns is given, as ids: pairs of all roles that it plays."""
    renderers = renderers_of(config)
    pairs: dict[str, list[Pair]] = {name: [] for name in renderers}
    for one in found:
        if one.policy in renderers:
            renderer = renderers[one.policy]
            chosen = taught_item(one.chosen, one.policy, renderer)
            rejected = taught_item(one.rejected, one.policy, renderer)
            pairs[one.policy].append(Pair(chosen, replace(rejected, advantage=-1.0)))
    for policy, some in pairs.items():
        if not some:
            reason = (
                f"'{policy}' has no pair to learn from: no two replies of one of its roles to one "
                "prompt were paid differently; sample several for each task, or lower dpo.margin"
            )
            raise ConfigError("dpo", [reason])
    refuse_longer(config, {name: replies_of(some) for name, some in pairs.items()}, "dpo")
    return pairs


async def referenced(team: "Team", policy: str, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with log-probs of the weights that a policy begins with."""
    items = replies_of(pairs)
    logprobs = await team.logprobs(policy, items)
    known = [replace(item, reference=row) for item, row in zip(items, logprobs, strict=True)]
    return [Pair(*both) for both in zip(known[::2], known[1::2], strict=True)]


Paid = list[tuple[Turn, float]]
"""Replies to one prompt with what each was paid."""


class Prompt(NamedTuple):
    """What replies share that are compared."""

    problem: tuple[Hashable, ...]
    where: tuple[Hashable, ...]
    role: str
    policy: str
    """Who learns from them."""
    shown: Hashable


def _by_prompt(
    episodes: Sequence[Episode], mix: RewardConfig, pupil_of: PupilOf
) -> dict[Prompt, Paid]:
    found: dict[Prompt, Paid] = {}
    for number, episode in enumerate(episodes):
        for where, turn, reward in _rewards(episode, number, mix):
            policy = pupil_of(episode, turn)
            if isinstance(reward, Scored) and len(turn.response_ids) and policy is not None:
                key = Prompt(problem(episode), where, turn.role, policy, turn.prompt_key())
                found.setdefault(key, []).append((turn, reward.value))
    return found


def _rewards(
    episode: Episode, number: int, mix: RewardConfig
) -> Iterator[tuple[tuple[Hashable, ...], Turn, Reward]]:
    """Every reply that was judged, and where others are to be found that it is compared with.

    Siblings of a tree are compared within their decision alone: of a branch that was left nobody
    knows more. Other replies are compared wherever their prompt is met again and their role has
    spoken as often, by what it was paid from there on: sooner in a play there is more to come.
    """
    decisions: dict[tuple[Hashable, ...], list[Turn]] = {}
    for turn in episode.turns:
        if turn.links.branch is not None and turn.links.step is not None:
            decision = (number, episode.steps[turn.links.step].parent, turn.role)
            decisions.setdefault(decision, []).append(turn)
    for where, turns in decisions.items():
        for turn, reward in zip(turns, sibling_rewards(episode, turns, mix), strict=True):
            yield where, turn, reward
    spoken: Counter[str] = Counter()
    for turn in episode.main_turns():
        if turn.links.branch is None:
            where = (spoken[turn.role],)
            yield where, turn, episode.failure or turn_reward(episode, turn, mix)
        spoken[turn.role] += 1


def _pairs(paid: Paid, config: DpoConfig) -> list[tuple[Turn, Turn, float]]:
    """Pairs of replies to one prompt. Two that were paid alike are none, nor is a reply that was
    paid differently by chance: it cannot be preferred to itself. A reply that a limit cut is never
    preferred. The extremes are therefore the furthest apart of those that differ."""
    best_first = sorted(paid, key=lambda one: -one[1])
    found = [
        (chosen, rejected, high - low)
        for (chosen, high), (rejected, low) in itertools.combinations(best_first, 2)
        if high - low > config.margin
        and not chosen.limit
        and not np.array_equal(chosen.response_ids, rejected.response_ids)
    ]
    number = 1 if config.pairs == "extremes" else config.max_pairs
    return sorted(found, key=lambda pair: -pair[2])[:number]


def _preferring(config: RunConfig) -> RunConfig:
    """The run whose learner learns from pairs alone."""
    section = _section(config)
    loss = loss_config("dpo", beta=section.beta)
    return taught_config(config, loss, section.num_steps, section.lr)


def _section(config: RunConfig) -> DpoConfig:
    return config.dpo or DpoConfig()
