"""Recorded episodes as trajectories of ATIF, the Agent Trajectory Interchange Format, version 1.8.

Each episode is one document. Its steps are the turns of all roles, in order: the messages of an
observation, then the reply with its token ids and log-probs. `extra.role` names the role.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pettingllms.algos.credit import role_reward
from pettingllms.errors import ConfigError
from pettingllms.exchange.inspect_log import RunFacts, facts_of
from pettingllms.types import Episode, Message, Scored, Turn, episode_files, read_episodes
from pettingllms.types.episode_files import step_of

SCHEMA = "ATIF-v1.8"
LAYOUT = "1"
"""Version of how episodes are written; the environment's own version is part of its name."""
SOURCES = {"system": "system", "user": "user", "assistant": "agent"}


def write_trajectories(path: Path, out: Path) -> int:
    """Write one document per episode, in a folder per step; the number of episodes."""
    files = episode_files(path)
    if not files:
        raise ConfigError(str(path), ["has no episodes; expected a run or an episode file"])
    facts, num_written = facts_of(path), Counter[str]()
    for file in files:
        step = step_of(file)
        name = "episodes" if step is None else f"step-{step:06d}"
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        for episode in read_episodes(file):
            text = json.dumps(trajectory(episode, facts), ensure_ascii=False, allow_nan=False)
            target = folder / f"episode-{num_written[name]:06d}.json"
            target.write_text(text, encoding="utf-8", errors="replace")
            num_written[name] += 1
    return num_written.total()


def trajectory(episode: Episode, facts: RunFacts) -> dict[str, Any]:
    """An episode as one document."""
    turns = episode.main_turns() or episode.turns
    policies = list(dict.fromkeys(turn.policy for turn in turns))
    found = {role: role_reward(episode, role, facts.reward) for role in episode.success}
    rewards = {role: one.value for role, one in found.items() if isinstance(one, Scored)}
    extra: dict[str, Any] = {
        "task": episode.task.id,
        "seed": str(episode.seed),
        "rewards": rewards,
        "success": dict(episode.success),
    }
    if episode.failure is not None:
        extra["failure"] = f"{episode.failure.owner}: {episode.failure.reason}"
    if episode.limit:
        extra["limit"] = episode.limit
    steps = [one for turn in turns for one in _steps(turn, facts)]
    return {
        "schema_version": SCHEMA,
        "session_id": facts.name,
        "trajectory_id": episode.id,
        "agent": {
            "name": episode.env,
            "version": LAYOUT,
            "model_name": ", ".join(facts.models.get(one) or one for one in policies) or "none",
        },
        "steps": [{"step_id": number, **one} for number, one in enumerate(steps, start=1)],
        "final_metrics": {
            "total_prompt_tokens": sum(turn.num_prompt_tokens for turn in turns),
            "total_completion_tokens": sum(turn.num_tokens for turn in turns),
            "total_steps": len(steps),
        },
        "extra": extra,
    }


def _steps(turn: Turn, facts: RunFacts) -> Iterator[dict[str, Any]]:
    for message in turn.messages:
        yield _observed(message, turn.role)
    metrics: dict[str, Any] = {
        "prompt_tokens": turn.num_prompt_tokens,
        "completion_tokens": turn.num_tokens,
    }
    if turn.logprobs is not None:  # without them, the ids are bytes and not tokens
        metrics["prompt_token_ids"] = turn.prompt_ids.tolist()
        metrics["completion_token_ids"] = turn.response_ids.tolist()
        metrics["logprobs"] = turn.logprobs.tolist()
    extra: dict[str, Any] = {"role": turn.role, "policy": turn.policy}
    if turn.credit.advantage is not None:
        extra["advantage"] = turn.credit.advantage
    if turn.policy_version is not None:
        extra["policy_version"] = turn.policy_version
    yield {
        "source": "agent",
        "model_name": facts.models.get(turn.policy) or turn.policy,
        "message": turn.text,
        "metrics": metrics,
        "llm_call_count": 1,
        "extra": extra,
    }


def _observed(message: Message, role: str) -> dict[str, Any]:
    """A message of an observation. Images are left out: the format refers to files."""
    step: dict[str, Any] = {
        "source": SOURCES[message.speaker],
        "message": message.text,
        "extra": {"role": role},
    }
    if message.images:
        step["extra"]["images"] = [image.digest for image in message.images]
    if message.speaker == "assistant":
        step["is_copied_context"] = True
    return step
