"""Rank-based GRPO: write an algorithm in one class.

GRPO divides by the standard deviation of a group, so one huge reward makes all others look alike.
Here only the order counts: the worst episode of a task gets -1, the best +1, and ties share a rank.

pettingllms score runs/x/episodes.jsonl --algo examples/03_write_an_algorithm.py:RankGrpo
"""

import tempfile

import pettingllms as pl


class RankGrpo(pl.Algorithm):
    """A = 2 (share of the other episodes with a lower reward, ties by half) - 1."""

    def groups(self, episodes):
        """Compare what one role did in all episodes of one task."""
        return self.group_episodes(episodes, lambda episode, role: (*pl.task_key(episode), role))

    def advantages(self, group):
        """One advantage per member of the group: plain numbers in, plain numbers out."""
        rewards = pl.reward_list(group)
        others = len(rewards) - 1
        return [2 * (rank(rewards, one) - 0.5) / others - 1 for one in rewards]


def rank(rewards, one):
    """Number of lower rewards; equal ones, itself included, count half."""
    return sum(1.0 if other < one else 0.5 for other in rewards if other <= one)


def run(folder: str) -> list[pl.Episode]:
    """Episodes of a scripted player with advantages by this algorithm; needs no engine."""
    found = pl.rollout(
        model="any",  # a scripted player answers for it
        player="noisy",
        env={"id": "plan_path-v1", "width": 4, "height": 4, "min_distance": 3},
        algo=RankGrpo,
        rollout={"num_tasks": 4, "num_samples": 6},
        out=folder,
    )
    return list(found.episodes())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        episodes = run(folder)
    episodes = [one for one in episodes if one.task.id == episodes[0].task.id]
    grpo = pl.make_algorithm("grpo")
    print(f"Episodes of {episodes[0].task.id}, and the planner's advantage by rank:")
    for episode in episodes:
        reward = pl.role_reward(episode, "planner", grpo.reward).value
        print(f"  {episode.id}: reward {reward:5.2f}, {episode.turns[0].credit.advantage:+.2f}")
    grpo.assign(episodes)  # episodes are data: any algorithm can assign credit again
    print("by GRPO:", ", ".join(f"{one.turns[0].credit.advantage:+.2f}" for one in episodes))
