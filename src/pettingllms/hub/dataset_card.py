"""Dataset cards of recorded episodes."""

import json
from collections.abc import Mapping
from typing import Any

from pettingllms.hub.card import HOME, fenced, markdown, table
from pettingllms.hub.facts import RunFacts

SIZES = {
    1_000: "n<1K",
    10_000: "1K<n<10K",
    100_000: "10K<n<100K",
    1_000_000: "100K<n<1M",
    10_000_000: "1M<n<10M",
    100_000_000: "10M<n<100M",
    1_000_000_000: "100M<n<1B",
}
"""The hub's names of sizes, by their upper bounds."""
LOAD_TURNS = """\
from datasets import load_dataset

turns = load_dataset({repo})"""
LOAD_EPISODES = """\
import pettingllms as pl
from huggingface_hub import snapshot_download

folder = snapshot_download({repo}, repo_type="dataset")
episodes = pl.read_episodes(f"{{folder}}/episodes/step-000001")"""


def dataset_metadata(facts: RunFacts, num_turns: int) -> dict[str, Any]:
    """Metadata of a dataset card."""
    size = next((name for bound, name in SIZES.items() if num_turns < bound), "1B<n<10B")
    return {
        "pretty_name": f"Episodes of {facts.config.env.id}",
        "task_categories": ["text-generation"],
        "tags": ["pettingllms", "reinforcement-learning", "multi-agent"],
        "size_categories": [size],
        "configs": [
            {"config_name": "turns", "data_files": [{"split": "train", "path": "turns/*.jsonl"}]}
        ],
    }


def dataset_card(facts: RunFacts, repo: str, model: str, counts: Mapping[str, int]) -> str:
    """The page of the episodes of a run."""
    config, quoted = facts.config, json.dumps(repo)
    rows = [["environment", f"`{config.env.id}`"], ["algorithm", f"`{config.algo.type}`"]]
    rows += [[name, f"{count:,}"] for name, count in counts.items()]
    link = f"[{markdown(model)}](https://huggingface.co/{model})"
    parts = [
        f"# {markdown(repo.partition('/')[2])}",
        f"Episodes sampled while {link} was trained with [PettingLLMs]({HOME}).",
        table(["", ""], rows),
        (
            "`turns/` has one line per reply: step, episode, task, role, policy, prompt, reply, "
            "reward and advantage."
        ),
        fenced(LOAD_TURNS.format(repo=quoted), "python"),
        "`episodes/` has the same episodes with token ids and log-probs, as the run wrote them:",
        fenced(LOAD_EPISODES.format(repo=quoted), "python"),
        "Language models wrote the replies. They were not reviewed.",
    ]
    return "\n\n".join(parts) + "\n"
