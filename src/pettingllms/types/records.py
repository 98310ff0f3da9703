"""Episodes as JSON lines that are read back equal in every field.

Float32 log-probs are written as the shortest decimals of their float64 value, so reading restores
the same bits. Every line has a format number; unknown formats are rejected. Images are stored in a
folder next to the file, and lines contain their digests.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from pettingllms.errors import RecordError
from pettingllms.types.episodes import Episode, Step, Task
from pettingllms.types.image_files import ImageLoader, image_loader, no_images, store_images
from pettingllms.types.messages import Image, Message, Part, Table
from pettingllms.types.rewards import Failed, Reward, Rewards, Scored, Submission
from pettingllms.types.turns import Credit, TreeLinks, Turn, Usage

FORMAT = 2
READABLE = (1, 2)
"""Format 1 is the format of version 0.1."""
RENAMED = {
    "central_ids": "centralized_ids",
    "central_images": "centralized_images",
    "exhibits": "submissions",
}
"""Fields of format 1 with their names in this version."""
VALUES = ("advantages", "values", "returns", "learner_logprobs")
IDS = ("centralized_ids", "ends")


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """All fields of an episode as JSON values; images are replaced by their digests."""
    return {
        "format": FORMAT,
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
        "turns": [_turn_to_json(turn) for turn in episode.turns],
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
    return Episode(
        id=data["id"],
        env=data["env"],
        task=Task(**data["task"]),
        seed=data["seed"],
        turns=[_turn_from_json(_renamed(turn), load_image) for turn in data["turns"]],
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


def write_episodes(path: Path, episodes: Iterable[Episode]) -> int:
    """Write one line per episode as it arrives, and its images; the number of episodes written."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for episode in episodes:
            store_images(path, (image for turn in episode.turns for image in _images(turn)))
            file.write(episode_line(episode))
            count += 1
    return count


def _images(turn: Turn) -> Iterator[Image]:
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


def read_episodes(path: Path) -> Iterator[Episode]:
    """Read the episodes of a file, one at a time."""
    load_image = image_loader(path)
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield episode_from_json(json.loads(line), load_image)
            except RecordError as error:
                raise RecordError(f"{path}, line {number}: {error}") from None
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise RecordError(
                    f"{path}, line {number}: not an episode ({error!r}); the file may be truncated"
                ) from error


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    credit, links = turn.credit, turn.links
    return {
        "role": turn.role,
        "policy": turn.policy,
        "policy_version": turn.policy_version,
        "messages": [_message_to_json(message) for message in turn.messages],
        "text": turn.text,
        "finish": turn.finish,
        "step": links.step,
        "last": links.last,
        "branch": links.branch,
        "failure": reward_to_json(credit.failure),
        "advantage": credit.advantage,
        "prompt_ids": turn.prompt_ids.tolist(),
        "response_ids": turn.response_ids.tolist(),
        "logprobs": None if turn.logprobs is None else turn.logprobs.tolist(),
        **({} if turn.usage is None else {"usage": [turn.usage.prompt, turn.usage.reply]}),
        **({} if links.extends is None else {"extends": links.extends}),
        **({"guided": True} if turn.guided else {}),
        **({"limit": turn.limit} if turn.limit else {}),
        **(
            {"centralized_images": [i.digest for i in turn.centralized_images]}
            if turn.centralized_images
            else {}
        ),
        **_values_to_json(credit),
        **{name: ids.tolist() for name in IDS if (ids := getattr(turn, name)) is not None},
    }


def _message_to_json(message: Message) -> dict[str, Any]:
    parts = [_part_to_json(part) for part in message.parts]
    written = {"role": message.speaker, "content": message.content}
    return written | ({"parts": parts} if parts else {})


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case Image():
            return {"image": part.digest}
        case Table(columns, rows):
            return {"table": [list(columns), *map(list, rows)]}


def _message_from_json(data: Mapping[str, Any], load_image: ImageLoader) -> Message:
    parts = tuple(_part_from_json(part, load_image) for part in data.get("parts", ()))
    return Message(data["role"], data["content"], parts)


def _part_from_json(data: Mapping[str, Any], load_image: ImageLoader) -> Part:
    match dict(data):
        case {"image": str(digest)}:
            return load_image(digest)
        case {"table": [columns, *rows]}:
            return Table(tuple(columns), tuple(map(tuple, rows)))
    raise RecordError(f"unknown message part with keys {sorted(data)}")


def _values_to_json(credit: Credit) -> dict[str, Any]:
    """The fields that only some turns have. Non-finite numbers are written as null."""
    found: dict[str, Any] = {}
    for name in VALUES:
        values = getattr(credit, name)
        if values is not None:
            found[name] = [value if math.isfinite(value) else None for value in values.tolist()]
    if credit.counterfactual_value is not None:
        found["mixed"] = credit.counterfactual_value
    return found


def _credit_from_json(data: Mapping[str, Any]) -> Credit:
    values = {
        name: np.array([math.nan if value is None else value for value in data[name]], np.float32)
        for name in VALUES
        if name in data
    }
    return Credit(
        failure=_failure_from_json(data["failure"]),
        advantage=data["advantage"],
        counterfactual_value=data.get("mixed"),
        **values,
    )


def _turn_from_json(data: dict[str, Any], load_image: ImageLoader) -> Turn:
    logprobs = data["logprobs"]
    return Turn(
        role=data["role"],
        policy=data["policy"],
        messages=tuple(_message_from_json(m, load_image) for m in data["messages"]),
        prompt_ids=np.array(data["prompt_ids"], dtype=np.int32),
        response_ids=np.array(data["response_ids"], dtype=np.int32),
        logprobs=None if logprobs is None else np.array(logprobs, dtype=np.float32),
        text=data["text"],
        policy_version=data["policy_version"],
        finish=data["finish"],
        usage=Usage(*data["usage"]) if "usage" in data else None,
        guided=data.get("guided", False),
        limit=data.get("limit", ""),
        centralized_images=tuple(map(load_image, data.get("centralized_images", ()))),
        credit=_credit_from_json(data),
        links=TreeLinks(data["step"], data["last"], data["branch"], data.get("extends")),
        **{name: np.array(data[name], dtype=np.int32) for name in IDS if name in data},
    )


def _step_to_json(step: Step) -> dict[str, Any]:
    rewards = step.rewards
    return {
        "parent": step.parent,
        "turns": list(step.turns),
        "rewards": {
            "process": {role: reward_to_json(r) for role, r in rewards.process.items()},
            "agent": {role: reward_to_json(r) for role, r in rewards.agent.items()},
            "team": reward_to_json(rewards.team),
        },
        "metrics": dict(step.metrics),
        **({"submissions": _submissions_to_json(step)} if step.submissions else {}),
        **({"limit": step.limit} if step.limit else {}),
        **({"final": True} if step.final else {}),
    }


def _submissions_to_json(step: Step) -> dict[str, Any]:
    return {
        role: {
            "question": shown.question,
            "answer": shown.answer,
            "criteria": shown.criteria,
            "facts": dict(shown.facts),
        }
        for role, shown in step.submissions.items()
    }


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
    match reward:
        case None:
            return None
        case Scored(value):
            return value
        case Failed(reason, owner):
            return {"failed": reason, "owner": owner}


def _reward_from_json(data: float | dict[str, str]) -> Reward:
    if isinstance(data, dict):
        return Failed(data["failed"], cast("Any", data["owner"]))
    return Scored(data)


def _failure_from_json(data: dict[str, str] | None) -> Failed | None:
    return None if data is None else Failed(data["failed"], cast("Any", data["owner"]))
