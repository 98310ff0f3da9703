"""Episodes as JSON that is read back equal in every field.

Float32 log-probs are written as the shortest decimals of their float64 value, so reading restores
the same bits. Every line has a format number; unknown formats are rejected. Lines contain the
digests of images. A packing may keep ids and numbers elsewhere, as shards do.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pettingllms.errors import RecordError
from pettingllms.types.episodes import Episode, Step, Task
from pettingllms.types.image_files import ImageLoader, no_images
from pettingllms.types.messages import Image
from pettingllms.types.packing import LINE_FORMAT, FromLine, InLine, Packing, Unpacking
from pettingllms.types.rewards import Failed, Reward, Rewards, Scored, Submission
from pettingllms.types.turns import Credit, TreeLinks, Turn, Usage, VersionRun

READABLE = (1, LINE_FORMAT)
"""Format 1 is the format of version 0.1."""
RENAMED = {
    "central_ids": "centralized_ids",
    "central_images": "centralized_images",
    "exhibits": "submissions",
}
"""Fields of format 1 with their names in this version."""
VALUES = ("advantages", "values", "returns", "learner_logprobs")
IDS = ("centralized_ids", "ends")
IN_LINE = InLine()


def episode_to_json(episode: Episode, packing: Packing = IN_LINE) -> dict[str, Any]:
    """All fields of an episode as JSON values; images are replaced by their digests."""
    return {
        "format": packing.format,
        "id": episode.id,
        "env": episode.env,
        "task": {
            "id": episode.task.id,
            "data": dict(episode.task.data),
            "seed": episode.task.seed,
        },
        "seed": episode.seed,
        "success": dict(episode.success),
        **({"best_of": episode.best_of} if episode.best_of > 1 else {}),
        **({"first_success": dict(episode.first_success)} if episode.first_success else {}),
        **({"answers": dict(episode.answers)} if episode.answers else {}),
        "failure": reward_to_json(episode.failure),
        "last": episode.last,
        "num_extra_tokens": episode.num_extra_tokens,
        **({"dropped_tokens": dict(episode.dropped_tokens)} if episode.dropped_tokens else {}),
        "without": {
            role: reward_to_json(end) if isinstance(end, Failed) else end
            for role, end in episode.without.items()
        },
        "turns": [_turn_to_json(turn, packing) for turn in episode.turns],
        "steps": [_step_to_json(step) for step in episode.steps],
    }


def episode_from_json(data: Mapping[str, Any], load_image: ImageLoader = no_images) -> Episode:
    """Read the output of `episode_to_json`; `load_image` loads its images."""
    if "format" not in data:
        raise RecordError(
            "not an episode; expected a file of episodes as written by `rollout` and `train`"
        )
    if data["format"] not in READABLE:
        raise RecordError(
            f"episode has format {data['format']!r}, this version reads {READABLE}; "
            "read it with the version that wrote it"
        )
    return episode_of(data, FromLine(load_image))


def episode_of(data: Mapping[str, Any], unpacking: Unpacking) -> Episode:
    """Read the output of `episode_to_json` with what undoes its packing."""
    return Episode(
        id=data["id"],
        env=data["env"],
        task=Task(**data["task"]),
        seed=data["seed"],
        turns=[_turn_from_json(_renamed(turn), unpacking) for turn in data["turns"]],
        steps=[_step_from_json(_renamed(step)) for step in data["steps"]],
        last=data["last"],
        success=data["success"],
        best_of=data.get("best_of", 1),
        first_success=data.get("first_success", {}),
        answers=data.get("answers", {}),
        failure=_failure_from_json(data["failure"]),
        num_extra_tokens=data["num_extra_tokens"],
        dropped_tokens=data.get("dropped_tokens", {}),
        without={
            role: Failed(end["failed"], end["owner"]) if isinstance(end, dict) else end
            for role, end in data.get("without", {}).items()
        },
    )


def _renamed(data: Mapping[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): value for name, value in data.items()}


def images_in(turn: Turn) -> Iterator[Image]:
    """All images of a turn."""
    for message in turn.messages:
        yield from message.images
    yield from turn.centralized_images


def episode_line(episode: Episode) -> str:
    """One episode as one line of JSON."""
    try:
        return json.dumps(episode_to_json(episode), allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"cannot write episode {episode.id}: {error}; the data of its task must be plain JSON"
        ) from error


def _turn_to_json(turn: Turn, packing: Packing) -> dict[str, Any]:
    """Plain statements in place of expressions: this runs once per reply of a run."""
    credit, links = turn.credit, turn.links
    data = {
        "role": turn.role,
        "policy": turn.policy,
        "policy_version": turn.policy_version,
        "messages": packing.messages(turn.messages),
        "text": turn.text,
        "finish": turn.finish,
        "step": links.step,
        "last": links.last,
        "branch": links.branch,
        "failure": reward_to_json(credit.failure),
        "advantage": credit.advantage,
        "prompt_ids": packing.prompt(turn.role, turn.prompt_ids),
        "response_ids": packing.ids("response_ids", turn.response_ids),
        "logprobs": None if turn.logprobs is None else packing.values("logprobs", turn.logprobs),
    }
    if turn.usage is not None:
        data["usage"] = [turn.usage.prompt, turn.usage.reply]
    if links.extends is not None:
        data["extends"] = links.extends
    if turn.guided:
        data["guided"] = True
    if turn.limit:
        data["limit"] = turn.limit
    if turn.later_versions:
        data["later_versions"] = [list(run) for run in turn.later_versions]
    if turn.centralized_images:
        data["centralized_images"] = [image.digest for image in turn.centralized_images]
    _add_arrays(data, turn, packing)
    return data


def _add_arrays(data: dict[str, Any], turn: Turn, packing: Packing) -> None:
    """The arrays that only some turns have."""
    credit = turn.credit
    for name in VALUES:
        if (values := getattr(credit, name)) is not None:
            data[name] = packing.values(name, values)
    if credit.counterfactual_value is not None:
        data["mixed"] = credit.counterfactual_value
    for name in IDS:
        if (ids := getattr(turn, name)) is not None:
            data[name] = packing.ids(name, ids)


def _credit_from_json(data: Mapping[str, Any], unpacking: Unpacking) -> Credit:
    return Credit(
        failure=_failure_from_json(data["failure"]),
        advantage=data["advantage"],
        counterfactual_value=data.get("mixed"),
        **{name: unpacking.values(name, data[name]) for name in VALUES if name in data},
    )


def _turn_from_json(data: dict[str, Any], unpacking: Unpacking) -> Turn:
    logprobs = data["logprobs"]
    return Turn(
        role=data["role"],
        policy=data["policy"],
        messages=unpacking.messages(data["messages"]),
        prompt_ids=unpacking.prompt(data["prompt_ids"]),
        response_ids=unpacking.ids("response_ids", data["response_ids"]),
        logprobs=None if logprobs is None else unpacking.values("logprobs", logprobs),
        text=data["text"],
        policy_version=data["policy_version"],
        finish=data["finish"],
        usage=Usage(*data["usage"]) if "usage" in data else None,
        guided=data.get("guided", False),
        limit=data.get("limit", ""),
        later_versions=tuple(VersionRun(*run) for run in data.get("later_versions", ())),
        centralized_images=tuple(map(unpacking.image, data.get("centralized_images", ()))),
        credit=_credit_from_json(data, unpacking),
        links=TreeLinks(data["step"], data["last"], data["branch"], data.get("extends")),
        **{name: unpacking.ids(name, data[name]) for name in IDS if name in data},
    )


def _step_to_json(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {
        "parent": step.parent,
        "turns": list(step.turns),
        "rewards": _rewards_to_json(step.rewards),
        "metrics": dict(step.metrics),
    }
    if step.submissions:
        data["submissions"] = _submissions_to_json(step)
    if step.limit:
        data["limit"] = step.limit
    if step.final:
        data["final"] = True
    return data


def _rewards_to_json(rewards: Rewards) -> dict[str, Any]:
    process, agent = rewards.process, rewards.agent
    return {
        "process": {role: reward_to_json(process[role]) for role in process} if process else {},
        "agent": {role: reward_to_json(agent[role]) for role in agent} if agent else {},
        "team": reward_to_json(rewards.team),
    }


def _submissions_to_json(step: Step) -> dict[str, Any]:
    return {role: _submission_to_json(shown) for role, shown in step.submissions.items()}


def _submission_to_json(shown: Submission) -> dict[str, Any]:
    data: dict[str, Any] = {
        "question": shown.question,
        "answer": shown.answer,
        "criteria": shown.criteria,
        "facts": dict(shown.facts),
    }
    if shown.level != "agent":
        data["level"] = shown.level
    return data


def _step_from_json(data: dict[str, Any]) -> Step:
    rewards = data["rewards"]
    return Step(
        parent=data["parent"],
        turns=tuple(data["turns"]),
        rewards=Rewards(
            process={role: _reward_from_json(r) for role, r in rewards["process"].items()},
            agent={role: _reward_from_json(r) for role, r in rewards["agent"].items()},
            team=None if rewards["team"] is None else _reward_from_json(rewards["team"]),
        ),
        metrics=data["metrics"],
        submissions={
            role: Submission(**shown) for role, shown in data.get("submissions", {}).items()
        },
        limit=data.get("limit", ""),
        final=data.get("final", False),
    )


def reward_to_json(reward: Reward | None) -> float | dict[str, str] | None:
    """A number, or the failure as an object."""
    if reward is None:
        return None
    if isinstance(reward, Scored):
        return reward.value
    return {"failed": reward.reason, "owner": reward.owner}


def _reward_from_json(data: float | dict[str, str]) -> Reward:
    if isinstance(data, dict):
        return Failed(data["failed"], cast("Any", data["owner"]))
    return Scored(data)


def _failure_from_json(data: dict[str, str] | None) -> Failed | None:
    return None if data is None else Failed(data["failed"], cast("Any", data["owner"]))
