import math

import numpy as np
import pytest
from plays import LOST, linear, overwrite, rewards, siblings, turn
from toys import Relay, by_chance, roll

from pettingllms.config import RunConfig, parse_config
from pettingllms.runs.metrics import Metrics, episode_metrics, flatten
from pettingllms.runs.summary import alarm, learner_tokens, summarize
from pettingllms.training.curriculum import success_share
from pettingllms.types import Episode, SampleRequest


def team(**sections) -> RunConfig:
    """a learns, b is scripted."""
    base = {
        "env": {"id": "toys:Relay"},
        "algo": {"type": "grpo"},
        "policies": {"policy_a": {"kind": "full", "model": "m"}, "policy_b": {"kind": "scripted"}},
        "roles": {"a": "policy_a", "b": "policy_b"},
    }
    return parse_config({**base, **sections})


def measured(episodes: list[Episode], config: RunConfig) -> Metrics:
    return episode_metrics(episodes, config, summarize(episodes, config))


def alarm_of(episodes: list[Episode], config: RunConfig) -> str | None:
    return alarm(summarize(episodes, config), config)


def test_each_level_is_the_mean_of_the_episodes_with_a_reward_of_it() -> None:
    config = team(reward={"process": 0.5, "team": 2.0})
    episodes = [
        linear("t", 0, ("a", rewards({"a": 4.0})), ("b", rewards(team=1.0))),
        linear("t", 1, ("a", rewards({"a": 2.0})), ("b", rewards(team=3.0))),
        linear("t", 2, ("a", rewards({"a": 100.0})), failure=LOST),
    ]
    roles = measured(episodes, config)["roles"]
    assert roles["a"]["reward_process"] == 3.0
    assert roles["a"]["reward_team"] == 2.0
    assert roles["a"]["reward"] == 0.5 * 3.0 + 2.0 * 2.0
    assert roles["b"]["reward"] == 2.0 * 2.0
    assert "reward_process" not in roles["b"]
    assert "reward_agent" not in roles["a"]


def test_a_level_without_weight_is_shown_all_the_same() -> None:
    config = team(reward={"process": 0.0})
    roles = measured([linear("t", 0, ("a", rewards({"a": 4.0}, team=1.0)))], config)["roles"]
    assert roles["a"]["reward_process"] == 4.0
    assert roles["a"]["reward"] == 1.0


def test_a_failed_episode_reached_no_aim() -> None:
    episodes = [linear("t", n, ("a", rewards(team=1.0))) for n in range(3)]
    episodes[0].success = {"a": True, "b": False}
    episodes[1].success = {"a": True, "b": True}
    episodes.append(linear("t", 3, ("a", rewards()), failure=LOST))
    roles = measured(episodes, team())["roles"]
    assert roles["a"]["success"] == 2 / 4
    assert roles["b"]["success"] == 1 / 4


def test_turns_are_counted_by_role_and_what_was_never_written_has_no_length() -> None:
    episode = linear("t", 0, *[("a", rewards(team=1.0))] * 3, ("b", rewards(team=1.0)))
    overwrite(episode.turns[0], response_ids=np.arange(6, dtype=np.int32))
    overwrite(episode.turns[0], finish="length")
    episode.turns[3].credit.failure = LOST
    silent = turn("a", failure=LOST)
    overwrite(silent, response_ids=np.empty(0, dtype=np.int32), policy_version=None)
    episode.turns.append(silent)
    roles = measured([episode], team())["roles"]
    assert roles["a"]["num_turns"] == 4
    assert roles["a"]["failed_share"] == 1 / 4
    assert roles["a"]["reply_tokens"] == (6 + 2 + 2) / 3
    assert roles["a"]["cut_share"] == 1 / 3
    assert roles["b"]["failed_share"] == 1


def test_policies_that_learn_are_measured_by_what_they_learn_from() -> None:
    episode = linear("t", 0, *[("a", rewards(team=1.0))] * 4, ("b", rewards(team=1.0)))
    for at, advantage in enumerate([0.0, -1.5, 0.5, None]):
        episode.turns[at].credit.advantage = advantage
    overwrite(episode.turns[0], logprobs=np.array([-1.0, -2.0], dtype=np.float32))
    overwrite(episode.turns[3], logprobs=np.array([-0.5, -0.5], dtype=np.float32))
    policies = measured([episode], team())["policies"]
    assert policies == {
        "policy_a": {
            "trained_turns": 3,
            "trained_tokens": 6,
            "mean_abs_advantage": pytest.approx(2 / 3),
            "zero_share": pytest.approx(1 / 3),
            "sampler_entropy": 1.0,
            "distinct_prompts": 1,
            "distinct_replies": 1.0,
            "repetition": 0.0,
        }
    }


def test_values_that_were_not_measured_are_left_out() -> None:
    metrics = measured([], team())
    assert metrics["roles"] == {"a": {"num_turns": 0}, "b": {"num_turns": 0}}
    assert metrics["policies"] == {"policy_a": {"trained_turns": 0, "trained_tokens": 0}}


def test_the_rollout_as_a_whole() -> None:
    episodes = [linear("t", 0, ("a", rewards(team=1.0))), linear("t", 1, failure=LOST)]
    episodes[0].num_extra_tokens = 5
    episodes[0].dropped_tokens = {"policy_a": 5}
    assert measured(episodes, team())["rollout"] == {
        "num_episodes": 2,
        "failed_episodes": 1,
        "cut_episodes": 0,
        "tokens": 2 + 5,
        "extra_tokens": 5,
        "uncompared_decisions": 0,
    }


def test_flat_keys_say_where_a_number_stands() -> None:
    metrics = measured(roll(Relay()), team())
    flat = flatten({**metrics, "time": {"step": 2}, "eval": {"x": {"y": {"z": 1.5}}}})
    assert flat["roles/a/reward"] == metrics["roles"]["a"]["reward"]
    assert flat["rollout/num_episodes"] == 9
    assert flat["time/step"] == 2
    assert flat["eval/x/y/z"] == 1.5
    assert all(type(value) is float and math.isfinite(value) for value in flat.values())
    with pytest.raises(TypeError, match="'name' is 'planner'"):
        flatten({"name": "planner"})


def test_no_alarm_if_all_is_well() -> None:
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    episode.turns[0].credit.advantage = 0.0
    assert alarm_of([episode], team()) is None


def test_an_alarm_names_the_commonest_failure() -> None:
    episodes = [linear("t", n, ("a", rewards()), failure=LOST) for n in range(3)]
    text = alarm_of(episodes, team())
    assert text is not None
    assert "3 turns and 3 episodes failed, more than rollout.max_failure_share = 10.0%" in text
    assert text.endswith("Most often (3 times): sampler: lost")


def test_a_tree_that_was_cut_has_a_reason_though_no_turn_of_it_failed() -> None:
    episodes = roll(Relay(), type="tree", max_steps=2, on_limit="exclude")
    assert all(episode.failure for episode in episodes)
    assert not any(turn.credit.failure for episode in episodes for turn in episode.turns)
    text = alarm_of(episodes, team())
    assert text is not None
    assert "Most often (3 times): limit: cut after 2 steps (rollout.max_steps)" in text


def test_an_alarm_if_many_episodes_are_cut() -> None:
    cut = roll(Relay(), num_tasks=1, num_samples=3, max_steps=2)
    whole = roll(Relay(), num_tasks=1, num_samples=3)
    text = alarm_of(cut + whole, team())
    assert text is not None
    assert "3 of 6 episodes were cut at a limit, more than rollout.max_cut_share = 20.0%" in text
    assert text.endswith("Most often (3 times): cut after 2 steps (rollout.max_steps)")
    for one in (one for episode in cut + whole for one in episode.turns):
        one.credit.advantage = 0.0
    few = team(rollout={"max_cut_share": 0.5})
    assert alarm_of(cut + whole, few) is None
    found = episode_metrics(cut + whole, few, summarize(cut + whole, few))
    assert found["rollout"]["cut_episodes"] == 3.0
    assert found["rollout"]["failed_episodes"] == 0.0
    assert found["roles"]["a"]["limit_share"] == 0.0
    assert found["roles"]["a"]["success"] == 0.5


def test_alarm_if_no_turn_can_be_compared_but_a_policy_learns() -> None:
    episodes = [linear("t", 0, ("a", rewards(team=1.0)))]
    assert alarm_of(episodes, team()) == (
        "No turn could be compared, so there is nothing to learn from."
    )
    scripted = {"policy_a": {"kind": "scripted"}, "policy_b": {"kind": "scripted"}}
    assert alarm_of(episodes, team(policies=scripted)) is None


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept"])
def test_tokens_of_learners_are_theirs_alone_in_continuations_too(keep: bool) -> None:
    def answer(request: SampleRequest, number: int) -> str:
        return "7" * 20 if request.role == "b" else by_chance(request, number)

    options = {"type": "tree", "continuation": "episode", "keep_continuations": keep}
    episodes = roll(Relay(), answer=answer, **options)
    kept = roll(Relay(), answer=answer, **{**options, "keep_continuations": True})
    turns = [turn for episode in kept for turn in episode.turns]
    own = sum(turn.num_tokens for turn in turns if turn.policy == "policy_a")
    assert learner_tokens(episodes, team()) == own
    assert summarize(episodes, team()).num_tokens == sum(turn.num_tokens for turn in turns) > own


@pytest.mark.parametrize("algo", ["counterfactual", "remove_role"])
def test_tokens_of_replays_count_once_whether_their_turns_are_kept_or_not(algo: str) -> None:
    config = team(algo={"type": algo})
    options = {"type": "replay", "replay": config.rollout.replay}
    episodes = roll(Relay(), **options)
    kept = roll(Relay(), keep_continuations=True, **options)
    assert all(episode.num_extra_tokens for episode in episodes)
    turns = [turn for episode in kept for turn in episode.turns]
    own = sum(turn.num_tokens for turn in turns if turn.policy == "policy_a")
    for played in (episodes, kept):
        assert learner_tokens(played, config) == own
        assert summarize(played, config).num_tokens == sum(turn.num_tokens for turn in turns)


def test_success_of_best_branches_is_not_reported_as_the_policys() -> None:
    """At four siblings a success of 0.4 was reported as 0.87."""
    tree = linear("t", 0, ("a", rewards(team=1.0)))
    tree.success, tree.best_of = {"a": True, "b": True}, 4
    found = measured([tree], team())["roles"]["a"]
    assert "success" not in found
    assert found["best_of_k_success"] == 1.0
    tree.first_success = {"a": 0.25, "b": 0.5}
    roles = measured([tree], team())["roles"]
    assert [roles[role]["success"] for role in ("a", "b")] == [0.25, 0.5]
    assert success_share([tree], ["a"]) == 0.25
    assert success_share([tree], ["a", "b"]) == 0.375


def test_decisions_that_were_not_compared_are_counted() -> None:
    tree = siblings("t", "a", [0.0, 0.5])
    tree.steps[0].final = True
    assert measured([tree], team())["rollout"]["uncompared_decisions"] == 1
    tree.steps[1].final = True
    assert measured([tree], team())["rollout"]["uncompared_decisions"] == 0
