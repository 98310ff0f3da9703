"""The summary of an episode that the index of a shard keeps, so that lists need no episodes."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Failed, Image, Message, Scored, Summarize, Summary
from pettingllms.types.records import episode_of
from pettingllms.types.turns import Ids, Values

KINDS = ("linear", "replay", "tree")
"""Types of rollouts; a summary has the position."""
NUMBERS = (
    "success", "reward", "steps", "replies", "tokens", "failed", "advantage", "kind", "has_failure",
)  # fmt: skip
TEXTS = ("id", "task", "env", "outcomes", "rewards", "failure", "roles")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def summarize_with(weights: RewardConfig) -> Summarize:
    """The summary with the rewards that a run learns from."""
    return partial(summarize_episode, weights=weights)


def summarize_episode(episode: Episode, weights: RewardConfig) -> Summary:
    """Outcome, reward, size and failures of an episode."""
    roles = {turn.role: turn.policy for turn in episode.turns}
    given = {role: role_reward(episode, role, weights) for role in roles}
    rewards = {role: one.value for role, one in given.items() if isinstance(one, Scored)}
    main_branch = episode.main_branch()
    failure = _failure(episode)
    numbers = {
        "success": mean([*map(float, episode.success.values())]) if episode.success else None,
        "reward": mean([*rewards.values()]) if rewards else None,
        "steps": len(main_branch),
        "replies": len(episode.turns),
        "tokens": episode.num_tokens + _num_unrecorded(episode),
        "failed": sum(turn.credit.failure is not None for turn in episode.turns),
        "advantage": max(
            (abs(a) for turn in episode.turns if (a := turn.credit.advantage) is not None),
            default=None,
        ),
        "kind": _kind(episode, main_branch),
        "has_failure": failure is not None,
    }
    texts = {
        "task": episode.task.id,
        "env": episode.env,
        "outcomes": _encode(dict(episode.success)),
        "rewards": _encode(rewards),
        "failure": None if failure is None else f"{failure.owner}: {failure.reason}",
        "roles": _encode(roles),
    }
    return numbers, texts


def summarize_line(data: Mapping[str, Any], weights: RewardConfig) -> Summary:
    """The summary of an episode as JSON. Tokens and messages are not read."""
    return summarize_episode(episode_of(data, Outline()), weights)


class Outline:
    """Reads turns without their messages, and only the lengths of their ids."""

    def messages(self, _data: Sequence[Any], /) -> tuple[Message, ...]:
        """Nothing."""
        return ()

    def image(self, _digest: str, /) -> Image:
        """An empty image."""
        return Image(b"")

    def prompt(self, _data: Any, /) -> Ids:
        """Nothing."""
        return np.zeros(0, np.int32)

    def ids(self, _name: str, data: Any, /) -> Ids:
        """As many zeros as ids, without memory."""
        return np.broadcast_to(np.int32(0), data if isinstance(data, int) else len(data))

    def values(self, _name: str, _data: Any, /) -> Values:
        """Nothing."""
        return np.zeros(0, np.float32)


def _kind(episode: Episode, main_branch: Sequence[int]) -> int:
    if any(turn.links.branch is not None for turn in episode.turns):
        return KINDS.index("tree")
    return KINDS.index("linear" if len(main_branch) == len(episode.steps) else "replay")


def _failure(episode: Episode) -> Failed | None:
    """Why the episode failed, or else why its first failed turn did."""
    found = (turn.credit.failure for turn in episode.turns)
    return episode.failure or next((failure for failure in found if failure), None)


def _num_unrecorded(episode: Episode) -> int:
    """Tokens of continuations whose turns were not recorded."""
    has_unrecorded = any(not step.turns for step in episode.steps)
    return episode.num_extra_tokens if has_unrecorded else 0
