"""OpenSpiel's games keep the environment contract and play as OpenSpiel does."""

import pickle
import random
from typing import Any

import pytest

from pettingllms.envs import check_env, make_env
from pettingllms.envs.adapters import openspiel
from pettingllms.errors import LibraryError
from pettingllms.types import Scored

pyspiel = pytest.importorskip("pyspiel", reason="needs the games extra")

FORKED = [
    *("tic_tac_toe", "connect_four", "breakthrough", "othello", "chess", "go", "hex", "mancala"),
    *("backgammon", "pig", "2048", "kuhn_poker", "leduc_poker", "liars_dice", "hanabi", "hearts"),
    *("goofspiel", "oshi_zumo", "markov_soccer", "tarok", "negotiation", "phantom_ttt"),
]
"""Open and hidden, with chance and without, one after another and at once, chance inside."""


def play(env: Any, seed: int = 0, task: int = 0) -> list[tuple[Any, Any]]:
    """A play with random players: every state with the result of the step from it."""
    rng, state, line = random.Random(seed), env.reset(env.tasks("train")[task], seed), []
    while roles := env.acting(state):
        replies = {role: env.player("random")(env, state, role, rng) for role in roles}
        result = env.step(state, replies)
        line.append((state, result))
        state = result.state
    return line


def shown(env: Any, state: Any) -> Any:
    """All that can be asked of a position: history, legal moves, returns, and what is read."""
    live = state.live
    legal = [live.legal_actions(position) for position in range(len(env.roles))]
    texts = [[m.content for m in env.observe(state, role)] for role in env.roles]
    return live.history(), str(live), legal, live.returns(), texts, state


@pytest.mark.parametrize(
    "name",
    [
        *("tic_tac_toe", "kuhn_poker", "goofspiel", "matrix_pd", "pig", "hanabi", "negotiation"),
        *("liars_dice", "tiny_hanabi", "catch", "twixt", "oh_hell", "coop_box_pushing"),
    ],
)
def test_it_keeps_the_contract(name: str) -> None:
    check_env(make_env(f"openspiel:{name}"), num_episodes=4)


@pytest.mark.parametrize("options", [{"solo": True}, {"terse": True}])
def test_it_keeps_the_contract_alone_and_terse(options: dict[str, Any]) -> None:
    check_env(make_env("openspiel:leduc_poker", **options), num_episodes=6)


def forks_leave_the_original(name: str, num_positions: int) -> None:
    env = make_env(f"openspiel:{name}")
    rng = random.Random(7)
    positions: list[Any] = []
    while len(positions) < num_positions:
        line = play(env, seed=len(positions), task=len(positions) % 50)
        positions += [state for state, _ in rng.sample(line, min(len(line), 10))]
    for state in positions[:num_positions]:
        before = shown(env, state)
        fork = state
        for _ in range(5):
            if not env.acting(fork):
                break
            said = {r: env.player("random")(env, fork, r, rng) for r in env.acting(fork)}
            fork = env.step(fork, said).state
        assert fork.live.history() != state.live.history()
        assert shown(env, state) == before


@pytest.mark.parametrize("name", FORKED[:6])
def test_a_fork_leaves_the_original_as_it_was(name: str) -> None:
    forks_leave_the_original(name, num_positions=10)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORKED)
def test_200_forks_leave_their_originals_as_they_were(name: str) -> None:
    forks_leave_the_original(name, num_positions=200)


@pytest.mark.parametrize("name", ["kuhn_poker", "goofspiel", "2048", "cribbage", "hanabi"])
def test_rewards_add_up_to_the_returns_of_the_library(name: str) -> None:
    env = make_env(f"openspiel:{name}")
    line = play(env)
    returns = line[-1][1].state.live.returns()
    for position, role in enumerate(env.roles):
        rewards = [
            (r.rewards.agent.get(role) or r.rewards.team or Scored(0.0)).value for _, r in line
        ]
        assert sum(rewards) == pytest.approx(returns[position])
    assert (line[-1][1].rewards.team is not None) == (name == "hanabi")


def test_chance_follows_from_the_seed() -> None:
    for name in ("backgammon", "negotiation", "tarok"):
        env = make_env(f"openspiel:{name}")
        first, again, other = (play(env, seed)[0][0] for seed in (1, 1, 2))
        assert first == again
        starts = {
            env.observe(env.reset(task, 0), "player_0")[-1] for task in env.tasks("train")[:9]
        }
        assert len(starts) > 3
        assert env.observe(first, "player_0") != env.observe(other, "player_0") or name == "tarok"


def test_siblings_meet_the_same_luck() -> None:
    """In pig the die is cast after `roll`: two forks that roll see the same number."""
    env = make_env("openspiel:pig")
    state = env.reset(env.tasks("train")[0], 0)
    rolled = [env.step(state, {"player_0": "<answer>roll</answer>"}).state for _ in range(5)]
    assert len({s.history for s in rolled}) == 1


def test_a_role_is_not_shown_what_it_must_not_know() -> None:
    """With its own card the same and the other's changed, a player of Kuhn poker reads the same."""
    env = make_env("openspiel:kuhn_poker")
    read: dict[int, set[str]] = {}
    for mine, other in [(0, 1), (0, 2), (1, 0), (1, 2)]:
        live = env.game.new_initial_state()
        live.apply_action(mine)
        live.apply_action(other)
        read.setdefault(mine, set()).add(env.observe(env.at(live), "player_0")[-1].content)
    assert [len(texts) for texts in read.values()] == [1, 1]
    assert read[0] != read[1]


def test_both_choose_at_once_where_moves_are_simultaneous() -> None:
    env = make_env("openspiel:matrix_pd")
    state = env.reset(env.tasks("train")[0], 0)
    assert env.acting(state) == ("player_0", "player_1")
    first, second = env.moves(state, "player_0")
    said = {"player_0": f"<answer>{second}</answer>", "player_1": f"<answer>{first}</answer>"}
    rewards = env.step(state, said).rewards
    assert rewards.agent == {"player_0": Scored(10.0), "player_1": Scored(0.0)}


@pytest.mark.parametrize("reply", ["", "<answer>x(9,9)</answer>", "x(0,0)", "<answer>1</answer>"])
def test_a_reply_that_is_no_legal_move_loses(reply: str) -> None:
    env = make_env("openspiel:tic_tac_toe")
    result = env.step(env.reset(env.tasks("train")[0], 0), {"player_0": reply})
    assert not env.acting(result.state)
    assert result.rewards.process == {"player_0": Scored(-0.5)}
    assert result.rewards.agent == {"player_0": Scored(-1.0), "player_1": Scored(1.0)}
    assert env.success(result.state, "player_1")
    assert not env.success(result.state, "player_0")


@pytest.mark.parametrize("name", ["matrix_rps", "goofspiel", "matrix_coordination"])
def test_all_who_are_refused_at_once_lose(name: str) -> None:
    env = make_env(f"openspiel:{name}")
    state = env.reset(env.tasks("train")[0], 0)
    result = env.step(state, dict.fromkeys(env.roles, ""))
    least, rewards = Scored(env.game.min_utility()), result.rewards
    assert rewards.process == dict.fromkeys(env.roles, Scored(-0.5))
    assert rewards.team == least or rewards.agent == dict.fromkeys(env.roles, least)
    assert result.metrics == {"illegal": 2.0}
    assert pickle.loads(pickle.dumps(result.state)) == result.state  # noqa: S301 - our own
    assert not env.acting(result.state)
    assert not any(env.success(result.state, role) for role in env.roles)


def test_only_those_who_were_not_refused_share_what_the_refused_lost() -> None:
    env = make_env("openspiel:goofspiel", parameters={"num_cards": 3, "players": 3})
    state = env.reset(env.tasks("train")[0], 0)
    said = {"player_0": "", "player_1": "<answer>[P1]Bid: 1</answer>", "player_2": "?"}
    result = env.step(state, said)
    rewards = [result.rewards.agent[role].value for role in env.roles]
    assert rewards == [-1.0, 2.0, -1.0]
    assert [env.success(result.state, role) for role in env.roles] == [False, True, False]


def test_parameters_are_the_librarys_own() -> None:
    env = make_env("openspiel:goofspiel", parameters={"num_cards": 3, "players": 3})
    assert len(env.roles) == 3
    assert len(play(env)) == 2
    repeated = {"stage_game": "matrix_pd()", "num_repetitions": 4}
    assert len(play(make_env("openspiel:repeated_game", parameters=repeated))) == 4
    with pytest.raises(LibraryError, match="cannot load 'openspiel:goofspiel': .*num_card"):
        make_env("openspiel:goofspiel", parameters={"num_card": 3})


def test_a_long_list_of_moves_is_cut_and_all_may_be_played() -> None:
    env = make_env("openspiel:go", max_listed=3)
    state = env.reset(env.tasks("train")[0], 0)
    text = env.observe(state, "player_0")[-1].content
    assert text.endswith("B a1\nB b1\nB c1\n... and 359 more, named in the same way")
    assert env.step(state, {"player_0": "<answer>B j10</answer>"}).metrics["illegal"] == 0


def test_a_game_that_draws_its_own_chance_is_replayed_in_a_separate_game(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clones share the game's source of chance, so that one fork's draw would be another's luck."""
    replayed: list[str] = []
    real = openspiel._replayed

    def replay(game: str, history: Any) -> Any:
        replayed.append(game)
        return real(game, history)

    monkeypatch.setattr(openspiel, "_replayed", replay)
    line = play(make_env("openspiel:negotiation"))
    assert len(replayed) == len(line) > 0
    assert all("rng_seed=" in game for game in replayed)
    replayed.clear()
    play(make_env("openspiel:backgammon"))
    assert not replayed
