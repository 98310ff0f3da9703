"""Turn one line of an episode file into an index row and its searchable text."""

from typing import Any

from pettingllms.config import RewardConfig
from pettingllms.runs.episode_summary import KINDS, summarize_line

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
    numbers, texts = summarize_line(data, weights)
    row = {"id": data["id"], **texts, **numbers, "kind": KINDS[int(numbers["kind"] or 0)]}
    return {name: row[name] for name in COLUMNS}


def words_of(data: dict[str, Any]) -> str:
    """Searchable text of an episode: ids, roles, replies and failure reasons."""
    turns = data["turns"]
    parts = [data["id"], data["task"]["id"], data["env"], _reason(data) or ""]
    parts += dict.fromkeys(turn["role"] for turn in turns)
    parts += dict.fromkeys(turn["failure"]["failed"] for turn in turns if turn["failure"])
    parts += dict.fromkeys(turn["text"] for turn in turns)
    return "\n".join(parts)[:MAX_WORDS]


def _reason(data: dict[str, Any]) -> str | None:
    """Why the episode failed, or else why its first failed turn did."""
    failures = [data["failure"], *(turn["failure"] for turn in data["turns"])]
    found = next((failure for failure in failures if failure), None)
    return None if found is None else f"{found['owner']}: {found['failed']}"
