"""The catalogue says what playing shows: some of it here, all of it with `-m long`."""

import multiprocessing
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from pettingllms.envs.adapters.catalogue import MAX_STEPS, Entry, catalogue, entry_of, play_family
from pettingllms.registry import ENVIRONMENTS

pytest.importorskip("pyspiel", reason="needs the games extra")
pytest.importorskip("pettingzoo", reason="needs the games extra")
pytest.importorskip("textarena", reason="needs the games extra")

SAMPLE = [
    *(
        "openspiel:tic_tac_toe",
        "openspiel:kuhn_poker",
        "openspiel:goofspiel",
        "openspiel:crossword",
    ),
    *("openspiel:mfg_garnet", "openspiel:backgammon", "openspiel:negotiation", "openspiel:hearts"),
    *("pettingzoo:tictactoe-v3", "pettingzoo:hanabi-v5", "pettingzoo:rps-v2"),
    *("textarena:TicTacToe-v0", "textarena:Wordle-v0", "textarena:IteratedPrisonersDilemma-v0"),
    *("textarena:ThreePlayerGOPS-v0", "textarena:GuessTheNumber-v0"),
]


def refuse(*_: Any) -> None:
    raise AssertionError("a game went to the network")


def play_again(entry: Entry) -> Entry:
    library = entry.name.partition(":")[0]
    names = [name.partition(":")[2] for name in (entry.name, *entry.variants)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        return play_family(library, names)


def test_enough_games_come_to_their_end() -> None:
    ended = Counter(e.name.partition(":")[0] for e in catalogue().values() if e.reason is None)
    assert ended["openspiel"] >= 60
    assert ended["pettingzoo"] == 9
    assert ended["textarena"] >= 40


def test_what_does_not_is_listed_with_the_reason() -> None:
    for entry in catalogue().values():
        assert entry.num_roles > 0 or entry.refused
        assert not entry.refused or entry.reason
        assert "site-packages" not in (entry.reason or "")


@pytest.mark.parametrize("library", MAX_STEPS)
def test_every_name_of_a_library_is_in_it(library: str) -> None:
    games = {f"{library}:{game}" for game in ENVIRONMENTS.load(f"{library}:any").games()}
    listed = [
        name
        for entry in catalogue().values()
        for name in (entry.name, *entry.variants)
        if name.startswith(f"{library}:")
    ]
    assert sorted(listed) == sorted(games)


def test_a_variant_shares_what_came_of_its_game() -> None:
    assert entry_of("textarena:Wordle-v0-hardcore") == entry_of("textarena:Wordle-v0")
    assert entry_of("textarena:NoSuchGame-v0") is None


@pytest.mark.parametrize("name", SAMPLE)
def test_a_game_plays_as_the_catalogue_says(name: str) -> None:
    assert play_again(catalogue()[name]) == catalogue()[name]


@pytest.fixture(scope="module")
def play_apart() -> Iterator[Callable[[Entry], Entry]]:
    """Plays in a separate process: a library that crashes it fails one test, by name."""
    context = multiprocessing.get_context("spawn")
    pools = [ProcessPoolExecutor(1, context)]

    def play(entry: Entry) -> Entry:
        try:
            return pools[-1].submit(play_again, entry).result()
        except BrokenProcessPool:
            pools.append(ProcessPoolExecutor(1, context))
            pytest.fail(f"'{entry.name}' brought its process down")

    yield play
    pools[-1].shutdown()


@pytest.mark.long
@pytest.mark.parametrize("name", catalogue())
def test_every_game_plays_as_the_catalogue_says(
    name: str, play_apart: Callable[[Entry], Entry]
) -> None:
    entry = catalogue()[name]
    if "SyntaxError" in (entry.reason or "") and sys.version_info[:2] > (3, 11):
        pytest.skip("written for a newer Python than the one that the catalogue was made with")
    assert play_apart(entry) == entry
