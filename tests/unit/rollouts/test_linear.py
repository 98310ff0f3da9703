from dataclasses import replace

import numpy as np
import pytest
from toys import AnsweringSampler, Duel, Relay, by_chance, play_with, roll

from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import ByteRenderer, scripted_player
from pettingllms.types import (
    Failed,
    Scored,
    episode_line,
)


class Chatty(Relay):
    """A relay with a script that says much."""

    players = {"long": lambda env, state, role, rng: "1" * 300}


def test_an_episode_is_a_chain_of_steps_with_the_sampled_ids() -> None:
    episode = roll(Relay(), lambda request, number: "4", num_tasks=1, num_samples=1)[0]
    assert [turn.role for turn in episode.turns] == ["a", "b", "a", "b"]
    assert [step.parent for step in episode.steps] == [None, 0, 1, 2]
    assert episode.main_branch() == [0, 1, 2, 3]
    assert [turn.links.step for turn in episode.turns] == [0, 1, 2, 3]
    assert {turn.links.last for turn in episode.turns} == {3}
    assert all(bytes(turn.response_ids.tolist()) == b"4" for turn in episode.turns)
    assert all(turn.logprobs is not None and len(turn.logprobs) == 1 for turn in episode.turns)
    assert {turn.policy_version for turn in episode.turns} == {7}
    assert episode.success == {"a": True, "b": True}
    assert episode.failure is None


def test_prompt_ids_are_what_the_sampler_was_given() -> None:
    sampler = AnsweringSampler(lambda request, number: "1")
    players = {role: Player(role, sampler, ByteRenderer()) for role in ("a", "b")}
    episode = play_with(Relay(), players, num_tasks=1, num_samples=1)[0]
    for turn, request in zip(episode.turns, sampler.requests, strict=True):
        assert turn.prompt_ids is request.prompt_ids
        with pytest.raises(ValueError, match="read-only"):
            turn.prompt_ids[0] = 0


def test_episodes_of_one_task_start_from_one_state_and_differ_by_their_replies() -> None:
    episodes = roll(Relay(), num_tasks=2, num_samples=6)
    by_task = {task: [e for e in episodes if e.task.id == task] for task in ("train-0", "train-1")}
    for plays in by_task.values():
        assert len(plays) == 6
        assert len({play.seed for play in plays}) == 1
        assert len({play.turns[0].messages for play in plays}) == 1
        assert len({tuple(turn.text for turn in play.turns) for play in plays}) > 1
    assert by_task["train-0"][0].seed != by_task["train-1"][0].seed


def test_roles_that_act_together_are_asked_together_and_step_once() -> None:
    episode = roll(Duel(), {"a": _always("3"), "b": _always("5")}, num_tasks=1, num_samples=1)[0]
    assert len(episode.steps) == 1
    assert episode.steps[0].turns == (0, 1)
    assert "3" not in episode.turns[1].messages[0].content.split("said")[1]
    assert {role: reward.value for role, reward in episode.steps[0].rewards.agent.items()} == {
        "a": -2.0,
        "b": 2.0,
    }


def test_the_same_seed_gives_the_same_episodes_at_any_concurrency() -> None:
    wide = roll(Relay(), num_tasks=5, num_samples=4, max_concurrent=1000)
    narrow = roll(Relay(), num_tasks=5, num_samples=4, max_concurrent=1)
    other = roll(Relay(), num_tasks=5, num_samples=4, seed=1)
    assert [*map(episode_line, wide)] == [*map(episode_line, narrow)]
    assert [*map(episode_line, wide)] != [*map(episode_line, other)]


def test_a_play_over_the_turn_limit_is_cut_and_none_of_its_turns_is_trained_on() -> None:
    episode = roll(Relay(), num_tasks=1, num_samples=1, max_steps=3, on_limit="exclude")[0]
    assert episode.failure == Failed("cut after 3 steps (rollout.max_steps)", "limit")
    assert len(episode.turns) == 3
    assert all(turn.credit.failure == episode.failure for turn in episode.turns)
    assert episode.success == {}


def test_a_play_over_the_token_limit_is_cut() -> None:
    episode = roll(
        Relay(), lambda r, n: "12345", num_tasks=1, num_samples=1, max_episode_tokens=10
    )[0]
    assert len(episode.turns) == 2
    assert episode.limit == "cut after 10 tokens (rollout.max_episode_tokens)"


def test_what_a_script_says_beside_a_learner_is_no_token_of_any_limit() -> None:
    env = Chatty()
    learner = Player("learner", AnsweringSampler(by_chance), ByteRenderer())
    players = {"a": learner, "b": scripted_player(env, "long", "script")}
    limits = {"max_episode_tokens": 200, "max_extra_tokens": 200}
    for kind in ({"type": "linear"}, {"type": "tree", "continuation": "episode"}):
        (episode,) = play_with(env, players, num_tasks=1, num_samples=1, **kind, **limits)
        assert episode.failure is None
    trained = {role: scripted_player(env, "long", "p", trained=True) for role in env.roles}
    (episode,) = play_with(env, trained, num_tasks=1, num_samples=1, max_episode_tokens=200)
    assert episode.limit, "a script that plays for a learner is limited as it is"


def test_roles_that_act_together_share_the_tokens_that_are_left() -> None:
    episode = roll(
        Duel(), lambda r, n: "9" * 50, num_tasks=1, num_samples=1, max_episode_tokens=20
    )[0]
    assert episode.num_tokens == 20
    assert "max_episode_tokens" in episode.limit
    assert all(turn.links.step == episode.last for turn in episode.turns)


def test_several_policies_each_answer_for_their_own_role() -> None:
    one, two = _always("1"), _always("2")
    episodes = roll(Relay(), {"a": one, "b": two}, num_tasks=2)
    assert {request.role for request in one.requests} == {"a"}
    assert {request.policy for request in two.requests} == {"policy_b"}
    assert {(t.role, t.policy, t.text) for e in episodes for t in e.turns} == {
        ("a", "policy_a", "1"),
        ("b", "policy_b", "2"),
    }


def test_no_engine_is_ever_given_the_state() -> None:
    sampler = _always("1")
    roll(Relay(), {"a": sampler, "b": sampler}, num_tasks=1)
    assert all(request.state is None for request in sampler.requests)


def test_each_request_has_a_distinct_seed() -> None:
    sampler = _always("1")
    roll(Relay(), {"a": sampler, "b": sampler}, num_tasks=4, num_samples=5)
    assert len({request.seed for request in sampler.requests}) == len(sampler.requests) == 4 * 5 * 4


def _always(text: str) -> AnsweringSampler:
    return AnsweringSampler(lambda request, number: text)


def test_replies_keep_their_log_probs_bit_for_bit() -> None:
    episode = roll(Relay(), lambda r, n: "123", num_tasks=1, num_samples=1)[0]
    expected = np.linspace(-1, -0.1, 3).astype(np.float32)
    assert all(
        turn.logprobs is not None and (turn.logprobs == expected).all() for turn in episode.turns
    )


class _WrongRewards(Relay):
    """Gives the rewards of `how` beside the usual ones."""

    def __init__(self, how: dict[str, dict[str, Scored]]) -> None:
        super().__init__()
        self.how = how

    def step(self, state, replies):
        result = super().step(state, replies)
        levels = {"process": result.rewards.process, "agent": result.rewards.agent}
        changed = {level: {**found, **self.how.get(level, {})} for level, found in levels.items()}
        return replace(result, rewards=replace(result.rewards, **changed))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"agent": {"bb": Scored(9.0)}}, "agent rewards of unknown roles: bb"),
        ({"process": {"b": Scored(9.0)}}, "process rewards to b without a reply in this step"),
    ],
)
def test_a_reward_without_a_recipient_fails_the_episode(how, reason) -> None:
    episode = roll(_WrongRewards(how), lambda request, number: "4", num_tasks=1, num_samples=1)[0]
    assert episode.failure == Failed(f"step raised ValueError: {reason}", "environment")


@pytest.mark.parametrize("said", [None, 0.3, "no", np.float64(0.0)])
def test_success_that_is_neither_yes_nor_no_is_not_counted_as_one(said) -> None:
    class Unsure(Relay):
        def success(self, state, role):
            return said

    episode = roll(Unsure(), lambda request, number: "4", num_tasks=1, num_samples=1)[0]
    assert episode.failure is not None
    assert "success for 'a' is" in episode.failure.reason
    assert episode.success == {}


def test_success_may_be_a_comparison_of_arrays() -> None:
    class Compared(Relay):
        def success(self, state, role):
            return np.float32(1) > np.float32(0)

    episode = roll(Compared(), lambda request, number: "4", num_tasks=1, num_samples=1)[0]
    assert episode.success == {"a": True, "b": True}
