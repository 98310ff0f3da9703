"""What must hold for every algorithm, whatever the rewards."""

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import LOST, linear, removals, rewards, siblings

from pettingllms.algos import make_algorithm
from pettingllms.algos.base import Algorithm
from pettingllms.registry import ALGORITHMS
from pettingllms.types import Episode

ALL = ALGORITHMS.names()
SIBLINGS = ["at_grpo", "counterfactual"]
CRITICS = ["ppo", "mappo"]
PLAYS = ["grpo", "dr_grpo", "rloo", "magrpo", "dr_mas"]
SUM_TO_ZERO = [*PLAYS, "reinforce_pp", "debate", *SIBLINGS, *CRITICS]
COMPARE_WITHIN_A_TASK = [*PLAYS, "remove_role", *SIBLINGS]

values = st.floats(-10, 10).map(lambda x: round(x, 3))
tables = st.lists(
    st.lists(st.tuples(values, values), min_size=2, max_size=5), min_size=1, max_size=4
)


def batch(name: str, table: list[list[tuple[float, float]]]) -> list[Episode]:
    """Episodes that the algorithm can read: for each task a list of plays, or of siblings."""
    if name in SIBLINGS:
        return [siblings(f"t{t}", "a", [a for a, _ in plays]) for t, plays in enumerate(table)]
    if name == "remove_role":
        return [
            removals(f"t{t}", n, ("a", "b"), a, {"a": b, "b": (a + b) / 2})
            for t, plays in enumerate(table)
            for n, (a, b) in enumerate(plays)
        ]
    return [
        linear(
            f"t{t}",
            n,
            ("a", rewards(process={"a": a})),
            ("b", rewards(process={"b": b}, team=a + b)),
        )
        for t, plays in enumerate(table)
        for n, (a, b) in enumerate(plays)
    ]


def credit(algorithm: Algorithm, episodes: list[Episode]) -> dict[tuple[str, int], float | None]:
    algorithm.assign(episodes)
    return {
        (episode.id, at): turn.credit.advantage
        for episode in episodes
        for at, turn in enumerate(episode.turns)
    }


def trained(found: dict[tuple[str, int], float | None]) -> dict[tuple[str, int], float]:
    return {turn: advantage for turn, advantage in found.items() if advantage is not None}


def near(expected: dict[tuple[str, int], float]) -> object:
    return pytest.approx(expected, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("name", SUM_TO_ZERO)
@given(table=tables)
def test_the_advantages_of_a_group_sum_to_zero(name: str, table) -> None:
    algorithm = make_algorithm(name)
    for group in algorithm.groups(batch(name, table)):
        assert sum(algorithm.advantages(group)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", ALL)
@given(table=tables, chance=st.integers(0, 2**32))
def test_the_order_of_episodes_does_not_matter(name: str, table, chance: int) -> None:
    episodes = batch(name, table)
    expected = credit(make_algorithm(name), episodes)
    shuffled = episodes[:]
    random.Random(chance).shuffle(shuffled)
    assert credit(make_algorithm(name), shuffled) == expected


@pytest.mark.parametrize("name", ALL)
@given(table=tables, chance=st.integers(0, 2**32))
def test_the_position_of_a_turn_in_the_list_does_not_matter(name: str, table, chance: int) -> None:
    episodes = batch(name, table)
    make_algorithm(name).assign(episodes)
    expected = {id(turn): turn.credit.advantage for e in episodes for turn in e.turns}
    for episode in episodes:
        order = list(range(len(episode.turns)))
        random.Random(chance).shuffle(order)
        episode.turns = [episode.turns[old] for old in order]
        for step in episode.steps:
            step.turns = tuple(order.index(old) for old in step.turns)
    make_algorithm(name).assign(episodes)
    assert {id(turn): turn.credit.advantage for e in episodes for turn in e.turns} == expected


@pytest.mark.parametrize("name", COMPARE_WITHIN_A_TASK)
@given(table=tables, constants=st.lists(st.integers(-5, 5), min_size=4, max_size=4))
def test_a_constant_on_all_rewards_of_a_task_changes_nothing(name: str, table, constants) -> None:
    moved = [[(a + c, b + c) for a, b in plays] for plays, c in zip(table, constants, strict=False)]
    before = trained(credit(make_algorithm(name), batch(name, table)))
    assert trained(credit(make_algorithm(name), batch(name, moved))) == near(before)


@pytest.mark.parametrize("name", ALL)
@given(table=tables, number=st.integers(1, 3))
def test_failed_turns_change_nothing_and_are_not_trained_on(name: str, table, number: int) -> None:
    clean = credit(make_algorithm(name), batch(name, table))
    if name in SIBLINGS:
        spoilt = [
            siblings(f"t{t}", "a", [*[a for a, _ in plays], *[LOST] * number])
            for t, plays in enumerate(table)
        ]
    else:
        lost = [
            linear("t0", 90 + n, ("a", rewards(team=1e6)), ("b", rewards(team=1e6)), failure=LOST)
            for n in range(number)
        ]
        spoilt = [*lost, *batch(name, table)]
    found = credit(make_algorithm(name), spoilt)
    assert {key: found[key] for key in clean} == clean
    assert all(found[key] is None for key in found.keys() - clean.keys())


@pytest.mark.parametrize("name", ALL)
@given(table=tables)
def test_a_turn_is_in_one_group_at_most(name: str, table) -> None:
    groups = make_algorithm(name).groups(batch(name, table))
    seen = [id(turn) for group in groups for member in group.members for turn in member.turns]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", ALL)
@given(table=tables)
def test_state_survives_a_round_trip(name: str, table) -> None:
    first, second = make_algorithm(name), make_algorithm(name)
    first.assign(batch(name, table))
    second.load_state(copy.deepcopy(first.state()))
    assert credit(second, batch(name, table)) == credit(first, batch(name, table))
