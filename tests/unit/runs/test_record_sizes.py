"""Shards take at most a fifth of the bytes of JSON lines, and no more time to write."""

import time
from pathlib import Path

import pytest
from recorded import recorded

from pettingllms.runs.episode_summary import summarize_with
from pettingllms.types import episode_line, read_episodes, write_episodes

RUNS = {
    "short replies": (
        "tic_tac_toe_self_play.toml",
        ["rollout.num_tasks=16", "rollout.keep_continuations=true"],
        {},
    ),
    "long dialogs": (
        "werewolf_sides.toml",
        ["rollout.num_tasks=4", "rollout.num_samples=2"],
        {"num_words": 100},
    ),
    "trees": ("plan_path_team.toml", ["rollout.num_tasks=24"], {"player": "noisy"}),
}
TIMES = 3
"""Each is timed this often, in turns, and the shortest time counts."""


@pytest.mark.parametrize("name", RUNS)
def test_a_shard_takes_a_fifth_of_the_bytes_and_no_more_time(name: str, tmp_path: Path) -> None:
    config_name, overrides, options = RUNS[name]
    config, episodes = recorded(config_name, *overrides, **options)
    lines, shard = tmp_path / "e.jsonl", tmp_path / "e.zip"
    seconds: dict[Path, float] = {}
    for _ in range(TIMES):
        for path in (lines, shard):
            start = time.process_time()
            write_episodes(path, episodes, summarize_with(config.reward))
            spent = time.process_time() - start
            seconds[path] = min(spent, seconds.get(path, spent))
    assert shard.stat().st_size * 5 <= lines.stat().st_size
    assert seconds[shard] < 1.2 * seconds[lines], "measured: 0.4 to 0.7"
    again = map(episode_line, read_episodes(shard))
    assert list(again) == [episode_line(episode) for episode in episodes]
