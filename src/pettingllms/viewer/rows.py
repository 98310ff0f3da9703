"""Turn one line of an episode file into an index row and its searchable text."""

from typing import Any

from pettingllms.algos.credit import mean, role_reward
from pettingllms.config import RewardConfig
from pettingllms.types import Episode, Scored, episode_from_json

COLUMNS = {
    "id": "TEXT",
    "task": "TEXT",
    "env": "TEXT",
    "kind": "TEXT",
    "success": "REAL",
    "outcomes": "TEXT",
    "reward": "REAL",
    "rewards": "TEXT",
    "steps": "INTEGER",
    "replies": "INTEGER",
    "tokens": "INTEGER",
    "failed": "INTEGER",
    "failure": "TEXT",
    "advantage": "REAL",
    "roles": "TEXT",
}
"""Columns of the episode table."""
MAX_WORDS = 20_000
"""Characters of an episode that are searchable."""


def row_of(data: dict[str, Any], weights: RewardConfig) -> dict[str, Any]:
    """The row of an episode. Tokens are not decoded, to keep indexing fast."""
    turns = data["turns"]
    outline = episode_from_json({**data, "turns": []})
    roles = list(dict.fromkeys(turn["role"] for turn in turns))
    by_level = weights.model_copy(update={"overlong_buffer": 0})  # an outline has no lengths
    role_rewards = {role: role_reward(outline, role, by_level) for role in roles}
    rewards = {
        role: one.value - _penalty(data, outline, role, weights)
        for role, one in role_rewards.items()
        if isinstance(one, Scored)
    }
    success = data["success"]
    advantages = [abs(t["advantage"]) for t in turns if t["advantage"] is not None]
    return {
        "id": data["id"],
        "task": data["task"]["id"],
        "env": data["env"],
        "kind": _kind(data),
        "success": mean([float(one) for one in success.values()]) if success else None,
        "outcomes": success,
        "reward": mean(list(rewards.values())) if rewards else None,
        "rewards": rewards,
        "steps": len(outline.main_branch()),
        "replies": len(turns),
        "tokens": sum(_num_tokens(turn) for turn in turns) + _num_unrecorded(data),
        "failed": sum(turn["failure"] is not None for turn in turns),
        "failure": _reason(data),
        "advantage": max(advantages, default=None),
        "roles": {turn["role"]: turn["policy"] for turn in turns},
    }


def words_of(data: dict[str, Any]) -> str:
    """Searchable text of an episode: ids, roles, replies and failure reasons."""
    turns = data["turns"]
    parts = [data["id"], data["task"]["id"], data["env"], _reason(data) or ""]
    parts += dict.fromkeys(turn["role"] for turn in turns)
    parts += dict.fromkeys(turn["failure"]["failed"] for turn in turns if turn["failure"])
    parts += dict.fromkeys(turn["text"] for turn in turns)
    return "\n".join(parts)[:MAX_WORDS]


def _kind(data: dict[str, Any]) -> str:
    if any(turn["branch"] is not None for turn in data["turns"]):
        return "tree"
    main_branch = set()
    at = data["last"]
    while at is not None:
        main_branch.add(at)
        at = data["steps"][at]["parent"]
    return "linear" if len(main_branch) == len(data["steps"]) else "replay"


def _penalty(data: dict[str, Any], outline: Episode, role: str, weights: RewardConfig) -> float:
    """Length penalties of a role's replies on the main branch."""
    indices = (index for at in outline.main_branch() for index in outline.steps[at].turns)
    turns = (turn for turn in map(data["turns"].__getitem__, indices) if turn["role"] == role)
    return sum(weights.length_penalty(_num_tokens(turn)) for turn in turns)


def _reason(data: dict[str, Any]) -> str | None:
    """Why the episode failed, or else why its first failed turn did."""
    failures = [data["failure"], *(turn["failure"] for turn in data["turns"])]
    found = next((failure for failure in failures if failure), None)
    return None if found is None else f"{found['owner']}: {found['failed']}"


def _num_tokens(turn: dict[str, Any]) -> int:
    usage = turn.get("usage")
    return len(turn["response_ids"]) if usage is None else int(usage[1])


def _num_unrecorded(data: dict[str, Any]) -> int:
    """Tokens of continuations whose turns were not recorded."""
    has_unrecorded = any(not step["turns"] for step in data["steps"])
    return int(data["num_extra_tokens"]) if has_unrecorded else 0
