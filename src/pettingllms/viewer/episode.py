"""An episode as the page draws it: one lane per role, one row per decision of the main branch.

A decision shows the reply on the main branch and its siblings. Continuations that only evaluate a
sibling, and counterfactual replays, are listed below as side branches.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pettingllms.algos import make_algorithm_for
from pettingllms.algos.credit import turn_levels, turn_reward
from pettingllms.config import RewardConfig, RunConfig
from pettingllms.types import Episode, Failed, Group, Image, Message, Turn
from pettingllms.types.records import reward_to_json
from pettingllms.viewer.submissions import judged_turn, shown_submissions
from pettingllms.viewer.team_graphs import proposed_team

LEVELS = ("process", "agent", "team")


Place = tuple[str, int]
"""An episode's id and the index of one of its turns."""


def shown_episode(
    episode: Episode, weights: RewardConfig, groups: Mapping[Place, dict[str, Any]]
) -> dict[str, Any]:
    """Everything that the page shows of an episode, as JSON-ready values."""
    prompts: dict[tuple[Message, ...], int] = {}
    main_branch = episode.main_branch()
    on_main_branch = {index for at in main_branch for index in episode.steps[at].turns}
    turns = []
    for number, turn in enumerate(episode.turns):
        prompt = prompts.setdefault(turn.messages, len(prompts))
        levels = turn_levels(episode, turn)
        turns.append(
            _turn(turn)
            | {
                "prompt": prompt,
                "on_main_branch": number in on_main_branch,
                "rewards": dict(zip(LEVELS, map(reward_to_json, levels), strict=True)),
                "reward": reward_to_json(turn_reward(episode, turn, weights)),
                "group": groups.get((episode.id, number)),
                "judged": judged_turn(episode, turn),
                "team": proposed_team(episode, turn),
            }
        )
    return {
        "id": episode.id,
        "env": episode.env,
        "task": {"id": episode.task.id, "data": dict(episode.task.data), "seed": episode.task.seed},
        "seed": episode.seed,
        "success": dict(episode.success),
        "answers": dict(episode.answers),
        "failure": reward_to_json(episode.failure),
        "limit": episode.limit,
        "num_extra_tokens": episode.num_extra_tokens,
        "without": {
            role: reward_to_json(end) if isinstance(end, Failed) else end
            for role, end in episode.without.items()
        },
        "roles": list(dict.fromkeys(turn.role for turn in episode.turns)),
        "prompts": [[_message(message) for message in messages] for messages in prompts],
        "images": shown_images(image for ms in prompts for m in ms for image in m.images),
        "submissions": shown_submissions(episode),
        "turns": turns,
        "decisions": decisions(episode),
        "branches": branches(episode),
    }


def decisions(episode: Episode) -> list[dict[str, Any]]:
    """The turns of each decision on the main branch, with the metrics and rewards of its step."""
    main_branch = episode.main_branch()
    parents: list[int | None] = [None, *main_branch]
    depth = {parent: at for at, parent in enumerate(parents)}
    rows: list[list[int]] = [[] for _ in parents]
    at = 0
    for number, turn in enumerate(episode.turns):
        step, branch = turn.links.step, turn.links.branch
        parent = None if step is None else episode.steps[step].parent
        if step is not None and (parent not in depth or (branch is None and step not in depth)):
            continue  # played beside the main branch
        at = _depth_of_failed(episode, number, depth, at) if step is None else depth[parent]
        rows[at].append(number)
    steps = [episode.steps[at] for at in main_branch]
    return [
        {
            "turns": numbers,
            "metrics": dict(steps[at].metrics) if at < len(steps) else {},
            "rewards": _step_rewards(steps[at].rewards) if at < len(steps) else {},
        }
        for at, numbers in enumerate(rows)
        if numbers
    ]


def branches(episode: Episode) -> list[dict[str, Any]]:
    """Branches off the main branch, with their recorded replies."""
    main_branch = set(episode.main_branch())
    children = {step.parent for step in episode.steps}
    shown = {number for row in decisions(episode) for number in row["turns"]}
    found = []
    for at in range(len(episode.steps)):
        if at in main_branch or at in children:
            continue
        path = [one for one in episode.path(at) if one not in main_branch][::-1]
        turns = [index for one in path for index in episode.steps[one].turns]
        if len(path) > 1 or any(index not in shown for index in turns):
            recorded = [index for index in turns if index not in shown]
            found.append({"turns": recorded, "steps": len(path), "role": _without(episode, at)})
    return found


def _depth_of_failed(
    episode: Episode, number: int, depth: Mapping[int | None, int], before: int
) -> int:
    """The decision of a turn that never reached the environment: the one of its siblings."""
    turn = episode.turns[number]
    for other in episode.turns[number + 1 :]:
        if other.role != turn.role or not other.links.branch:
            break
        if other.links.step is not None and episode.steps[other.links.step].parent in depth:
            return depth[episode.steps[other.links.step].parent]
    if turn.links.branch:
        return before
    return len(depth) - 1


def _without(episode: Episode, last: int) -> str | None:
    return next((role for role, end in episode.without.items() if end == last), None)


def _message(message: Message) -> dict[str, Any]:
    images = [image.digest for image in message.images]
    return {"speaker": message.speaker, "content": message.text, "images": images}


def _turn(turn: Turn) -> dict[str, Any]:
    mismatch = None
    if turn.credit.learner_logprobs is not None and turn.logprobs is not None:
        mismatch = _numbers(turn.credit.learner_logprobs - turn.logprobs)
    return {
        "role": turn.role,
        "policy": turn.policy,
        "version": turn.policy_version,
        "last_version": turn.version_runs[-1].version if turn.version_runs else None,
        "text": turn.text,
        "finish": turn.finish,
        "branch": turn.links.branch,
        "failure": reward_to_json(turn.credit.failure),
        "advantage": turn.credit.advantage,
        "advantages": None if turn.credit.advantages is None else _numbers(turn.credit.advantages),
        "values": None if turn.credit.values is None else _numbers(turn.credit.values),
        "logprobs": None if turn.logprobs is None else _numbers(turn.logprobs),
        "mismatch": mismatch,
        "ends": None if turn.ends is None else turn.ends.tolist(),
        "tokens": turn.num_tokens,
        "prompt_tokens": turn.num_prompt_tokens,
    }


def _numbers(values: Any) -> list[float | None]:
    """Rounded to four digits, which is enough for display."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]


def _step_rewards(rewards: Any) -> dict[str, Any]:
    return {
        "process": {role: reward_to_json(one) for role, one in rewards.process.items()},
        "agent": {role: reward_to_json(one) for role, one in rewards.agent.items()},
        "team": reward_to_json(rewards.team),
    }


SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_BYTES = 16_000_000
"""Upper bound on image bytes per episode."""


def shown_images(images: Iterable[Image]) -> dict[str, dict[str, Any]]:
    """By digest: the data URL for an <img>, or why the image is missing."""
    found: dict[str, dict[str, Any]] = {}
    left = MAX_BYTES
    for image in dict.fromkeys(images):
        size = len(image.data)
        if not image.data.startswith(SIGNATURE):
            found[image.digest] = {"missing": "not a PNG file"}
        elif size > left:
            found[image.digest] = {"missing": f"{size:,} bytes; over the image limit per episode"}
        else:
            left -= size
            data = base64.b64encode(image.data).decode()
            found[image.digest] = {"data": f"data:image/png;base64,{data}"}
    return found


MAX_MEMBERS = 24
"""Members that the page shows per group."""


def groups_of(
    episodes: Sequence[Episode], config: RunConfig, step: int
) -> dict[Place, dict[str, Any]]:
    """The group of every compared turn, with the members' rewards and advantages."""
    algorithm = make_algorithm_for(config)
    if step:
        algorithm.policies = config.learning(step)
    places = {
        id(turn): (episode.id, number)
        for episode in episodes
        for number, turn in enumerate(episode.turns)
    }
    group_by_place: dict[Place, dict[str, Any]] = {}
    for group in algorithm.groups(algorithm.shaped(episodes)):
        data = _group_data(group, places)
        for member in group.members:
            group_by_place |= {places[id(turn)]: data for turn in member.turns}
    return group_by_place


def _group_data(group: Group, places: dict[int, Place]) -> dict[str, Any]:
    rewards = [member.reward for member in group.members]
    return {
        "size": len(rewards),
        "mean": sum(rewards) / len(rewards),
        "low": min(rewards),
        "high": max(rewards),
        "members": [
            {
                "reward": member.reward,
                "advantage": next((turn.credit.advantage for turn in member.turns), None),
                "turns": [places[id(turn)] for turn in member.turns],
                "text": next((turn.text[:80] for turn in member.turns), ""),
            }
            for member in group.members[:MAX_MEMBERS]
        ],
    }
