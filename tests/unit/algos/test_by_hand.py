"""Each algorithm against numbers worked out by hand."""

import math

import pytest
from plays import LOST, advantages, linear, removals, rewards, siblings

from pettingllms.algos import make_algorithm
from pettingllms.algos.credit import role_reward, turn_reward
from pettingllms.algos.rae import Rae, RaeConfig
from pettingllms.config import RewardConfig
from pettingllms.registry import ALGORITHMS
from pettingllms.types import Episode, Failed, Scored, Step

near = pytest.approx


def bandits(task: str, *values: float) -> list[Episode]:
    """One-turn episodes of one task by role a, with team rewards."""
    return [linear(task, n, ("a", rewards(team=value))) for n, value in enumerate(values)]


def pair(task: str, number: int, a: float, b: float) -> Episode:
    """a then b, each with an agent reward at the end."""
    return linear(task, number, ("a", rewards()), ("b", rewards(agent={"a": a, "b": b})))


def test_levels_are_mixed_by_their_weights() -> None:
    episode = linear(
        "t",
        0,
        ("a", rewards(process={"a": 2.0})),
        ("b", rewards(process={"b": 10.0}, agent={"a": 3.0})),
        ("a", rewards(process={"a": 5.0}, agent={"a": 7.0, "b": 1.0}, team=100.0)),
    )
    mix = RewardConfig(process=1.0, agent=0.5, team=0.25)
    first, second, third = episode.turns
    assert turn_reward(episode, first, mix) == Scored(2 + 0.5 * (3 + 7) + 25)
    assert turn_reward(episode, second, mix) == Scored(10 + 0.5 * 1 + 25)
    assert turn_reward(episode, third, mix) == Scored(5 + 0.5 * 7 + 25)
    assert role_reward(episode, "a", mix) == Scored((2 + 5) + 0.5 * 10 + 25)


def test_a_missing_reward_is_a_failure_and_not_a_zero() -> None:
    episode = linear("t", 0, ("a", rewards()))
    assert isinstance(turn_reward(episode, episode.turns[0], RewardConfig()), Failed)
    assert isinstance(role_reward(episode, "a", RewardConfig()), Failed)


def test_a_failed_level_fails_the_turn_unless_it_has_no_weight() -> None:
    episode = linear("t", 0, ("a", rewards(process={"a": 1.0}, team=Failed("no judge", "judge"))))
    (turn,) = episode.turns
    assert turn_reward(episode, turn, RewardConfig()) == Failed("no judge", "judge")
    assert turn_reward(episode, turn, RewardConfig(team=0)) == Scored(1.0)


def test_grpo() -> None:
    plays = bandits("t", 1, 0, 0, 1) + bandits("u", 5, 9)
    make_algorithm("grpo").assign(plays)
    std = math.sqrt(4 * 0.25 / 3)
    assert [advantages(play)[0] for play in plays] == near(
        [0.5 / std, -0.5 / std, -0.5 / std, 0.5 / std, -2 / math.sqrt(8), 2 / math.sqrt(8)],
        rel=1e-5,
    )


def test_grpo_compares_all_roles_of_a_task_and_dr_mas_each_with_itself() -> None:
    plays = [pair("t", 0, 1, 10), pair("t", 1, 3, 20)]
    make_algorithm("grpo").assign(plays)
    spread = math.sqrt((7.5**2 + 5.5**2 + 1.5**2 + 11.5**2) / 3)
    assert [a for play in plays for a in advantages(play)] == near(
        [-7.5 / spread, 1.5 / spread, -5.5 / spread, 11.5 / spread], rel=1e-5
    )
    make_algorithm("dr_mas").assign(plays)
    half = math.sqrt(0.5)
    assert [a for play in plays for a in advantages(play)] == near(
        [-half, -half, half, half], rel=1e-5
    )


def test_dr_grpo_does_not_divide() -> None:
    plays = bandits("t", 1, 0, 0, 1)
    make_algorithm("dr_grpo").assign(plays)
    assert [advantages(play)[0] for play in plays] == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dr_mas", "rloo", "magrpo"])
@pytest.mark.parametrize("reward", [0.1, 0.7, -0.4])
def test_equal_rewards_give_advantages_of_exactly_zero(name: str, reward: float) -> None:
    """So that `learner.skip_zero` leaves them out. The mean of three times 0.1 is not 0.1."""
    plays = bandits("t", reward, reward, reward)
    make_algorithm(name).assign(plays)
    assert [advantages(play)[0] for play in plays] == [0, 0, 0]


def test_rloo_leaves_the_play_itself_out() -> None:
    plays = bandits("t", 1, 2, 6)
    make_algorithm("rloo").assign(plays)
    assert [advantages(play)[0] for play in plays] == near([1 - 4, 2 - 3.5, 6 - 1.5])


def test_at_grpo_compares_siblings_of_one_decision_alone() -> None:
    first = siblings("t", "a", [1.0, 2.0, 3.0])
    second = siblings("t", "a", [100.0, 300.0], number=1)
    make_algorithm("at_grpo").assign([first, second])
    assert advantages(first) == near([-1, 0, 1], abs=1e-5)
    assert advantages(second) == near([-math.sqrt(0.5), math.sqrt(0.5)], rel=1e-5)


def test_magrpo_credits_all_roles_with_the_teams_return_from_their_turn_on() -> None:
    plays = [
        linear("t", 0, ("a", rewards(team=1.0)), ("b", rewards(team=2.0))),
        linear("t", 1, ("a", rewards(team=5.0)), ("b", rewards(team=4.0))),
    ]
    make_algorithm("magrpo").assign(plays)
    assert advantages(plays[0]) == [3 - 6, 2 - 3]
    assert advantages(plays[1]) == [9 - 6, 4 - 3]


def test_reinforce_pp_compares_with_the_whole_batch_of_the_policy() -> None:
    plays = bandits("t", 1) + bandits("u", 2) + bandits("v", 3)
    make_algorithm("reinforce_pp").assign(plays)
    assert [advantages(play)[0] for play in plays] == near([-1, 0, 1], abs=1e-5)


def test_rae_moves_a_baseline_for_each_role_after_the_batch() -> None:
    rae = Rae(RaeConfig(decay=0.5))
    plays = [pair("t", 0, 1, -1), pair("u", 0, 3, -3)]
    rae.assign(plays)
    assert [advantages(play) for play in plays] == [[1, -1], [3, -3]]
    assert rae.state() == {"hand-v1/a": near(0.75 * 2), "hand-v1/b": near(0.75 * -2)}
    again = Rae(RaeConfig(decay=0.5))
    again.load_state(rae.state())
    (play,) = [pair("v", 0, 2, -2)]
    again.assign([play])
    assert advantages(play) == [near(0.5), near(-0.5)]


def test_every_turn_of_a_role_shares_the_advantage_of_the_play() -> None:
    plays = [
        linear("t", n, ("a", rewards()), ("a", rewards()), ("a", rewards(team=value)))
        for n, value in enumerate((0.0, 1.0))
    ]
    make_algorithm("rloo").assign(plays)
    assert [advantages(play) for play in plays] == [[-1, -1, -1], [1, 1, 1]]


def test_a_play_with_more_turns_weighs_no_more_in_the_baseline() -> None:
    long = linear("t", 0, *[("a", rewards())] * 5, ("a", rewards(team=1.0)))
    short = linear("t", 1, ("a", rewards(team=0.0)))
    make_algorithm("dr_grpo").assign([long, short])
    assert advantages(long) == [0.5] * 6
    assert advantages(short) == [-0.5]


def test_one_play_left_has_nothing_to_be_compared_with() -> None:
    plays = [*bandits("t", 1.0), linear("t", 1, ("a", rewards(team=0.0)), failure=LOST)]
    assert make_algorithm("grpo").assign(plays) == []
    assert [advantages(play) for play in plays] == [[None], [None]]


def test_policies_that_do_not_learn_are_in_no_baseline() -> None:
    plays = [pair("t", 0, 1, 100), pair("t", 1, 3, 900)]
    cls = type(make_algorithm("dr_grpo"))
    cls(policies=frozenset({"policy_a"})).assign(plays)
    assert [advantages(play) for play in plays] == [[-1, None], [1, None]]


def test_scoring_again_leaves_nothing_of_the_first_time() -> None:
    plays = bandits("t", 1, 0)
    make_algorithm("grpo").assign(plays)
    make_algorithm("at_grpo").assign(plays)
    assert [advantages(play) for play in plays] == [[None], [None]]


def test_the_roles_of_one_play_are_no_comparison() -> None:
    plays = [pair("t", 0, 1, -1), linear("t", 1, ("a", rewards(team=0.0)), failure=LOST)]
    for name in ("grpo", "dr_grpo", "dr_mas", "rloo"):
        assert make_algorithm(name).assign(plays) == []


def test_a_fine_that_only_some_siblings_had_is_compared() -> None:
    """Two legal replies have no reward, the third is fined."""
    episode = siblings("t", "a", [0.0, 0.0, -0.5])
    for step in episode.steps[:2]:
        step.rewards = rewards()
    make_algorithm("at_grpo").assign([episode])
    first, second, fined = advantages(episode)
    assert first == second == near(-fined / 2)
    assert fined < 0


def test_a_reward_missing_from_a_finished_episode_is_zero() -> None:
    """Both replies have continuations; only the first made a call, which costs agent reward."""
    episode = siblings("t", "a", [0.0, 0.0])
    for at, own in enumerate(episode.turns):
        episode.steps[at].rewards = rewards(agent={"a": -1.0} if at == 0 else None)
        episode.steps.append(Step(at, (), rewards(team=3.0)))
        own.links.last = 2 + at
    make_algorithm("at_grpo").assign([episode])
    called, silent = advantages(episode)
    assert called < 0 < silent


def test_siblings_are_compared_by_the_outcomes_that_all_have() -> None:
    """One reply ends the episode and has an outcome reward; the others have none yet."""
    episode = siblings("t", "a", [0.0, 0.0, 1.0])
    episode.steps[0].rewards = rewards(process={"a": 0.0}, team=1.0)
    make_algorithm("at_grpo").assign([episode])
    first, second, third = advantages(episode)
    assert first == second == near(-third / 2)
    for step in episode.steps:
        step.rewards = rewards(process={"a": 0.0}, team=step.turns[0] * 1.0)
    make_algorithm("at_grpo").assign([episode])
    assert advantages(episode) == near([-1, 0, 1], abs=1e-5)


def test_siblings_of_two_roles_that_act_together_are_two_groups() -> None:
    episode = siblings("t", "a", [1.0, 2.0])
    other = siblings("t", "b", [10.0, 30.0])
    for turn in other.turns:
        turn.links.step = turn.links.last = turn.links.step + len(episode.steps)
    episode.turns += other.turns
    episode.steps += other.steps
    groups = make_algorithm("at_grpo").assign([episode])
    assert [len(group.members) for group in groups] == [2, 2]


def test_plays_of_one_task_under_another_chance_are_another_problem() -> None:
    plays = [
        *(linear("t", n, ("a", rewards(team=v)), seed=1) for n, v in enumerate((1.0, 2.0))),
        *(linear("t", n, ("a", rewards(team=v)), seed=2) for n, v in enumerate((10.0, 20.0))),
    ]
    for number, play in enumerate(plays):
        play.id = f"t/{number}"
    make_algorithm("dr_grpo").assign(plays)
    assert [advantages(play)[0] for play in plays] == [-0.5, 0.5, -5, 5]


def test_reinforce_pp_has_a_batch_for_each_policy() -> None:
    plays = [pair("t", 0, 1, 100), pair("u", 0, 3, 900)]
    make_algorithm("reinforce_pp").assign(plays)
    half = math.sqrt(0.5)
    assert [advantages(play) for play in plays] == [
        [near(-half, rel=1e-5), near(-half, rel=1e-5)],
        [near(half, rel=1e-5), near(half, rel=1e-5)],
    ]


def test_magrpo_weighs_the_team_and_leaves_lonely_turns_out() -> None:
    plays = [
        linear("t", 0, ("a", rewards(team=1.0))),
        linear("t", 1, ("a", rewards(team=3.0)), ("a", rewards(team=5.0))),
    ]
    cls = type(make_algorithm("magrpo"))
    cls(reward=RewardConfig(team=0.5)).assign(plays)
    assert [advantages(play) for play in plays] == [[-1.75], [1.75, None]]
    assert cls(reward=RewardConfig(team=0)).assign(plays) == []


def test_counterfactual() -> None:
    episode = siblings("t", "a", [4.0, 1.0, LOST, 2.5])
    episode.last = 0  # the first reply is the one that was given
    make_algorithm("counterfactual").assign([episode])
    assert advantages(episode) == [4 - 1.75, 1 - 3.25, None, 0.0]
    (group,) = make_algorithm("counterfactual", train_alternatives=False).assign([episode])
    assert advantages(episode) == [4 - 1.75, None, None, None]
    assert [member.reward for member in group.members] == [4.0, 1.0, 2.5]


def test_counterfactual_has_nothing_to_say_of_a_reply_without_others() -> None:
    for values in ([4.0], [4.0, LOST]):
        episode = siblings("t", "a", values)
        assert make_algorithm("counterfactual").assign([episode]) == []
        assert set(advantages(episode)) == {None}


def test_remove_role() -> None:
    without = {"a": 1.0, "b": 4.0, "c": 6.0, "d": LOST}
    episode = removals("t", 0, ("a", "b", "c", "d", "e"), 4.0, without)
    make_algorithm("remove_role").assign([episode])
    needed, idle, harmful, lost, never_removed, *silent = advantages(episode)
    assert (needed, idle, harmful) == (3.0, 0.0, -2.0)
    assert lost is None
    assert never_removed is None
    assert silent == [None] * 3


def test_no_role_is_credited_with_a_fine_for_silence() -> None:
    fined = removals("t", 0, ("a", "b"), 4.0, {"a": 5.0}, fine=-10.0)
    make_algorithm("remove_role").assign([fined])
    assert fined.turns[0].credit.advantage == -1.0


def test_a_replay_without_rewards_has_return_zero_for_any_process_weight() -> None:
    for process in (0.0, 1.0):
        episode = removals("t", 0, ("a", "b"), 4.0, {"a": 0.0, "b": 0.0})
        for role in ("a", "b"):
            episode.steps[episode.without[role]].rewards = rewards()
        algorithm = make_algorithm("remove_role")
        algorithm.reward = RewardConfig(process=process)
        algorithm.assign([episode])
        assert advantages(episode)[:2] == near([4.0, 4.0])


def test_a_role_keeps_its_own_rewards_and_its_removal_forgoes_them() -> None:
    episode = removals("t", 0, ("a", "b"), 4.0, {"a": 3.0})
    episode.steps[0].rewards = rewards(process={"a": 0.5}, agent={"a": 0.25})
    make_algorithm("remove_role").assign([episode])
    assert episode.turns[0].credit.advantage == 0.5 + 0.25 + 4 - 3


def test_no_algorithm_trains_on_silent_turns() -> None:
    """The episode contains the silent turns of a replay, and other algorithms may read it too."""
    episodes = [removals("t", n, ("a", "b"), 4.0 + n, {"a": 1.0, "b": 2.0}) for n in range(2)]
    for name in ALGORITHMS.names():
        make_algorithm(name).assign(episodes)
        silent = [t for e in episodes for t in e.turns if t.policy_version is None]
        assert len(silent) == 4
        assert all(turn.credit.advantage is None for turn in silent), name
