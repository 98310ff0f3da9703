"""Rewards from pairwise comparisons: which of two stories has fresher words?

Write a judge in one class. Here it compares the stories of one premise in pairs, and the reward of
a story is the share of the others that it beats. A held-out judge, the environment's rule, scores
the same stories and gives no reward: if the two drift apart, the policy is exploiting the judge.
"""

import tempfile

import pettingllms as pl


class FreshWords(pl.Judge):
    """Prefers the story with more words that the other story does not have."""

    async def score(self, submission):
        """One story alone, from 0 to 1: the share of distinct words."""
        words = submission.answer.lower().split()
        if not words:
            return pl.Failed("there is no story", "judge")  # never a made-up number
        return pl.Scored(len(set(words)) / len(words))

    async def compare(self, one, other):
        """1 if the first is better, 0 if the second is, 0.5 for a tie."""
        first, second = (set(story.answer.lower().split()) for story in (one, other))
        more, less = len(first - second), len(second - first)
        return pl.Scored(0.5 if more == less else float(more > less))


def run(folder: str) -> list[pl.Episode]:
    """Scripted players write four stories per premise; the judge compares them."""
    found = pl.rollout(
        model="any",  # a scripted player answers for it
        player="noisy",
        env="story-v1",
        algo="dr_grpo",
        judge={
            "by": "fresh",
            "against": "group",
            "held_out": "rule",
            "judges": {"fresh": {"kind": FreshWords}},
        },
        rollout={"num_tasks": 3, "num_samples": 4},
        out=folder,
    )
    return list(found.episodes())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        episodes = run(folder)
    rule = pl.make_env("story-v1").rule
    print("story      judge   rule  advantage")
    for episode in episodes:
        last = episode.steps[episode.last]
        (submission,) = last.submissions.values()
        judged, held_out = last.metrics["judged"], rule(submission).value
        advantage = episode.turns[0].credit.advantage
        print(f"{episode.id:10} {judged:5.2f}  {held_out:5.2f}      {advantage:+.2f}")
    print(f"\nThe last story:\n{submission.answer}")
