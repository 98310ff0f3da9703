"""Regret against exact values: tic-tac-toe by minimax, teams by what they could have agreed on."""

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.tic_tac_toe.env import Board
from pettingllms.envs.tic_tac_toe.players import value
from pettingllms.errors import SolveError
from pettingllms.solve import Tree, distance, measure, play_value, refuse_unread
from pettingllms.solve.distance import read
from pettingllms.solve.team import best_team_value
from small_games import Signal, uniform

TINY = {"num_colors": 1, "hand_size": 1, "max_information": 1, "max_lives": 1, "terse": True}


@pytest.fixture(scope="module")
def board() -> Tree:
    return Tree(make_env("tic_tac_toe-v1", terse=True))


def perfect(tree: Tree):
    """Any of the best moves, by the minimax of the scripted player."""
    table = {}
    for index, info in enumerate(tree.infos):
        state = tree.states[info.nodes[0]]
        mark, rival = ("X", "O") if info.role == "player_x" else ("O", "X")
        worth = []
        for reply in info.replies:
            at = int(reply) - 1
            worth.append(-value(state.cells[:at] + mark + state.cells[at + 1 :], rival))
        best = [float(w == max(worth)) for w in worth]
        table[index] = [one / sum(best) for one in best]
    return table


def test_every_position_of_tic_tac_toe_is_there_once(board: Tree) -> None:
    assert len(board.nodes) == 5478
    assert len(board.infos) == 4520
    assert board.is_open


def test_minimax_has_no_regret_and_chance_has(board: Tree) -> None:
    assert measure(board, perfect(board), board.roles) == pytest.approx(
        {"nash_conv": 0, "regret": 0}, abs=1e-12
    )
    found = measure(board, read(board, uniform), board.roles)
    assert 1.8 < found["nash_conv"] < 2
    assert 0.5 < found["regret"] < 0.8


def test_one_bad_move_is_found_and_weighed(board: Tree) -> None:
    """X could win by blocking, and loses: that gives away 2 in one position, and nothing else."""
    table = perfect(board)
    state = Board("OO.X....X", "player_x")
    (index,) = (at for at, info in enumerate(board.infos) if board.states[info.nodes[0]] == state)
    table[index] = [float(reply == "5") for reply in board.infos[index].replies]
    positions = sum(info.role == "player_x" for info in board.infos)
    found = measure(board, table, ["player_x"])
    assert found["regret"] == pytest.approx(2 / positions)
    assert measure(board, table, ["player_o"])["regret"] == pytest.approx(0)


def test_openings_by_chance_are_weighed_as_they_are_drawn() -> None:
    env = make_env("tic_tac_toe-v1", terse=True, max_opening=3)
    starts = {board: chance for chance, board in env.starts()}
    assert sum(starts.values()) == pytest.approx(1)
    assert starts[Board()] == pytest.approx(1 / 4)
    tasks = env.tasks("train")[:1000]
    drawn = [env.reset(task, seed) for task in tasks for seed in range(4)]
    assert set(drawn) <= set(starts)
    middle = Board("....X....", "player_o")
    assert drawn.count(middle) / len(drawn) == pytest.approx(starts[middle], abs=0.01)


def test_two_words_for_three_things_are_right_eight_times_in_ten() -> None:
    env = Signal()
    tree = Tree(env)
    assert best_team_value(tree) == pytest.approx(0.8)
    assert play_value(tree, read(tree, uniform))["a"] == pytest.approx(1 / 3)
    assert distance(env, uniform) == {"regret": pytest.approx(0.8 - 1 / 3)}


def test_tiny_hanabi_has_an_exact_value_that_no_policy_beats() -> None:
    tree = Tree(make_env("hanabi-v1", num_ranks=2, **TINY))
    assert best_team_value(tree) == pytest.approx(2.0)
    regret = measure(tree, read(tree, uniform), tree.roles)["regret"]
    assert regret == pytest.approx(2.0 - 0.523148, abs=1e-5)


def test_deals_of_hanabi_are_those_of_the_deck() -> None:
    env = make_env("hanabi-v1", num_ranks=3, **TINY)
    starts = list(env.starts())
    assert len(starts) == 60
    assert sum(chance for chance, _ in starts) == pytest.approx(1)
    tables = {table for _, table in starts}
    assert len(tables) == 60
    assert {env.reset(task, 0) for task in env.tasks("train")[:300]} <= tables


def test_a_team_is_refused_if_not_all_of_it_can_be_read() -> None:
    tree = Tree(Signal())
    refuse_unread(tree, ["a", "b"])
    with pytest.raises(SolveError, match="those of b have no engine"):
        refuse_unread(tree, ["a"])


def test_a_game_that_is_neither_zero_sum_nor_a_teams_is_refused() -> None:
    from pettingllms.types import Rewards, Scored
    from small_games import Coins

    class Market(Coins):
        def pay(self, state):
            return Rewards(agent={"a": Scored(1.0), "b": Scored(0.5)})

    with pytest.raises(SolveError, match="neither a zero-sum game"):
        refuse_unread(Tree(Market()), ["a", "b"])
