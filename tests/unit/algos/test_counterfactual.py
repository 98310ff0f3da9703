"""Counterfactual credit, estimated from replays, against what enumeration says is true."""

import math
from pathlib import Path
from typing import Any

import pytest
from choir import Choir, by_table, contribution, sing
from toys import Relay, roll

from pettingllms.algos import make_algorithm
from pettingllms.types import Episode, Failed, episode_line, read_episodes, write_episodes


def replay(env: Any, kind: str = "resampled", answer: Any = sing, **options: Any) -> list[Episode]:
    options = {"num_tasks": 5, "num_samples": 4, **options}
    return roll(env, answer, type="replay", replay=kind, **options)


def errors(num_replays: int) -> list[float]:
    """Estimate minus truth, for every turn of the main branches."""
    episodes = replay(Choir(), num_replays=num_replays)
    make_algorithm("counterfactual").assign(episodes)
    found = []
    for episode in episodes:
        for at, turn in enumerate(episode.main_turns()):
            assert turn.credit.advantage is not None
            found.append(turn.credit.advantage - contribution(episode, at, by_table))
    return found


def test_the_estimate_converges_to_what_the_reply_contributed() -> None:
    mean_abs = {}
    for number in (1, 4, 16, 64):
        found = errors(number)
        mean_abs[number] = math.fsum(map(abs, found)) / len(found)
        bias = math.fsum(found) / len(found)
        spread = math.sqrt(math.fsum(error**2 for error in found) / len(found))
        assert abs(bias) < 4 * spread / math.sqrt(len(found))
    shown = ", ".join(f"{number}: {error:.3f}" for number, error in mean_abs.items())
    print(f"mean absolute error by number of replays of rewards from 0 to 10: {shown}")
    for number in (1, 4, 16):
        assert 1.5 < mean_abs[number] / mean_abs[4 * number] < 2.7, "it falls as 1 / sqrt(n)"
    assert mean_abs[64] < 0.4


def test_what_teammates_added_by_luck_is_in_no_reply() -> None:
    """b decides everything: what a gets is 0 whether the team won or lost."""

    def only_b(a: str, b: str, c: str, encore: str) -> float:
        return {"x": 0.1, "y": 5.3, "z": -7.7}[b]

    episodes = replay(Choir(only_b), num_replays=4)
    groups = make_algorithm("counterfactual").assign(episodes)
    assert len(groups) == 5 * len(episodes)
    turns = [turn for episode in episodes for turn in episode.turns]
    assert len({e.steps[e.last].rewards.team.value for e in episodes if e.last}) == 3
    assert all(turn.credit.advantage == 0.0 for turn in turns if turn.role != "b")
    assert any(turn.credit.advantage > 1 for turn in turns if turn.role == "b")
    assert any(turn.credit.advantage < -1 for turn in turns if turn.role == "b")


@pytest.mark.parametrize("name", ["counterfactual", "remove_role"])
def test_a_role_whose_reply_never_matters_gets_exactly_nothing(name: str) -> None:
    """Who sings at the same time stays the same, and here nothing else matters."""

    def first_two_rounds(a: str, b: str, c: str, encore: str) -> float:
        return by_table(a, b, c, "")

    episodes = replay(Choir(first_two_rounds), "silent" if name == "remove_role" else "resampled")
    make_algorithm(name).assign(episodes)
    for episode in episodes:
        main_branch = episode.main_turns()
        assert [t.credit.advantage for t in main_branch if t.role == "idler"] == [0.0]
        assert any(t.credit.advantage for t in main_branch if t.role != "idler")


def test_removing_a_role_is_worth_the_difference_and_all_its_turns_share_it() -> None:
    episodes = replay(Choir(), "silent")
    make_algorithm("remove_role").assign(episodes)
    for episode in episodes:
        team = episode.steps[episode.last].rewards.team.value
        for turn in episode.main_turns():
            without = episode.steps[episode.without[turn.role]].rewards.team.value
            assert turn.credit.advantage == pytest.approx(team - without)
        assert episode.turns[0].credit.advantage == episode.turns[4].credit.advantage


def test_a_role_that_hurts_gets_less_than_nothing_and_one_that_helps_more() -> None:
    def spoilt_by_c(a: str, b: str, c: str, encore: str) -> float:
        return 3.0 * bool(b) - 2.0 * bool(c)

    episodes = replay(Choir(spoilt_by_c), "silent")
    make_algorithm("remove_role").assign(episodes)
    credit = {(t.role, t.credit.advantage) for e in episodes for t in e.main_turns()}
    assert credit == {("a", 0.0), ("b", 3.0), ("c", -2.0), ("idler", 0.0)}


def test_alternatives_are_trained_on_or_only_compared_with() -> None:
    episodes = replay(Choir(), num_replays=3)
    make_algorithm("counterfactual").assign(episodes)
    both = [turn.credit.advantage for e in episodes for turn in e.turns]
    given = [turn.credit.advantage for e in episodes for turn in e.main_turns()]
    assert None not in both
    make_algorithm("counterfactual", train_alternatives=False).assign(episodes)
    assert [turn.credit.advantage for e in episodes for turn in e.main_turns()] == given
    trained = [turn for e in episodes for turn in e.turns if turn.credit.advantage is not None]
    assert len(trained) == len(given) < len(both)


def test_turns_beyond_the_cap_are_not_trained_on() -> None:
    episodes = replay(Choir(), max_extra_tokens=31)
    make_algorithm("counterfactual").assign(episodes)
    trained = [[t.credit.advantage is not None for t in e.main_turns()] for e in episodes]
    assert all(0 < sum(one) < 5 for one in trained)
    assert all(any(column) for column in zip(*trained, strict=True)), "late turns too"


class Fragile(Relay):
    """Breaks at a reply of 9, or where a role is silent."""

    def step(self, state, replies):
        if {"9", ""} & set(replies.values()):
            raise RuntimeError("the board caught fire")
        return super().step(state, replies)


def test_a_failed_replay_is_excluded_from_training_and_from_baselines() -> None:
    def notify(request, number):
        return "295"[number] if request.num_samples > 1 else "1"

    (episode,) = replay(Fragile(), answer=notify, num_tasks=1, num_samples=1)
    make_algorithm("counterfactual").assign([episode])
    assert [turn.credit.failure is not None for turn in episode.turns[4:]] == [
        False,
        True,
        False,
    ] * 4
    for turn in episode.turns:
        # later turns say 1 again; the digit counts for the reply and, in the sum, for the team
        given, two, five = (2.0 * digit for digit in (1, 2, 5))
        expected = {
            "1": given - (two + five) / 2,
            "2": two - (given + five) / 2,
            "5": five - (given + two) / 2,
            "9": None,
        }[turn.text]
        assert turn.credit.advantage == (None if expected is None else pytest.approx(expected))
    (episode,) = replay(Fragile(), "silent", lambda r, n: "1", num_tasks=1, num_samples=1)
    assert all(isinstance(end, Failed) for end in episode.without.values())
    assert make_algorithm("remove_role").assign([episode]) == []
    assert all(turn.credit.advantage is None for turn in episode.turns)


@pytest.mark.parametrize(
    ("name", "kind"), [("counterfactual", "resampled"), ("remove_role", "silent")]
)
def test_replays_survive_a_file_and_are_scored_alike(name: str, kind: str, tmp_path: Path) -> None:
    episodes = [
        *replay(Choir(), kind),
        *replay(Fragile(), kind, lambda r, n: "195"[n % 3], max_extra_tokens=20),
    ]
    make_algorithm(name).assign(episodes)
    write_episodes(tmp_path / "e.jsonl", episodes)
    again = list(read_episodes(tmp_path / "e.jsonl"))
    assert [*map(episode_line, again)] == [*map(episode_line, episodes)]
    assert [e.without for e in again] == [e.without for e in episodes]
    if name == "remove_role":
        ends = [end for e in again for end in e.without.values()]
        assert {type(end) for end in ends} == {int, Failed}
    expected = [turn.credit.advantage for e in episodes for turn in e.turns]
    make_algorithm(name).assign(again)
    assert [turn.credit.advantage for e in again for turn in e.turns] == expected
    assert any(expected)
