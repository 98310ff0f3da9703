"""Influence shaping with any algorithm: by hand, in trees, and switched off bit for bit."""

import math
import random
from dataclasses import replace

import pytest
from plays import LOST, advantages, turn

from pettingllms.algos import Algorithm
from pettingllms.algos.influence import shape_episode
from pettingllms.config import InfluenceConfig, RewardConfig
from pettingllms.registry import ALGORITHMS
from pettingllms.types import Episode, Failed, Group, Rewards, Scored, Step, Task

near = pytest.approx
OFF = InfluenceConfig(alpha=0.0, gamma=0.0)
OPTIONS = InfluenceConfig(gamma=0.5, follow_right=0.25, lead_right=0.125)
NO_VERDICT = Failed("no verdict", "judge")
LINEAR = ("grpo", "dr_grpo", "rloo", "dr_mas", "reinforce_pp", "rae", "ppo", "mappo")


def debate(number: int, *rounds: dict[str, float | Failed]) -> Episode:
    """An episode in which all roles answer simultaneously."""
    episode = Episode(f"t/{number}", "hand-v1", Task("t"), 0)
    for at, scores in enumerate(rounds):
        first = len(episode.turns)
        episode.turns += [turn(role, step=at, last=len(rounds) - 1) for role in scores]
        process = {
            role: score if isinstance(score, Failed) else Scored(score)
            for role, score in scores.items()
        }
        entered = tuple(range(first, len(episode.turns)))
        episode.steps.append(Step(at - 1 if at else None, entered, Rewards(process)))
    episode.steps[-1].final = True
    episode.last = len(rounds) - 1
    return episode


def pair() -> list[Episode]:
    """In the second episode, the right answer of a brings b over."""
    return [
        debate(0, {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}),
        debate(1, {"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}),
    ]


def made(name: str, influence: InfluenceConfig | None, **options: object) -> Algorithm:
    cls = ALGORITHMS.load(name)
    config = cls.Config.model_validate({"type": name, **options})
    found: Algorithm = cls(config, RewardConfig(influence=influence))
    return found


def by_key(groups: list[Group]) -> dict[object, list[float]]:
    return {group.key[-1]: [member.reward for member in group.members] for group in groups}


def test_grpo_compares_the_sums_of_shaped_answers() -> None:
    """D of a: 1 + 0.5 + 0.125 and 1; of b: 0 + 0.5 and 1 + 0.25."""
    episodes = pair()
    (group,) = made("dr_grpo", OPTIONS).assign(episodes)
    assert [member.reward for member in group.members] == [0, 0, near(2.625), near(1.75)]
    (plain,) = made("dr_grpo", None).assign(episodes)
    assert [member.reward for member in plain.members] == [0, 0, 2, 1]


@pytest.mark.parametrize("name", ["ppo", "mappo"])
def test_ppo_without_discounting_credits_each_answer_with_its_own_shaped_reward(name: str) -> None:
    """As in MAPoRL, where each answer is a separate action; the critic is untrained."""
    episodes = pair()
    made(name, OPTIONS, gamma=0.0, standardize=False).assign(episodes)
    assert advantages(episodes[0]) == [0, 0, 0, 0]
    assert advantages(episodes[1]) == near([1.625, 0.5, 1.0, 1.25])


def test_ppo_with_discounting_adds_later_shaped_rewards() -> None:
    episodes = pair()
    made("ppo", OPTIONS, gamma=1.0, gae_lambda=1.0, standardize=False).assign(episodes)
    assert advantages(episodes[1]) == near([2.625, 1.75, 1.0, 1.25])


def tree() -> Episode:
    """Two sibling answers of a, each continued: after the first b becomes right, after the second
    it stays wrong. The main branch continues with the second."""
    episode = Episode("t/0", "hand-v1", Task("t"), 0)

    def step(parent: int | None, turns: tuple[int, ...], a: float, b: float) -> None:
        process = {"a": Scored(a), "b": Scored(b)}
        episode.steps.append(Step(parent, turns, Rewards(process), final=parent is not None))

    episode.turns = [
        turn("a", step=0, last=2, branch=0),
        turn("a", step=1, last=3, branch=1),
        turn("b", step=0, last=2, branch=0),
    ]
    step(None, (0, 2), 1.0, 0.0)
    step(None, (1, 2), 1.0, 0.0)
    step(0, (), 1.0, 1.0)  # a continuation, whose turns were dropped
    step(1, (), 1.0, 0.0)
    episode.last = 3
    return episode


def test_in_a_tree_each_sibling_is_shaped_along_its_own_continuation() -> None:
    episode = tree()
    shaped = shape_episode(episode, OPTIONS)
    first, second = (shaped.steps[at].rewards.process["a"] for at in (0, 1))
    assert first == Scored(1 + 0.5 * 1.0 + 0.125)
    assert second == Scored(1 + 0.5 * 0.5)
    groups = made("at_grpo", OPTIONS, standardize=False).assign([episode])
    assert by_key(groups)["a"] == [1.625, 1.25]
    assert episode.turns[0].credit.advantage == near(0.1875)
    made("at_grpo", None, standardize=False).assign([episode])
    assert episode.turns[0].credit.advantage == 0


def test_recorded_rewards_stay_and_turns_are_shared() -> None:
    episode = pair()[1]
    shaped = shape_episode(episode, OPTIONS)
    assert shaped.turns is episode.turns
    assert episode.steps[0].rewards.process["a"] == Scored(1.0)
    assert shaped.steps[0].rewards.process["a"] == Scored(1.625)
    assert replace(shaped, steps=episode.steps).steps == episode.steps


def test_shaping_twice_or_assigning_twice_changes_nothing() -> None:
    episodes, algorithm = pair(), made("grpo", OPTIONS)
    algorithm.assign(episodes)
    before = [advantages(episode) for episode in episodes]
    algorithm.assign(episodes)
    assert [advantages(episode) for episode in episodes] == before


def test_a_failed_verdict_is_excluded_from_all_rewards() -> None:
    episode = debate(1, {"a": 1.0, "b": NO_VERDICT}, {"a": 1.0, "b": 1.0})
    shaped = shape_episode(episode, OPTIONS)
    assert shaped.steps[0].rewards.process == {"a": Scored(1.5), "b": NO_VERDICT}
    episode.turns[3].credit.failure = LOST
    later = shape_episode(episode, OPTIONS).steps[0].rewards.process["a"]
    assert later == Scored(1 + 0.5 * 1.0)


def random_debates(seed: int) -> list[Episode]:
    rng = random.Random(seed)
    return [
        debate(n, *({r: rng.choice([0.0, 1.0, rng.random()]) for r in "abc"} for _ in range(3)))
        for n in range(4)
    ]


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("seed", range(5))
def test_switched_off_it_changes_no_bit_of_any_advantage(name: str, seed: int) -> None:
    plain, off, on = (random_debates(seed) for _ in range(3))
    made(name, None).assign(plain)
    made(name, OFF).assign(off)
    made(name, InfluenceConfig()).assign(on)
    assert list(map(advantages, plain)) == list(map(advantages, off))
    assert list(map(advantages, plain)) != list(map(advantages, on))


def test_switched_off_it_changes_no_bit_in_a_tree() -> None:
    plain, off = tree(), tree()
    plain.steps[0].rewards = off.steps[0].rewards = Rewards({"a": Scored(0.3), "b": Scored(0.1)})
    made("at_grpo", None).assign([plain])
    made("at_grpo", OFF).assign([off])
    assert advantages(plain) == advantages(off)
    assert not all(math.isclose(one or 0.0, 0.0) for one in advantages(plain))


@pytest.mark.parametrize("options", [{}, {"gamma": 0.0, "alpha": 0.0}])
def test_debate_is_the_same_shaping_with_groups_by_role_and_round(
    options: dict[str, float],
) -> None:
    """Over one round, that is GRPO per role with the same shaping."""
    one, other = random_debates(1), random_debates(1)
    for episode in (*one, *other):
        episode.turns, episode.steps, episode.last = episode.turns[:3], episode.steps[:1], 0
        for each in episode.turns:
            each.links.last = 0
    made("debate", None, **options).assign(one)
    made("dr_mas", InfluenceConfig(**options)).assign(other)
    assert list(map(advantages, one)) == list(map(advantages, other))
