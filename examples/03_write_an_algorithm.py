"""Credit by rank: an algorithm of one's own, in one class.

GRPO divides by the deviation of a group, so one huge reward makes all others look alike. Here only
the order counts: the worst play of a task gets -1, the best +1, the rest stand between, and plays
that were paid alike share a place.

pettingllms score runs/x/episodes.jsonl --algo examples/03_write_an_algorithm.py:RankGrpo
"""

import tempfile
from pathlib import Path

import pettingllms as pl
from pettingllms.algos import problem, reward_list, role_reward
from pettingllms.training.collect import collect


class RankGrpo(pl.Algorithm):
    """A = 2 (share of the other plays that were paid less, ties by half) - 1."""

    def groups(self, episodes):
        """Who is compared: what one role did in each play of one and the same problem."""
        return self.group_plays(episodes, lambda episode, role: (*problem(episode), role))

    def advantages(self, group):
        """What follows: plain numbers in, plain numbers out, one for each member."""
        rewards = reward_list(group)
        others = len(rewards) - 1
        return [2 * (beaten(rewards, one) - 0.5) / others - 1 for one in rewards]


def beaten(rewards, one):
    """How many were paid less; those that were paid alike (itself too) count half."""
    return sum(1.0 if other < one else 0.5 for other in rewards if other <= one)


def run(folder: Path) -> list[pl.Episode]:
    """Plays of a scripted player, credited by this file: no engine is needed to try it."""
    config = pl.parse_config(
        {
            "env": {"id": "plan_path-v1", "width": 4, "height": 4, "min_distance": 3},
            "algo": {"type": f"{__file__}:RankGrpo"},
            "policies": {"shared": {"kind": "full", "model": "any"}},  # a script stands in for it
            "rollout": {"num_tasks": 4, "num_samples": 6},
        }
    )
    collect(config, folder, stand_in="noisy")
    return list(pl.read_episodes(folder / "episodes.jsonl"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        episodes = run(Path(folder))
    plays = [one for one in episodes if one.task.id == episodes[0].task.id]
    grpo = pl.make_algorithm("grpo")
    print(f"plays of {plays[0].task.id}, and the planner's advantage by rank")
    for play in plays:
        paid = role_reward(play, "planner", grpo.reward)
        print(f"  {play.id}: paid {paid.value:5.2f}, {play.turns[0].credit.advantage:+.2f}")
    grpo.assign(plays)  # episodes are data: any algorithm can credit them again
    print("by grpo:", ", ".join(f"{play.turns[0].credit.advantage:+.2f}" for play in plays))
