"""PettingZoo's classic games keep the environment contract, fork, and show each agent its own."""

import random
from typing import Any

import pytest

from pettingllms.envs import check_env, make_env
from pettingllms.errors import LibraryError
from pettingllms.types import Scored

pytest.importorskip("pettingzoo", reason="needs the games extra")


def play(env: Any, seed: int = 0, max_steps: int = 40) -> list[tuple[Any, Any]]:
    """The start of a play with random players: every state with the result of the step from it."""
    rng, state, line = random.Random(seed), env.reset(env.tasks("train")[0], seed), []
    while (roles := env.acting(state)) and len(line) < max_steps:
        replies = {role: env.player("random")(env, state, role, rng) for role in roles}
        result = env.step(state, replies)
        line.append((replies, result))
        state = result.state
    return line


def reply(text: object) -> str:
    return f"<answer>{text}</answer>"


@pytest.mark.parametrize(
    "name", ["tictactoe-v3", "connect_four-v3", "rps-v2", "leduc_holdem-v4", "hanabi-v5"]
)
def test_it_keeps_the_contract(name: str) -> None:
    check_env(make_env(f"pettingzoo:{name}"), num_episodes=4)


@pytest.mark.parametrize("name", ["texas_holdem-v4", "texas_holdem_no_limit-v6"])
def test_hands_follow_from_the_seed(name: str) -> None:
    env = make_env(f"pettingzoo:{name}")
    task = env.tasks("train")[0]
    hands = [env.observe(env.reset(task, seed), "player_0")[-1].content for seed in range(8)]
    assert hands == [env.observe(env.reset(task, s), "player_0")[-1].content for s in range(8)]
    assert len(set(hands)) > 4


def test_a_fork_goes_on_from_the_middle_and_changes_nothing() -> None:
    """The line keeps the library's object; a fork plays the moves again."""
    env = make_env("pettingzoo:chess-v6")
    line = play(env, max_steps=12)
    middle = line[5][1].state
    before = [env.observe(middle, role) for role in env.roles]
    replies, expected = line[6]
    assert env.step(middle, replies) == expected
    moves = middle.view.moves
    forks = [env.step(middle, {env.acting(middle)[0]: reply(m)}).state for m in moves[:4]]
    assert len({fork.view.texts for fork in forks}) == 4
    assert [env.observe(middle, role) for role in env.roles] == before
    assert env.step(line[-1][1].state, {env.acting(line[-1][1].state)[0]: "?"}).metrics["illegal"]


def test_go_boards_of_two_sizes_do_not_touch() -> None:
    """The library keeps the size of the board for the whole process."""
    small = make_env("pettingzoo:go-v5", parameters={"board_size": 5})
    state = small.reset(small.tasks("train")[0], 0)
    large = make_env("pettingzoo:go-v5", parameters={"board_size": 9})
    large.reset(large.tasks("train")[0], 0)
    after = small.step(state, {"black_0": reply("E1")}).state
    assert after.view.texts[0][0].splitlines()[5] == " 1 . . . . X"
    assert len(after.view.moves) == 25


def test_the_second_to_choose_does_not_see_what_the_first_chose() -> None:
    env = make_env("pettingzoo:rps-v2")
    state = env.reset(env.tasks("train")[0], 0)
    seen = {
        tuple(env.observe(env.step(state, {"player_0": reply(m)}).state, "player_1"))
        for m in state.view.moves
    }
    assert len(seen) == 1


def test_a_card_player_does_not_see_the_others_hand() -> None:
    env = make_env("pettingzoo:leduc_holdem-v4")
    state = env.reset(env.tasks("train")[0], 3)
    hands = [env.observe(state, role)[-1].content.splitlines()[0] for role in env.roles]
    assert hands[0] != hands[1]
    assert all(text.startswith("Your hand: ") for text in hands)


def test_tic_tac_toe_is_drawn_as_it_is_numbered() -> None:
    env = make_env("pettingzoo:tictactoe-v3")
    state = env.reset(env.tasks("train")[0], 0)
    for role, cell in zip(["player_1", "player_2"] * 3, [0, 1, 3, 2, 6], strict=False):
        result = env.step(state, {role: reply(cell)})
        state = result.state
    assert state.view.texts[0][0].splitlines()[1:] == ["X X X", "O 4 7", "O 5 8"]
    assert result.rewards.agent == {"player_1": Scored(1.0), "player_2": Scored(-1.0)}
    assert [env.success(state, role) for role in env.roles] == [True, False]


def test_an_illegal_reply_loses() -> None:
    env = make_env("pettingzoo:connect_four-v3")
    result = env.step(env.reset(env.tasks("train")[0], 0), {"player_0": reply(7)})
    assert not env.acting(result.state)
    assert result.rewards.agent == {"player_0": Scored(-1.0), "player_1": Scored(1.0)}
    assert result.rewards.process == {"player_0": Scored(-0.5)}


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("leduc_holdem-v4", ["raise", "raise"]),
        ("texas_holdem-v4", ["raise", "raise", "raise"]),
        ("texas_holdem_no_limit-v6", ["raise pot", "raise pot"]),
        ("texas_holdem_no_limit-v6", ["all in"]),
    ],
)
def test_nonsense_costs_a_fold_and_the_fine(name: str, moves: list[str]) -> None:
    """Whatever the stakes: otherwise nonsense would be the way out of a lost hand."""
    env = make_env(f"pettingzoo:{name}")
    state = env.reset(env.tasks("train")[0], 0)
    for move in moves:
        state = env.step(state, {env.acting(state)[0]: reply(move)}).state
    (mover,) = env.acting(state)
    folded, refused = (env.step(state, {mover: text}) for text in (reply("fold"), "nonsense"))
    assert folded.rewards.agent[mover].value <= -1.0
    assert refused.rewards.agent == folded.rewards.agent
    assert refused.rewards.process == {mover: Scored(-0.5)}
    assert refused.metrics == {"illegal": 1.0}
    assert refused.state == folded.state
    assert [env.success(refused.state, role) for role in env.roles] == [
        role != mover for role in env.roles
    ]


def test_others_play_on_when_one_of_three_is_refused() -> None:
    env = make_env("pettingzoo:texas_holdem-v4", parameters={"num_players": 3})
    state = env.reset(env.tasks("train")[0], 0)
    (mover,) = env.acting(state)
    after = env.step(state, {mover: "nonsense"}).state
    assert env.acting(after) != ()
    assert mover not in env.acting(after)


def test_nonsense_costs_all_rounds_that_are_left_to_lose() -> None:
    env = make_env("pettingzoo:rps-v2", parameters={"max_cycles": 4})
    state = env.reset(env.tasks("train")[0], 0)
    for move in ("ROCK", "PAPER"):
        state = env.step(state, {env.acting(state)[0]: reply(move)}).state
    result = env.step(state, {"player_0": "nonsense"})
    assert state.view.returns == (-1.0, 1.0)
    assert result.rewards.agent == {"player_0": Scored(-3.0), "player_1": Scored(3.0)}


def test_nonsense_of_a_partner_loses_for_all() -> None:
    """What was scored in Hanabi is lost, as with the last life, and no role has success."""
    env = make_env("pettingzoo:hanabi-v5")
    line = play(env)
    scored = next(result.state for _, result in line if max(result.state.view.returns) > 0)
    for state in (env.reset(env.tasks("train")[0], 0), scored):
        (mover,) = env.acting(state)
        result = env.step(state, {mover: "nonsense"})
        rewards = [result.rewards.agent[role].value for role in env.roles]
        assert rewards == [-had for had in state.view.returns]
        assert not any(env.success(result.state, role) for role in env.roles)
        assert result.rewards.process == {mover: Scored(-0.5)}


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("pettingzoo:hanabi-v5", range(10)), ("openspiel:hanabi", range(65, 75))],
)
def test_hanabi_is_won_with_every_card_and_only_then(name: str, seeds: range) -> None:
    """Of so many random plays with two colors of two ranks, one comes to all four points."""
    small = {"colors": 2, "ranks": 2, "hand_size": 2, "max_information_tokens": 4}
    env = make_env(name, parameters={**small, "max_life_tokens": 3, "players": 2})
    won: dict[float, set[bool]] = {}
    for seed in seeds:
        line = play(env, seed, max_steps=200)
        points = sum(reward_in(result, env.roles[0]) for _, result in line)
        last = line[-1][1].state
        won.setdefault(points, set()).update(env.success(last, role) for role in env.roles)
    assert won.pop(4.0) == {True}
    assert set().union(*won.values()) == {False}


def reward_in(result: Any, role: str) -> float:
    """The reward of the role in a step, alone or with its team."""
    reward = result.rewards.agent.get(role) or result.rewards.team
    return 0.0 if reward is None else reward.value


def test_a_wrong_parameter_is_named() -> None:
    with pytest.raises(LibraryError, match="cannot make 'pettingzoo:go-v5': .*'size'"):
        make_env("pettingzoo:go-v5", parameters={"size": 5})
