"""Recorded episodes as logs of Inspect (UK AISI), which `inspect view` and `read_eval_log` read.

Each step of a run is one log and each episode one sample. Turns are model events with their role,
and every role has a reward and a success among the scores. The format is version 2 of Inspect's
JSON logs; Inspect itself is not needed to write it.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from pettingllms.algos.credit import role_reward
from pettingllms.config import RewardConfig, read_toml
from pettingllms.errors import ConfigError, ExchangeError
from pettingllms.types import (
    Episode,
    Message,
    Reward,
    Rewards,
    Scored,
    Turn,
    episode_files,
    read_episodes,
)
from pettingllms.types.episode_files import step_of

VERSION = 2
"""Version of the log format."""
NO_PARAMS: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a log states about the run."""

    name: str
    reward: RewardConfig = field(default_factory=RewardConfig)
    algo: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model by policy."""


def write_inspect_logs(path: Path, out: Path) -> list[Path]:
    """Write one log per step of a run, or one for an episode file; the files written."""
    files = episode_files(path)
    if not files:
        raise ConfigError(str(path), ["has no episodes; expected a run or an episode file"])
    facts = facts_of(path)
    by_step: dict[int | None, list[Path]] = defaultdict(list)
    for file in files:
        by_step[step_of(file)].append(file)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for step, some in by_step.items():
        episodes = [episode for file in some for episode in read_episodes(file)]
        if not episodes:
            continue
        time = datetime.fromtimestamp(some[0].stat().st_mtime, UTC)
        log = inspect_log(episodes, facts, step, time)
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S+00-00")
        task = re.sub(r"[^a-zA-Z0-9-]+", "-", log["eval"]["task"]).strip("-")
        target = out / f"{stamp}_{task}_{log['eval']['task_id']}.json"
        text = json.dumps(log, ensure_ascii=False, allow_nan=False)
        target.write_text(text, encoding="utf-8", errors="replace")
        written.append(target)
    if not written:
        raise ExchangeError(f"{path} has files without episodes; nothing was written")
    return written


def facts_of(path: Path) -> RunFacts:
    """What the config of a run says. Reads plain data only and imports nothing that it names."""
    config = path / "config.toml"
    if not config.is_file():
        return RunFacts(path.stem)
    data = read_toml(config)
    policies, algo = data.get("policies"), data.get("algo")
    try:
        reward = RewardConfig.model_validate(data.get("reward", {}))
    except ValidationError as error:
        raise ConfigError(str(config), [f"reward: {e['msg']}" for e in error.errors()]) from error
    models = {
        str(name): str(one.get("model", ""))
        for name, one in (policies if isinstance(policies, dict) else {}).items()
        if isinstance(one, dict)
    }
    kind = algo.get("type", "") if isinstance(algo, dict) else ""
    return RunFacts(path.resolve().name, reward, str(kind), models)


def inspect_log(
    episodes: Sequence[Episode], facts: RunFacts, step: int | None, time: datetime
) -> dict[str, Any]:
    """One log of episodes of one environment."""
    created = time.isoformat(timespec="seconds")
    env = episodes[0].env
    policies = sorted({turn.policy for one in episodes for turn in one.turns})
    numbers: dict[str, int] = defaultdict(int)
    samples = []
    for episode in episodes:
        numbers[episode.task.id] += 1
        samples.append(_sample(episode, numbers[episode.task.id], facts, created))
    num_failed = sum(episode.failure is not None for episode in episodes)
    name = env if step is None else f"{env} step {step}"
    models = {policy: facts.models.get(policy) or policy for policy in policies}
    roles = {turn.role: turn.policy for one in episodes for turn in one.turns}
    usage, role_usage = _usage_of(episodes, "policy"), _usage_of(episodes, "role")
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": _id(facts.name, step, "eval", created),
            "run_id": _id(facts.name, "run"),
            "created": created,
            "task": name,
            "task_id": _id(facts.name, step, "task"),
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "dataset": {
                "name": env,
                "samples": len(numbers),
                "sample_ids": list(numbers),
                "shuffled": False,
            },
            "model": ", ".join(dict.fromkeys(models.values())) or "none",
            "model_generate_config": {},
            "model_args": {},
            "model_roles": {role: {"model": models[policy]} for role, policy in roles.items()},
            "config": {"epochs": max(numbers.values())},
            "packages": {},
            "metadata": _without_none(
                {"run": facts.name, "algorithm": facts.algo or None, "step": step}
            ),
            "tags": ["pettingllms"],
        },
        "plan": {"name": "rollout", "steps": [], "config": {}},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples) - num_failed,
            "scores": list(_results(samples)),
        },
        "stats": {
            "started_at": created,
            "completed_at": created,
            "model_usage": usage,
            "role_usage": role_usage,
        },
        "samples": samples,
    }


def _sample(episode: Episode, epoch: int, facts: RunFacts, created: str) -> dict[str, Any]:
    turns = episode.main_turns() or episode.turns
    messages = [one for at, turn in enumerate(turns) for one in _exchange(episode, at, turn)]
    first = [
        _message(one, f"{episode.id}-input-{at}")
        for at, one in enumerate(turns[0].messages if turns else ())
    ]
    sample: dict[str, Any] = {
        "id": episode.task.id,
        "epoch": epoch,
        "input": first or "",
        "target": "",
        "messages": messages,
        "output": _output(turns[-1]) if turns else {"model": "", "choices": []},
        "scores": _scores(episode, facts.reward),
        "metadata": _without_none(
            {
                "episode": episode.id,
                "seed": str(episode.seed),
                "task": dict(episode.task.data),
                "answers": dict(episode.answers) or None,
                "num_turns": len(turns),
                "num_turns_of_branches": len(episode.turns) - len(turns) or None,
            }
        ),
        "store": {},
        "events": list(_events(episode, created)),
        "model_usage": _usage_of([episode], "policy"),
        "role_usage": _usage_of([episode], "role"),
        "started_at": created,
        "completed_at": created,
        "turn_count": len(turns),
        "attachments": {},
    }
    if episode.failure is not None:
        text = f"{episode.failure.owner}: {episode.failure.reason}"
        sample["error"] = {"message": text, "traceback": text, "traceback_ansi": text}
    if episode.limit:
        sample["limit"] = {"type": "custom", "limit": 0.0, "reason": episode.limit}
    return sample


def _exchange(episode: Episode, at: int, turn: Turn) -> Iterator[dict[str, Any]]:
    """The observation and the reply of a turn."""
    for number, one in enumerate(turn.messages):
        yield {
            **_message(one, f"{episode.id}-{at}-{number}"),
            "metadata": {"role": turn.role},
        }
    yield {
        "id": f"{episode.id}-{at}-reply",
        "role": "assistant",
        "content": turn.text,
        "source": "generate",
        "model": turn.policy,
        "metadata": {"role": turn.role},
    }


def _message(message: Message, name: str) -> dict[str, Any]:
    content: Any = message.text
    if message.images:
        urls = [f"data:image/png;base64,{b64encode(i.data).decode()}" for i in message.images]
        images = [{"type": "image", "image": url, "detail": "auto"} for url in urls]
        content = [*images, {"type": "text", "text": message.text}]
    source = None if message.speaker == "assistant" else "input"
    return _without_none(
        {"id": name, "role": message.speaker, "content": content, "source": source}
    )


def _output(turn: Turn) -> dict[str, Any]:
    stop = {"stop": "stop", "length": "max_tokens"}[turn.finish]
    reply = {"role": "assistant", "content": turn.text, "source": "generate", "model": turn.policy}
    return {
        "model": turn.policy,
        "choices": [{"message": reply, "stop_reason": stop}],
        "completion": turn.text,
        "usage": _usage([turn]),
        "metadata": _without_none(
            {
                "advantage": turn.credit.advantage,
                "policy_version": turn.policy_version,
                "logprob": turn.total_logprob() if turn.has_logprobs else None,
                "excluded": turn.credit.failure.reason if turn.credit.failure else None,
            }
        ),
    }


def _events(episode: Episode, created: str) -> Iterator[dict[str, Any]]:
    """Each step as a span of model calls, followed by its rewards."""
    at = 0

    def event(kind: str, **values: Any) -> dict[str, Any]:
        nonlocal at
        at += 1
        return {
            "event": kind,
            "uuid": f"{episode.id}-event-{at}",
            "timestamp": created,
            "working_start": float(at),
            **values,
        }

    entered = [(one, episode.steps[one].turns) for one in episode.main_branch()]
    in_steps = {turn for _, some in entered for turn in some}
    left = tuple(
        number
        for number, turn in enumerate(episode.turns)
        if turn.links.step is None and turn.links.branch is None and number not in in_steps
    )
    for number, (one, turns) in enumerate([*entered, *([(None, left)] if left else [])]):
        span = f"{episode.id}-step-{number}"
        name = f"step {number + 1}" if one is not None else "replies that entered no step"
        yield event("span_begin", id=span, span_id=span, type="step", name=name)
        for index in turns:
            turn = episode.turns[index]
            seen = [_message(m, f"{span}-{index}-{k}") for k, m in enumerate(turn.messages)]
            yield event(
                "model",
                span_id=span,
                model=turn.policy,
                role=turn.role,
                input=seen,
                tools=[],
                tool_choice="none",
                config=NO_PARAMS,
                output=_output(turn),
            )
        if one is not None:
            step = episode.steps[one]
            data = _without_none(
                {
                    "rewards": _rewards(step.rewards) or None,
                    "metrics": dict(step.metrics) or None,
                    "limit": step.limit or None,
                }
            )
            if data:
                yield event("info", span_id=span, source="environment", data=data)
        yield event("span_end", id=span, span_id=span)


def _rewards(rewards: Rewards) -> dict[str, Any]:
    found: dict[str, Any] = {
        "process": {role: _value(one) for role, one in rewards.process.items()},
        "agent": {role: _value(one) for role, one in rewards.agent.items()},
    }
    if rewards.team is not None:
        found["team"] = _value(rewards.team)
    return {level: value for level, value in found.items() if value != {}}


def _value(reward: Reward) -> float | str:
    return reward.value if isinstance(reward, Scored) else f"failed: {reward.reason}"


def _scores(episode: Episode, mix: RewardConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for role in dict.fromkeys([*(turn.role for turn in episode.turns), *episode.success]):
        reward = role_reward(episode, role, mix)
        if isinstance(reward, Scored):
            answer = episode.answers.get(role)
            found[f"{role} reward"] = _without_none({"value": reward.value, "answer": answer})
        if role in episode.success:
            found[f"{role} success"] = {"value": float(episode.success[role])}
    return found


def _results(samples: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for name in dict.fromkeys(name for sample in samples for name in sample["scores"]):
        values = [sample["scores"][name]["value"] for sample in samples if name in sample["scores"]]
        mean = {"name": "mean", "value": fmean(values), "params": {}}
        yield {
            "name": name,
            "scorer": name,
            "scored_samples": len(values),
            "unscored_samples": len(samples) - len(values),
            "params": {},
            "metrics": {"mean": mean},
        }


def _usage_of(episodes: Iterable[Episode], by: str) -> dict[str, Any]:
    turns: dict[str, list[Turn]] = defaultdict(list)
    for episode in episodes:
        for turn in episode.turns:
            turns[getattr(turn, by)].append(turn)
    return {name: _usage(some) for name, some in turns.items()}


def _usage(turns: Sequence[Turn]) -> dict[str, int]:
    prompt = sum(turn.num_prompt_tokens for turn in turns)
    reply = sum(turn.num_tokens for turn in turns)
    return {"input_tokens": prompt, "output_tokens": reply, "total_tokens": prompt + reply}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _id(*parts: object) -> str:
    """A stable id, so that a second export of a run replaces the first."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:22]
