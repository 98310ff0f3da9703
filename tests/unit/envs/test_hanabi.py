import pickle
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.text import Text

from pettingllms.envs import check_env, make_env
from pettingllms.envs.contract import NONSENSE
from pettingllms.envs.games.hanabi import Hanabi, HanabiConfig
from pettingllms.envs.games.hanabi.replies import move_text, read_move
from pettingllms.envs.games.hanabi.rules import Card, Held, Table, legal_moves
from pettingllms.envs.games.hanabi.views import hidden_from
from pettingllms.envs.toolkit.answers import BadReply, as_reply
from pettingllms.types import Scored, Task

VARIANTS: list[dict[str, int]] = [
    {},
    {"num_players": 3},
    {"num_players": 4},
    {"num_players": 5},
    {"num_colors": 2, "hand_size": 2, "max_information": 3, "max_lives": 1},
    {"num_colors": 1, "num_ranks": 1, "hand_size": 1, "max_information": 1},
    {"num_players": 5, "num_colors": 2, "num_ranks": 2, "hand_size": 1},
    {"num_colors": 1, "num_ranks": 5},
]


def cards(text: str) -> list[Card]:
    return [Card("RYGWB".index(word[0]), int(word[1])) for word in text.split()]


def dealt(env: Any, *hands: str, deck: str = "B4 B4 B3", **changes: Any) -> Table:
    """A table with these hands and this deck, before any hint."""
    start = env.reset(Task("any"), 0)
    fresh = start.hands[0][0]
    held = tuple(tuple(replace(fresh, card=card) for card in cards(hand)) for hand in hands)
    return replace(start, hands=held, deck=tuple(cards(deck)), **changes)


def plays(env: Any, player: str, seed: int, share_bad: float = 0.0) -> Iterator[tuple[Any, Any]]:
    """Every state of a play with the step that followed it."""
    rng = random.Random(seed)
    state = env.reset(env.tasks("train")[seed], seed)
    for _ in range(500):
        acting = env.acting(state)
        if not acting:
            return
        reply = env.players[player](env, state, acting[0], rng)
        if rng.random() < share_bad:
            reply = rng.choice(NONSENSE)
        result = env.step(state, {acting[0]: reply})
        yield state, result
        state = result.state
    pytest.fail("not over after 500 steps")


@cache
def many_states() -> tuple[tuple[Any, Table], ...]:
    """200 states of all sorts, with their environments."""
    found: list[tuple[Any, Table]] = []
    for seed in range(40):
        env = make_env("hanabi-v1", num_players=2 + seed % 4, max_lives=5)
        player = ("random", "cautious")[seed // 4 % 2]
        states = [state for state, _ in plays(env, player, seed, share_bad=0.05)]
        chosen = [states[-1], *random.Random(seed).choices(states, k=4)]
        found += [(env, state) for state in chosen]
    return tuple(found)


def prompt(env: Any, state: Any, role: str) -> str:
    return str(env.observe(state, role)[-1].content)


@pytest.mark.parametrize("options", VARIANTS)
def test_keeps_the_contract(options: dict[str, int]) -> None:
    check_env(make_env("hanabi-v1", **options), num_episodes=2)


def test_defaults_are_the_game_for_two() -> None:
    env = Hanabi()
    assert env.roles == ("player_1", "player_2")
    assert len(env.variant.cards) == 50
    sizes = [make_env("hanabi-v1", num_players=n).variant.hand_size for n in (2, 3, 4, 5)]
    assert sizes == [5, 5, 4, 4]


@pytest.mark.parametrize(
    ("num_ranks", "copies"),
    [(1, [3]), (2, [3, 1]), (3, [3, 2, 1]), (5, [3, 2, 2, 2, 1])],
)
def test_copies_of_each_rank(num_ranks: int, copies: list[int]) -> None:
    env = make_env("hanabi-v1", num_ranks=num_ranks, hand_size=1)
    state = env.reset(Task("any"), 0)
    deck = Counter([*state.deck, *(held.card for hand in state.hands for held in hand)])
    assert deck == {Card(c, r): copies[r - 1] for c in range(5) for r in range(1, num_ranks + 1)}


def test_a_deal_that_needs_more_cards_than_there_are_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"5 hands of 4 need 20 cards.*give 10; lower hand_s"):
        HanabiConfig(num_players=5, num_colors=1)
    with pytest.raises(ValidationError, match="less than or equal to 5"):
        HanabiConfig(num_players=6)


def test_the_deal_follows_from_task_and_seed() -> None:
    env = Hanabi()
    first = env.reset(Task("a", seed=1), 2)
    assert env.reset(Task("b", seed=1), 2) == first
    assert hash(env.reset(Task("b", seed=1), 2)) == hash(first)
    assert env.reset(Task("a", seed=1), 3) != first
    assert env.reset(Task("a", seed=2), 2) != first


REFUSED = [
    ("", "no <answer>...</answer> in the reply"),
    ("play 1", "no <answer>...</answer> in the reply"),
    ("<answer>play 1</answer><answer>play 2</answer>", "give one of each"),
    ("<answer> </answer>", "nothing stands between"),
    ("<answer>pass</answer>", "does not start with play, discard or hint"),
    ("<answer>1</answer>", "does not start with play, discard or hint"),
    ("<answer>play</answer>", "after play comes one position and nothing else"),
    ("<answer>play 1 2</answer>", "after play comes one position and nothing else"),
    ("<answer>play red</answer>", "not a number from 1 to 5"),
    ("<answer>play 0</answer>", "not a number from 1 to 5"),
    ("<answer>play 6</answer>", "not a number from 1 to 5"),
    ("<answer>play ²</answer>", "not a number from 1 to 5"),
    ("<answer>play 01</answer>", "not a number from 1 to 5"),
    ("<answer>discard 6</answer>", "not a number from 1 to 5"),
    ("<answer>discard 1</answer>", "all 8 information tokens are there already"),
    ("<answer>hint red</answer>", "after hint come one player and one color or rank"),
    ("<answer>hint player_2 red 1</answer>", "after hint come one player and one color or rank"),
    ("<answer>hint player_3 red</answer>", "nobody at the table has that name"),
    ("<answer>hint player_1 red</answer>", "a hint cannot go to yourself"),
    ("<answer>hint player_2 pink</answer>", "a hint names a color"),
    ("<answer>hint player_2 6</answer>", "a rank from 1 to 5"),
    ("<answer>hint player_2 0</answer>", "a rank from 1 to 5"),
    ("<answer>hint player_2 blue</answer>", "player_2 holds no card that blue would touch"),
    ("<answer>hint player_2 5</answer>", "player_2 holds no card that 5 would touch"),
]


@pytest.mark.parametrize(("reply", "reason"), REFUSED)
def test_a_refusal_says_why_and_costs_a_life_and_the_turn(reply: str, reason: str) -> None:
    env = Hanabi()
    state = dealt(env, "R1 R1 R2 R2 R3", "R1 Y1 Y2 G3 W4")
    with pytest.raises(BadReply) as refusal:
        read_move(env.variant, state, reply)
    assert reason in str(refusal.value)
    result = env.step(state, {"player_1": reply})
    assert result.rewards.process == {"player_1": Scored(-0.5)}
    assert result.rewards.team == Scored(0.0)
    assert result.metrics == {"score": 0.0, "lives": 2.0, "information": 8.0, "illegal": 1.0}
    assert replace(result.state, lives=3, mover=0, events=()) == state
    assert str(refusal.value) in prompt(env, result.state, "player_1")


def test_more_refusals_by_the_table() -> None:
    env = make_env("hanabi-v1", num_colors=2, num_ranks=3, hand_size=2)
    state = dealt(env, "R1 R1", "R1 Y1", information=0)
    for answer, reason in [
        ("hint player_2 red", "no information token is left"),
        ("hint player_2 green", r"a hint names a color \(red, yellow\) or a rank from 1 to 3"),
        ("play 3", "not a number from 1 to 2"),
    ]:
        with pytest.raises(BadReply, match=reason):
            read_move(env.variant, state, as_reply(answer))


def test_a_reply_may_be_written_loosely() -> None:
    env = Hanabi()
    state = dealt(env, "R1 R1 R2 R2 R3", "R1 Y1 Y2 G3 W4", information=7)
    for reply, meant in [
        ("I think <answer>\n PLAY  1 </answer> is best", "play 1"),
        ("<answer>Discard 5</answer>", "discard 5"),
        ("<answer>hint Player_2 Red</answer>", "hint player_2 red"),
        ("<answer>hint player_2 4</answer>", "hint player_2 4"),
    ]:
        assert move_text(read_move(env.variant, state, reply)) == meant


def test_every_legal_move_is_read_as_it_is_said() -> None:
    for env, state in many_states():
        for move in legal_moves(env.variant, state):
            assert read_move(env.variant, state, as_reply(move_text(move))) == move


def test_a_refusal_is_shown_to_no_other_player() -> None:
    env = make_env("hanabi-v1", num_players=3)
    state = dealt(env, "R1 R1 R2 R2 R3", "R1 Y1 Y2 G3 W4", "W1 W1 W2 W2 W3")
    state = env.step(state, {"player_1": "<answer>hint player_2 blue</answer>"}).state
    assert "you: no legal move (player_2 holds no card that blue would touch)" in prompt(
        env, state, "player_1"
    )
    for other in ("player_2", "player_3"):
        assert "player_1: no legal move, a life lost" in prompt(env, state, other)
        assert "blue" not in prompt(env, state, other).partition("Last moves")[2]


@settings(max_examples=200, deadline=None)
@given(text=st.text(), at=st.integers(0, 199), tagged=st.booleans())
def test_any_reply_is_an_event_of_the_game(text: str, at: int, tagged: bool) -> None:
    env, state = many_states()[at]
    acting = env.acting(state)
    result = env.step(state, {acting[0]: as_reply(text) if tagged else text})
    assert result.metrics["illegal"] in (0.0, 1.0)
    assert (state.lives > result.state.lives) or not result.metrics["illegal"]


@pytest.mark.parametrize("reply", NONSENSE)
def test_nonsense_for_ever_ends_the_game(reply: str) -> None:
    env = Hanabi()
    state = replace(env.reset(Task("any"), 0), fireworks=(2, 1, 0, 0, 0))
    team = 0.0
    for lives in (2, 1, 0):
        acting = env.acting(state)
        result = env.step(state, {acting[0]: reply})
        state = result.state
        assert state.lives == lives
        assert result.rewards.process == {acting[0]: Scored(-0.5)}
        assert isinstance(result.rewards.team, Scored)
        team += result.rewards.team.value
    assert env.acting(state) == ()
    assert team == -3.0
    assert state.score == 0
    assert not env.success(state, "player_1")


def test_a_refused_reply_uses_up_a_turn_of_the_last_round() -> None:
    env = Hanabi()
    state = dealt(env, "R1 R1 R2 R2 R3", "R1 Y1 Y2 G3 W4", deck="")
    assert "Turns left: 2." in prompt(env, state, "player_1")
    state = env.step(state, {"player_1": "no"}).state
    state = env.step(state, {"player_2": "no"}).state
    assert state.lives == 1
    assert env.acting(state) == ()
    assert "The game is over with 0 of 25 points." in prompt(env, state, "player_1")


def test_a_card_that_fits_earns_a_point_and_one_that_does_not_costs_a_life() -> None:
    env = Hanabi()
    state = dealt(env, "R1 R4 R2 R2 R3", "R1 Y1 Y2 G3 W4", deck="B4 B5 G1")
    result = env.step(state, {"player_1": "<answer>play 1</answer>"})
    assert result.rewards.team == Scored(1.0)
    assert [held.card for held in result.state.hands[0]] == cards("R4 R2 R2 R3 B4")
    assert "- player_1: play 1, red 1, a point" in prompt(env, result.state, "player_2")
    result = env.step(result.state, {"player_2": "<answer>play 4</answer>"})
    assert result.rewards.team == Scored(0.0)
    assert result.state.discards == tuple(cards("G3"))
    assert result.metrics["lives"] == 2.0
    text = prompt(env, result.state, "player_1")
    assert "- player_2: play 4, green 3, does not fit, a life lost" in text
    assert "- you: play 1, red 1, a point" in text


def test_losing_the_last_life_takes_the_points_back() -> None:
    env = make_env("hanabi-v1", max_lives=1)
    state = dealt(env, "R1 R4 R2 R2 R3", "R1 Y1 Y2 G3 W4", fireworks=(3, 0, 0, 0, 1))
    result = env.step(state, {"player_1": "<answer>play 1</answer>"})
    assert result.rewards.team == Scored(-4.0)
    assert result.metrics["score"] == 0.0
    assert env.acting(result.state) == ()


def test_a_finished_color_gives_a_token_back_if_one_is_missing() -> None:
    env = Hanabi()
    state = dealt(env, "R5 R4 R2 R2 R3", "R1 Y1 Y2 G3 W4", fireworks=(4, 0, 0, 0, 0))
    play = {"player_1": "<answer>play 1</answer>"}
    assert env.step(state, play).state.information == 8
    assert env.step(replace(state, information=3), play).state.information == 4


def test_a_hint_tells_of_every_card_of_the_hand() -> None:
    env = Hanabi()
    state = dealt(env, "R1 R4 R2 R2 R3", "R1 Y1 Y2 G3 W4")
    state = env.step(state, {"player_1": "<answer>hint player_2 1</answer>"}).state
    assert state.information == 7
    text = prompt(env, state, "player_2")
    assert "1: any color, rank 1\n2: any color, rank 1\n3: any color, rank 2/3/4/5" in text
    assert "- player_1: hint you 1, touching 1 2" in text
    assert "1: red 1 (any color, rank 1)" in prompt(env, state, "player_1")


def test_success_is_the_perfect_score() -> None:
    env = make_env("hanabi-v1", num_colors=1, num_ranks=2, hand_size=1)
    state = dealt(env, "R2", "R1", deck="R1", fireworks=(1,))
    after = env.step(state, {"player_1": "<answer>play 1</answer>"}).state
    assert env.acting(after) == ()
    assert all(env.success(after, role) for role in env.roles)
    assert not env.success(state, "player_1")


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("player", ["random", "cautious"])
def test_the_rewards_of_the_team_add_up_to_the_score(options: dict[str, int], player: str) -> None:
    env = make_env("hanabi-v1", **options)
    for seed in range(2):
        results = [result for _, result in plays(env, player, seed, share_bad=0.02)]
        assert sum(result.rewards.team.value for result in results) == results[-1].state.score


def test_a_redeal_changes_what_is_hidden_and_nothing_that_is_seen() -> None:
    num_changed_hands = num_states = 0
    for at, (env, state) in enumerate(many_states()):
        rng = random.Random(at)
        for position, role in enumerate(env.roles):
            other = env.redeal(state, role, rng)
            assert hidden_from(other, position) == hidden_from(state, position)
            assert env.observe(other, role) == env.observe(state, role)
            assert env.draw(other, role) == env.draw(state, role)
            assert env.hint(other, role) == env.hint(state, role)
            assert all(consistent(held) for held in other.hands[position])
            assert hidden(other, position) == hidden(state, position)
            if state.deck:
                num_states += 1
                num_changed_hands += other.hands[position] != state.hands[position]
    assert num_states > 400
    assert num_changed_hands > 0.9 * num_states


def consistent(held: Held) -> bool:
    return held.card.color in held.colors and held.card.rank in held.ranks


def hidden(state: Table, position: int) -> Counter[Card]:
    return Counter([*state.deck, *(held.card for held in state.hands[position])])


def test_a_redeal_draws_every_consistent_hand_alike() -> None:
    env = make_env("hanabi-v1", num_colors=2, num_ranks=2, hand_size=2)
    state = dealt(env, "R1 Y1", "R1 Y1", deck="R2 Y2 R1 Y1")
    state = env.step(state, {"player_1": "<answer>hint player_2 1</answer>"}).state
    state = env.step(state, {"player_2": "<answer>hint player_1 red</answer>"}).state
    rng = random.Random(0)
    drawn = Counter(
        tuple(held.card for held in env.redeal(state, "player_1", rng).hands[0])
        for _ in range(4000)
    )
    weights = {"R1 Y1": 4, "R1 Y2": 2, "R2 Y1": 2, "R2 Y2": 1}
    assert set(drawn) == {tuple(cards(text)) for text in weights}
    for text, weight in weights.items():
        assert drawn[tuple(cards(text))] == pytest.approx(4000 * weight / 9, rel=0.15)


def test_cautious_knows_only_what_its_role_sees() -> None:
    for at, (env, state) in enumerate(many_states()):
        (role,) = env.acting(state)
        replies = {
            env.players["cautious"](env, table, role, random.Random(7))
            for table in (state, *(env.redeal(state, role, random.Random(n)) for n in range(2)))
        }
        assert len(replies) == 1, at


def test_cautious_plays_well_and_random_does_not() -> None:
    env = Hanabi()
    means = {
        player: statistics.mean([list(plays(env, player, n))[-1][1].state.score for n in range(20)])
        for player in env.players
    }
    assert means["cautious"] > 16
    assert means["random"] < 3


def test_prompts_for_two_stay_short() -> None:
    env = Hanabi()
    for seed in range(10):
        for state, _ in plays(env, "cautious", seed):
            assert len(prompt(env, state, env.acting(state)[0])) < 1200


def test_drawings_are_good_markup_and_hide_what_the_prompt_hides() -> None:
    for env, state in many_states()[::3]:
        for role in env.roles:
            drawn = Text.from_markup(env.draw(state, role)).plain
            (own,) = [line for line in drawn.splitlines() if "you  " in line]
            assert "?? " in own
            assert max(map(len, drawn.partition("\n- ")[0].splitlines()[3:])) < 80
    assert env.hint(state, env.acting(state)[0]).startswith("play 1/2")
    waiting = next(role for role in env.roles if role not in env.acting(state))
    assert env.hint(state, waiting) == "nothing: it is not your turn"


def test_solo_plays_every_role_and_sees_what_that_role_sees() -> None:
    team = make_env("hanabi-v1", num_players=3)
    solo = make_env("hanabi-v1", num_players=3, solo=True)
    solo = pickle.loads(pickle.dumps(solo))  # noqa: S301 - bytes that we made just now
    assert solo.roles == ("solo",)
    assert set(solo.players) == {"random", "noisy", "cautious"}
    alone = list(plays(solo, "cautious", 3, share_bad=0.03))
    together = list(plays(team, "cautious", 3, share_bad=0.03))
    for (state, result), (table, expected) in zip(alone, together, strict=True):
        (role,) = team.acting(table)
        assert (state.inner, state.inner_role) == (table, role)
        assert solo.observe(state, "solo") == team.observe(table, role)
        assert solo.draw(state, "solo") == team.draw(table, role)
        assert solo.hint(state, "solo") == team.hint(table, role)
        assert result.state.inner == expected.state
        assert result.rewards.team == expected.rewards.team
        assert list(result.rewards.process.values()) == list(expected.rewards.process.values())
    assert {state.inner_role for state, _ in alone} == set(team.roles)
