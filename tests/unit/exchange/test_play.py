"""Episodes played with replies from outside: the same rewards as rollouts, limits, failures."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from programs import Two
from verifiers_cases import play_here

from pettingllms.algos.credit import role_levels
from pettingllms.envs import Environment, Split, StepResult, make_env
from pettingllms.errors import ExchangeError, UnknownNameError
from pettingllms.exchange.play import CoPlayers, RoleResult, play_episode
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    TEAM,
    Failed,
    Message,
    Reward,
    Rewards,
    Scored,
    Submission,
    Task,
    system,
    user,
)

LEVELS = ("process", "agent", "team")


class Judged(Environment[int, Any]):
    """Two steps; one role submits to the judge, then the team does."""

    id = "judged_pair-v1"
    judged = True
    blocking = True
    players = {"random": lambda env, state, role, rng: "x"}

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b")

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task("t")]

    def reset(self, task: Task, seed: int) -> int:
        return 0

    def acting(self, state: int) -> tuple[str, ...]:
        return (("a",), ("a", "b"), ())[state]

    def observe(self, state: int, role: str) -> Sequence[Message]:
        return [system("s"), user(f"{role} {state}")]

    def step(self, state: int, replies: Mapping[str, str]) -> StepResult[int]:
        whose = "a" if state == 0 else TEAM
        made = {whose: Submission("q", "+".join(replies.values()))}
        return StepResult(state + 1, Rewards(agent={"a": Scored(0.5)}), submissions=made)

    def success(self, state: int, role: str) -> bool:
        return role == "a"

    def rule(self, submission: Submission, part: str = "") -> Reward:
        if "fail" in submission.answer:
            return Failed("no verdict", "judge")
        return Scored(len(submission.answer) / 10)


def play(
    env: Environment[Any, Any],
    reply: Any,
    role: str = "",
    player: str = "random",
    max_steps: int = 50,
    task: Task | None = None,
) -> dict[str, RoleResult]:
    async def ask(role: str, seen: Sequence[Message]) -> str | None:
        await asyncio.sleep(0)
        found: str | None = reply(role, seen)
        return found

    players = CoPlayers.for_role(env, role, player)
    task = task or env.tasks("test")[0]
    seed = derive_seed("env", 0, task.id)
    return asyncio.run(play_episode(env, task, seed, ask, players, max_steps))


@pytest.mark.parametrize(
    "name",
    ["tic_tac_toe-v1", "kuhn_poker-v1", "iterated_dilemma-v1", "sokoban-v1", "negotiation-v1"],
)
def test_rewards_equal_those_of_rollouts(name: str) -> None:
    env = make_env(name)
    pool = ["<answer>1</answer>", "<answer>5</answer>", "<answer>cooperate</answer>", "", "bet"]
    for task in env.tasks("test")[:3]:
        (episode,) = play_here(env, [task], lambda chat: _pick(str(chat[-1]["content"]), pool))
        found = play(env, lambda role, seen: _pick(seen[-1].text, pool), max_steps=200, task=task)
        for role in env.roles:
            levels = dict(zip(LEVELS, role_levels(episode, role), strict=True))
            expected = {k: v.value for k, v in levels.items() if isinstance(v, Scored)}
            assert found[role].rewards == expected
            assert found[role].success == episode.success[role]


def _pick(text: str, pool: Sequence[str]) -> str:
    return random.Random(derive_seed(text)).choice(pool)


def test_the_rule_scores_submissions_without_a_judge() -> None:
    found = play(Judged(), lambda role, seen: "xyz")
    assert found["a"].rewards == {"agent": pytest.approx(1.3), "team": pytest.approx(0.7)}
    assert found["b"].rewards == {"team": pytest.approx(0.7)}
    assert found["a"].reward == pytest.approx(2.0)
    assert (found["a"].success, found["b"].success) == (True, False)
    assert (found["a"].num_turns, found["b"].num_turns) == (2, 1)


def test_submissions_without_a_judge_give_no_reward_if_the_environment_does() -> None:
    env = Judged()
    env.judged = False
    assert play(env, lambda role, seen: "xyz")["b"].rewards == {}


def test_a_failed_reward_is_an_error() -> None:
    with pytest.raises(ExchangeError, match="gave 'a' no agent reward: no verdict"):
        play(Judged(), lambda role, seen: "fail")


def test_a_role_whose_run_ended_gets_the_limit_reward() -> None:
    env = make_env("tic_tac_toe-v1", limit_reward=-3.0)
    found = play(env, lambda role, seen: None)
    assert found["player_x"].rewards["agent"] == -3.0
    assert not found["player_x"].success


def test_too_many_steps_are_a_limit() -> None:
    env = make_env("tic_tac_toe-v1", limit_reward=-3.0)
    found = play(env, lambda role, seen: _pick(seen[-1].text, ["<answer>1</answer>"]), max_steps=1)
    assert {one.rewards["agent"] for one in found.values()} <= {-3.0, -4.0, -2.0}


def test_co_players_reply_to_the_other_roles() -> None:
    env, asked = make_env("tic_tac_toe-v1"), []
    found = play(env, lambda role, seen: asked.append(role) or "pass", role="player_o")
    assert set(asked) == {"player_o"}
    assert found["player_x"].num_turns >= 1


def test_wrong_roles_players_and_workflows_are_refused() -> None:
    env = make_env("tic_tac_toe-v1")
    with pytest.raises(ExchangeError, match="did you mean 'player_o'"):
        CoPlayers.for_role(env, "playero", "random")
    with pytest.raises(UnknownNameError, match="no player called 'nobody'"):
        CoPlayers.for_role(env, "player_o", "nobody")
    with pytest.raises(ExchangeError, match="is a workflow"):
        CoPlayers.for_role(Two(), "", "random")
