"""Hanabi move by move against OpenSpiel's, on the same deals: observations, moves and returns.

The test compares our prompt, read back into facts, with OpenSpiel's observation of the same player.
"""

import random
import re
from collections import Counter
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.toolkit.answers import answer_in, as_reply
from pettingllms.types import Task

pyspiel = pytest.importorskip("pyspiel", reason="needs the games extra")

NUM_GAMES = 200
LETTERS = {"R": "red", "Y": "yellow", "G": "green", "W": "white", "B": "blue"}
COLORS = list(LETTERS.values())
CARD_LINE = re.compile(
    r"(?P<position>\d): (?:(?P<card>[a-z]+ \d) \()?"
    r"(?P<colors>any color|[a-z/]+), (?P<ranks>any rank|rank [\d/]+)(?(card)\))"
)

# players, colors, ranks, hand size, information, lives; then the endings that must be seen
LOST, OUT, DONE = "lives lost", "turns over", "fireworks done"
VARIANTS = [
    ((2, 5, 5, 5, 8, 3), {LOST, OUT}),
    ((3, 5, 5, 5, 8, 3), {LOST, OUT}),
    ((4, 5, 5, 4, 8, 3), {LOST, OUT}),
    ((5, 5, 5, 4, 8, 3), {LOST, OUT}),
    ((3, 3, 5, 3, 4, 20), {OUT}),
    ((2, 2, 5, 2, 3, 1), {LOST, OUT}),
    ((2, 2, 3, 2, 3, 3), {LOST, OUT, DONE}),
    ((5, 5, 2, 2, 2, 3), {LOST, OUT}),
    ((2, 5, 1, 3, 2, 5), {OUT, DONE}),
    ((2, 1, 5, 5, 8, 3), {OUT}),  # the whole deck is dealt: one turn each
]


@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "endings"), VARIANTS)
def test_every_move_agrees_with_openspiel(numbers: tuple[int, ...], endings: set[str]) -> None:
    players, colors, ranks, hand_size, information, lives = numbers
    env = make_env(
        "hanabi-v1",
        num_players=players,
        num_colors=colors,
        num_ranks=ranks,
        hand_size=hand_size,
        max_information=information,
        max_lives=lives,
    )
    game = pyspiel.load_game(
        "hanabi",
        {
            "players": players,
            "colors": colors,
            "ranks": ranks,
            "hand_size": hand_size,
            "max_information_tokens": information,
            "max_life_tokens": lives,
        },
    )
    seen = Counter(play_side_by_side(env, game, seed) for seed in range(NUM_GAMES))
    assert endings <= set(seen)


def play_side_by_side(env: Any, game: Any, seed: int) -> str:
    """Play one game in both; give how it ended. Some games are played well, to get far."""
    rng = random.Random(seed)
    skill = rng.choice((0.0, 0.5, 0.9, 1.0))
    state, oracle = env.reset(Task("any", seed=seed), 0), game.new_initial_state()
    order = iter([held.card for hand in state.hands for held in hand] + list(state.deck))
    total = 0.0
    deal(oracle, order)
    while not oracle.is_terminal():
        position = oracle.current_player()
        assert env.acting(state) == (env.roles[position],)
        moves = compare(env, state, oracle, position)
        player = env.players["cautious" if rng.random() < skill else "random"]
        said = answer_in(player(env, state, env.roles[position], rng))
        result = env.step(state, {env.roles[position]: as_reply(said)})
        state = result.state
        total += result.rewards.team.value
        oracle.apply_action(moves[said])
        deal(oracle, order)
    assert env.acting(state) == ()
    for position in range(len(env.roles)):
        compare(env, state, oracle, position)
    assert [state.score] * len(env.roles) == oracle.returns()
    assert total == state.score
    return ending(env, state)


def deal(oracle: Any, order: Any) -> None:
    """Make OpenSpiel's chance deal our cards."""
    while not oracle.is_terminal() and oracle.is_chance_node():
        card = next(order)
        name = f"(Deal {'RYGWB'[card.color]}{card.rank})"
        deals = {oracle.action_to_string(action): action for action in oracle.legal_actions()}
        oracle.apply_action(deals[name])


def ending(env: Any, state: Any) -> str:
    if state.lives == 0:
        return LOST
    return DONE if env.success(state, env.roles[0]) else OUT


def compare(env: Any, state: Any, oracle: Any, position: int) -> dict[str, int]:
    """Assert equal observations and legal moves; return OpenSpiel's number of each move."""
    ours = facts_of_prompt(env, env.observe(state, env.roles[position])[-1].content, position)
    moves: dict[str, int] = {}
    if not oracle.is_terminal():
        moves = {translated(env, oracle, position, a): a for a in oracle.legal_actions()}
    assert ours.pop("moves") == set(moves)
    assert ours == facts_of_oracle(oracle.observation_string(position))
    return moves


def translated(env: Any, oracle: Any, position: int, action: int) -> str:
    """OpenSpiel's move as our reply: positions from 1, players by name."""
    words = oracle.action_to_string(action).strip("()").split()
    if words[0] in ("Play", "Discard"):
        return f"{words[0].lower()} {int(words[1]) + 1}"
    target = env.roles[(position + int(words[2])) % len(env.roles)]
    return f"hint {target} {LETTERS.get(words[4], words[4])}"


def facts_of_oracle(text: str) -> dict[str, Any]:
    table, _, rest = text.partition("\nHands:\n")
    hands, _, end = rest.partition("Deck size: ")
    deck, _, discards = end.partition("\nDiscards:")
    numbers = dict(line.split(": ") for line in table.splitlines())
    return {
        "lives": int(numbers["Life tokens"]),
        "information": int(numbers["Info tokens"]),
        "fireworks": {LETTERS[f[0]]: int(f[1]) for f in numbers["Fireworks"].split()},
        "deck": int(deck),
        "discards": sorted(f"{LETTERS[card[0]]} {card[1]}" for card in discards.split()),
        "hands": [
            [oracle_card(line) for line in hand.splitlines() if " || " in line]
            for hand in hands.split("-----\n")
        ],
    }


def oracle_card(line: str) -> tuple[str, set[str], set[int]]:
    card, _, told = line.partition(" || ")
    possible = told.partition("|")[2]
    shown = "hidden" if card == "XX" else f"{LETTERS[card[0]]} {card[1]}"
    return (
        shown,
        {LETTERS[letter] for letter in possible if letter in LETTERS},
        {int(digit) for digit in possible if digit.isdigit()},
    )


def facts_of_prompt(env: Any, text: str, position: int) -> dict[str, Any]:
    def after(start: str) -> str:
        (found,) = re.findall(rf"^{re.escape(start)}(.*)$", text, re.MULTILINE)
        return str(found)

    fireworks = after("Fireworks: ").partition(" (")[0].split(", ")
    return {
        "lives": int(after("Lives: ").split()[0]),
        "information": int(after("Information tokens: ").split()[0]),
        "fireworks": {color: int(top) for color, top in map(str.split, fireworks)},
        "deck": int(after("Cards in the deck: ").partition(".")[0]),
        "discards": prompt_discards(after("Discards: ")),
        "hands": prompt_hands(env, text, position),
        "moves": prompt_moves(text),
    }


def prompt_discards(text: str) -> list[str]:
    piles = [] if text == "none" else [pile.split() for pile in text.split(", ")]
    return sorted(f"{color} {rank}" for color, *ranks in piles for rank in ranks)


def prompt_hands(env: Any, text: str, position: int) -> list[list[tuple[str, set[str], set[int]]]]:
    """The hands in the order of play, from the reader's own on; so must their titles go."""
    others = [*env.roles[position + 1 :], *env.roles[:position]]
    titles = ["Your hand, as hints told you:", *(f"{name} has (and was told):" for name in others)]
    hands: list[list[tuple[str, set[str], set[int]]]] = []
    for line in text.partition("Discards: ")[2].partition("\nLast moves")[0].splitlines()[1:]:
        if not line[0].isdigit():
            assert line == titles[len(hands)]
            hands.append([])
            continue
        found = CARD_LINE.fullmatch(line)
        assert found
        assert int(found["position"]) == len(hands[-1]) + 1
        known = possible(env.config, found["colors"], found["ranks"])
        hands[-1].append((found["card"] or "hidden", *known))
    return hands


def possible(config: Any, colors: str, ranks: str) -> tuple[set[str], set[int]]:
    every = set(COLORS[: config.num_colors]), set(range(1, config.num_ranks + 1))
    return (
        every[0] if colors == "any color" else set(colors.split("/")),
        every[1] if ranks == "any rank" else {int(r) for r in ranks[5:].split("/")},
    )


def prompt_moves(text: str) -> set[str]:
    found = re.search(r"Legal moves: (.*)$", text)
    groups = found[1].split("; ") if found else []
    return {
        f"{start} {end}"
        for group in groups
        for start, _, ends in [group.rpartition(" ")]
        for end in ends.split("/")
    }
