import random

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.games.tic_tac_toe.env import Board
from pettingllms.envs.games.tic_tac_toe.players import play_minimax, play_random
from pettingllms.envs.toolkit.answers import as_reply
from pettingllms.types import Scored

env = make_env("tic_tac_toe-v1")


def play(x, o, seed: int) -> tuple[Board, dict[str, float]]:
    rng = random.Random(seed)
    state, rewards = env.reset(env.tasks("train")[0], seed), {"player_x": 0.0, "player_o": 0.0}
    while roles := env.acting(state):
        (role,) = roles
        player = x if role == "player_x" else o
        result = env.step(state, {role: player(env, state, role, rng)})
        for who, reward in result.rewards.agent.items():
            assert isinstance(reward, Scored)
            rewards[who] += reward.value
        state = result.state
    return state, rewards


def test_minimax_against_minimax_is_always_a_draw() -> None:
    for seed in range(200):
        state, rewards = play(play_minimax, play_minimax, seed)
        assert state.winner is None
        assert rewards == {"player_x": 0.0, "player_o": 0.0}


def test_minimax_never_loses_and_mostly_beats_random() -> None:
    for x, o, me in [
        (play_minimax, play_random, "player_x"),
        (play_random, play_minimax, "player_o"),
    ]:
        results = [play(x, o, seed)[1][me] for seed in range(200)]
        assert min(results) >= 0
        assert sum(results) > 150


def test_every_game_is_zero_sum() -> None:
    for seed in range(200):
        _, rewards = play(play_random, play_random, seed)
        assert sum(rewards.values()) == 0


@pytest.mark.parametrize(
    ("cells", "mark_to_move", "answer", "winner"),
    [
        ("XX.OO....", "player_x", "3", "player_x"),
        ("OO.XX.X..", "player_o", "3", "player_o"),
        ("X.O.XO...", "player_x", "9", "player_x"),
        ("X.OXO....", "player_x", "7", "player_x"),
        ("XX.OO....", "player_x", "9", None),
    ],
)
def test_three_in_a_row_wins(cells, mark_to_move, answer, winner) -> None:
    state = env.step(Board(cells, mark_to_move), {mark_to_move: as_reply(answer)}).state
    assert state.winner == winner


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("5", "no <answer>"),
        ("<answer>5</answer> <answer>6</answer>", "2 <answer> and 2 </answer>"),
        ("</answer>5<answer>", "stands before"),
        ("<answer> </answer>", "nothing stands between"),
        ("<answer>five</answer>", "'five' is not a cell from 1 to 9"),
        ("<answer>12</answer>", "'12' is not a cell"),
        ("<answer>0</answer>", "'0' is not a cell"),
        ("<answer>²</answer>", "'²' is not a cell"),
        ("<answer>1</answer>", "cell 1 is taken by X"),
    ],
)
def test_a_refused_reply_loses_with_a_reason_and_its_own_price(reply: str, reason: str) -> None:
    result = env.step(Board("X........", "player_o"), {"player_o": reply})
    assert reason in (result.state.forfeit or "")
    assert result.state.winner == "player_x"
    assert result.rewards.process == {"player_o": Scored(-0.5)}
    assert result.rewards.agent == {"player_x": Scored(1.0), "player_o": Scored(-1.0)}
    assert result.metrics == {"illegal": 1.0}


def test_thinking_before_the_answer_is_allowed() -> None:
    reply = "If I take 5 I threaten 1-5-9. <answer>5</answer>"
    assert env.step(Board(), {"player_x": reply}).state.cells == "....X...."


def test_solo_plays_both_roles_over_the_tasks_and_success_is_its_own() -> None:
    solo = make_env("tic_tac_toe-v1", solo=True, opponent="minimax")
    positions = set()
    for task in solo.tasks("train")[:20]:
        state = solo.reset(task, 0)
        positions.add(state.inner_role)
        rng = random.Random(task.seed)
        total = 0.0
        while solo.acting(state):
            result = solo.step(state, {"solo": solo.players["random"](solo, state, "solo", rng)})
            total += sum(r.value for r in result.rewards.agent.values() if isinstance(r, Scored))
            state = result.state
        assert solo.success(state, "solo") == (total > 0)
        assert total <= 0
    assert positions == {"player_x", "player_o"}
