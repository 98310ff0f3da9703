"""Reward by comparison: which of two stories is fresher? Nobody knows the one right story.

A judge of one's own is one class. Here it compares; the stories of one premise meet in pairs, and
what each is paid is the share of the others that it would beat. A second judge, the environment's
own rule, looks at the same stories and pays nobody: where the two drift apart, the first is being
pleased and the task is not done.
"""

import tempfile
from pathlib import Path

import pettingllms as pl
from pettingllms.training.collect import collect


class FreshWords(pl.Judge):
    """The better of two stories is the one with more words that the other does not have."""

    async def score(self, submission):
        """One story alone, from 0 to 1: the share of its words that come for the first time."""
        words = submission.answer.lower().split()
        if not words:
            return pl.Failed("there is no story", "judge")  # never a made-up number
        return pl.Scored(len(set(words)) / len(words))

    async def compare(self, one, other):
        """1 if the first is better, 0 if the second is, 0.5 if neither."""
        first, second = (set(shown.answer.lower().split()) for shown in (one, other))
        more, less = len(first - second), len(second - first)
        return pl.Scored(0.5 if more == less else float(more > less))


def run(folder: Path) -> list[pl.Episode]:
    """Two scripted writers tell four stories of each premise; the judge speaks; credit follows."""
    config = pl.parse_config(
        {
            "env": {"id": "story-v1"},
            "algo": {"type": "dr_grpo"},
            "policies": {"shared": {"kind": "full", "model": "any"}},  # a script stands in for it
            "judge": {
                "by": "fresh",
                "against": "group",
                "held_out": "rule",
                "judges": {"fresh": {"kind": f"{__file__}:FreshWords"}},
            },
            "rollout": {"num_tasks": 3, "num_samples": 4},
        }
    )
    collect(config, folder, stand_in="noisy")
    return list(pl.read_episodes(folder / "episodes.jsonl"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        episodes = run(Path(folder))
    rule = pl.make_env("story-v1").rule
    print("story      judge   rule  advantage")
    for episode in episodes:
        last = episode.steps[episode.last]
        (submission,) = last.submissions.values()
        judged, held_out = last.metrics["judged"], rule(submission).value
        advantage = episode.turns[0].credit.advantage
        print(f"{episode.id:10} {judged:5.2f}  {held_out:5.2f}      {advantage:+.2f}")
    print(f"\nThe last one:\n{submission.answer}")
