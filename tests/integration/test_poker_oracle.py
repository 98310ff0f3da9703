"""Kuhn and Leduc poker hand by hand against OpenSpiel's, and NashConv of the same policies."""

import random
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.exploitability import InfoState, nash_conv
from pettingllms.types import Scored

pyspiel = pytest.importorskip("pyspiel", reason="needs the games extra")

from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import exploitability

NUM_HANDS = 300
RANKS = "JQK"
ACTIONS = {
    "kuhn_poker": {"check": 0, "fold": 0, "bet": 1, "call": 1},
    "leduc_poker": {"fold": 0, "check": 1, "call": 1, "raise": 2},
}
GAMES = sorted(ACTIONS)
ENVS = {game: make_env(f"{game}-v1", terse=True) for game in GAMES}


def rank(game: str, card: int) -> str:
    return RANKS[card] if game == "kuhn_poker" else RANKS[card // 2]


def deal(oracle: Any, game: str, cards: list[str]) -> None:
    """Let OpenSpiel's chance give the same cards; suits are no part of ours."""
    while oracle.is_chance_node():
        wanted = cards.pop(0)
        fitting = [card for card, _ in oracle.chance_outcomes() if rank(game, card) == wanted]
        oracle.apply_action(fitting[0])


@pytest.mark.parametrize("game", GAMES)
def test_every_hand_agrees_with_openspiel(game: str) -> None:
    env, twin = make_env(f"{game}-v1", terse=True), pyspiel.load_game(game)
    returns, lengths = set(), set()
    for seed in range(NUM_HANDS):
        rng = random.Random(seed)
        state, oracle = env.reset(env.tasks("train")[seed], 0), twin.new_initial_state()
        cards, totals, length = list(state.cards), dict.fromkeys(env.roles, 0.0), 0
        deal(oracle, game, cards)
        while not oracle.is_terminal():
            (role,) = env.acting(state)
            assert env.roles.index(role) == oracle.current_player()
            legal = env.legal(state, role)
            assert sorted(ACTIONS[game][move] for move in legal) == oracle.legal_actions()
            move = rng.choice([move for move in legal if move != "fold" or rng.random() < 0.3])
            result = env.step(state, {role: move})
            for who, reward in result.rewards.agent.items():
                assert isinstance(reward, Scored)
                totals[who] += reward.value
            oracle.apply_action(ACTIONS[game][move])
            deal(oracle, game, cards)
            state, length = result.state, length + 1
        assert env.acting(state) == ()
        assert list(totals.values()) == oracle.returns()
        returns.add(totals["player_1"])
        lengths.add(length)
    assert len(returns) == {"kuhn_poker": 4, "leduc_poker": 15}[game]
    assert len(lengths) == {"kuhn_poker": 2, "leduc_poker": 7}[game]


def key_of(info: InfoState) -> tuple[str, ...]:
    """What is in a terse prompt: the cards, then the words."""
    return tuple(info.messages[0].content.replace("|", "").split())


def spiel_key(game: str, state: Any) -> tuple[str, ...]:
    """The same from OpenSpiel's state, by playing its history in ours."""
    history = state.full_history()
    dealt = [rank(game, one.action) for one in history if one.player < 0]
    words: list[str] = []
    env = ENVS[game]
    for one in history:
        if one.player >= 0:
            moves = env.follow(words).moves
            words.append(next(move for move in moves if ACTIONS[game][move] == one.action))
    board = "" if game == "kuhn_poker" else (dealt[2] if len(dealt) > 2 else "-")
    return (dealt[state.current_player()] + board, *words)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("game", GAMES)
def test_nash_conv_is_that_of_openspiel(game: str, seed: int | None) -> None:
    env, twin = make_env(f"{game}-v1", terse=True), pyspiel.load_game(game)
    table: dict[tuple[str, ...], dict[int, float]] = {}

    def ours(infos: Any) -> list[list[float]]:
        rng, found = random.Random(seed), []
        for info in infos:
            weights = [1.0 if seed is None else rng.random() ** 3 for _ in info.replies]
            chances = [weight / sum(weights) for weight in weights]
            actions = [ACTIONS[game][move] for move in info.replies]
            table[key_of(info)] = dict(zip(actions, chances, strict=True))
            found.append(chances)
        return found

    mine = nash_conv(env, ours)

    class Theirs(spiel_policy.Policy):
        def action_probabilities(self, state: Any, player_id: Any = None) -> dict[int, float]:
            return table[spiel_key(game, state)]

    theirs = exploitability.nash_conv(twin, Theirs(twin, list(range(2))))
    assert mine == pytest.approx(theirs, abs=1e-9)
    if seed is None:
        assert mine == pytest.approx({"kuhn_poker": 11 / 12, "leduc_poker": 4.7472222}[game])
