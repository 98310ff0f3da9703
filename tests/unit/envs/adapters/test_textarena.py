"""TextArena's games keep the environment contract, fork, need no network and leave chance alone."""

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pettingllms.envs import check_env, make_env
from pettingllms.envs.adapters import replayed
from pettingllms.envs.adapters.library import CRASHED, seeded
from pettingllms.errors import ForkError, LibraryError
from pettingllms.types import Failed, Rewards, Scored

pytest.importorskip("textarena", reason="needs the games extra")


def start(name: str, seed: int = 0, **options: Any) -> tuple[Any, Any]:
    env = make_env(f"textarena:{name}", **options)
    return env, env.reset(env.tasks("train")[0], seed)


def notify(env: Any, state: Any, text: object) -> Any:
    return env.step(state, {env.acting(state)[0]: f"<answer>{text}</answer>"})


@pytest.mark.parametrize("name", ["TicTacToe-v0", "Nim-v0", "KuhnPoker-v0-short", "Secretary-v0"])
def test_it_keeps_the_contract(name: str) -> None:
    check_env(make_env(f"textarena:{name}"), num_episodes=4)


def test_a_move_needs_no_brackets_where_the_library_adds_them() -> None:
    env, state = start("TicTacToe-v0")
    assert notify(env, state, "4").state.moves == notify(env, state, "[4]").state.moves == ("[4]",)


def test_the_board_is_shown_once_and_what_was_said_stays() -> None:
    env, state = start("TicTacToe-v0")
    for cell in (4, 0, 8):
        state = notify(env, state, cell).state
    rules, seen = (m.content for m in env.observe(state, "player_1"))
    assert "You are Player 1 in Tic Tac Toe." in rules
    assert rules.count("<answer>") == 1
    assert seen.count("Current Board") == 1
    assert "placed their symbol (O) in cell 4" in seen
    assert "placed their symbol (O) in cell 8" in seen


def test_a_refused_move_is_priced_and_may_be_made_again() -> None:
    env, state = start("TicTacToe-v0")
    result = notify(env, state, "9")
    assert result.metrics == {"illegal": 1.0}
    assert result.rewards.process == {"player_0": Scored(-0.5)}
    assert env.acting(result.state) == ("player_0",)
    assert "attempted an invalid move" in env.observe(result.state, "player_0")[-1].content
    assert notify(env, result.state, "4").metrics == {"illegal": 0.0}
    lost = notify(env, result.state, "nine")
    assert lost.rewards.agent == {"player_0": Scored(-1.0), "player_1": Scored(1.0)}
    assert env.success(lost.state, "player_1")


def test_forks_are_played_again_and_do_not_touch() -> None:
    """Dice are cast in a game of pig: with the same seed the same way, from every fork."""
    env, state = start("PigDice-v0")
    line = [state]
    for _ in range(6):
        line.append(notify(env, line[-1], "roll").state)
    texts = [s.view for s in line]
    again = notify(env, line[2], "roll")
    assert again.state == line[3]
    other = notify(env, line[2], "hold").state
    assert other != line[3]
    assert notify(env, notify(env, line[2], "roll").state, "roll").state == line[4]
    assert [s.view for s in line] == texts


def test_a_play_that_cannot_be_made_again_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    env, state = start("PigDice-v0")
    for _ in range(4):
        state = notify(env, state, "roll").state
    notify(env, state, "roll")
    monkeypatch.setattr(replayed, "seeded", lambda seed: seeded(seed + 1))
    with pytest.raises(ForkError, match="step each state only once"):
        notify(env, state, "roll")


def test_global_random_states_are_untouched() -> None:
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    env, state = start("PigDice-v0")
    notify(env, state, "roll")
    assert (random.random(), np.random.random()) == expected


def test_games_that_need_the_network_are_refused_before_they_are_imported() -> None:
    code = (
        "import sys; from pettingllms.envs.adapters.textarena import *\n"
        "for name in ('Wordle-v0', 'Debate-v0', 'SpellingBee-v0'):\n"
        "    try: TextArenaGame(TextArenaConfig(id=f'textarena:{name}'))\n"
        "    except LibraryError as error: print(error)\n"
        "    assert f'textarena.envs.{name[:-3]}.env' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("needs the network") == 3


def test_a_reply_that_breaks_the_game_ends_it_for_the_one_who_gave_it() -> None:
    env, state = start("TicTacToe-v0")
    result = notify(env, state, "9" * 5000)
    assert result.state.forfeit[1].startswith(CRASHED)
    assert result.rewards.agent["player_0"] == Scored(-1.0)
    assert notify(env, state, "4").metrics["illegal"] == 0


@pytest.mark.parametrize("name", ["SecretMafia-v0", "Taboo-v0"])
def test_an_unreadable_reply_in_a_game_of_teams_is_fined_and_says_nothing(name: str) -> None:
    """No role is rewarded for it: teammates would be, and the teams are not known here."""
    env, state = start(name)
    (mover,) = env.acting(state)
    result = env.step(state, {mover: "no tags"})
    assert result.rewards == Rewards({mover: Scored(-0.5)})
    assert result.state == notify(env, state, "...").state


def test_no_role_wins_when_a_reply_breaks_a_game_of_teams() -> None:
    env, state = start("SecretMafia-v0")
    result = notify(env, state, f"[{'9' * 5000}]")
    assert result.state.forfeit[1].startswith(CRASHED)
    assert result.rewards.agent == dict.fromkeys(env.roles, Scored(-1.0))
    assert not any(env.success(result.state, role) for role in env.roles)


@pytest.mark.parametrize(
    "name", ["SimpleNegotiation-v0", "SimpleNegotiation-v0-short", "SimpleBlindAuction-v0"]
)
def test_a_terse_view_tells_a_role_what_it_alone_knows(name: str) -> None:
    """These say what things are worth to a role in their prompt and nowhere else."""
    env, state = start(name, terse=True)
    first = [env.observe(state, role) for role in env.roles]
    later = [env.observe(env.step(state, {"player_0": "Hello."}).state, role) for role in env.roles]
    for views in (first, later):
        assert len({tuple(view) for view in views}) == 2
        assert all("value" in view[-1].content.lower() for view in views)
        assert not any("<answer>" in message.content for view in views for message in view)
    other = env.reset(env.tasks("train")[0], 1)
    assert env.observe(other, "player_0") != first[0]


def test_a_missing_return_is_a_failure_and_not_a_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    env, state = start("Secretary-v0")
    monkeypatch.setattr("pettingllms.envs.adapters.textarena.Session.return_of", lambda *_: None)
    result = notify(env, state, "accept")
    assert isinstance(result.rewards.agent["player_0"], Failed)


def test_the_number_of_players_is_an_option() -> None:
    assert len(make_env("textarena:LiarsDice-v0").roles) == 2
    assert len(make_env("textarena:LiarsDice-v0", num_players=5).roles) == 5
    with pytest.raises(LibraryError, match="cannot start"):
        make_env("textarena:TicTacToe-v0", num_players=3)
