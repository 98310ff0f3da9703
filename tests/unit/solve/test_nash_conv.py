"""NashConv and values of games that are known by heart, and of toys worked out by hand."""

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.kuhn_poker.players import chance_of_chips
from pettingllms.errors import SolveError
from pettingllms.solve import Tree, best_reply_value, distance, lost, measure, nash_conv
from pettingllms.solve.distance import read
from small_games import Coins, Forgetful, uniform

kuhn = make_env("kuhn_poker-v1", terse=True)


def perfect(infos):
    found = []
    for info in infos:
        card, *said = info.messages[0].content.split()
        chips = chance_of_chips(card, tuple(said))
        found.append([1 - chips, chips])
    return found


def test_the_uniform_policy_is_as_far_as_is_known() -> None:
    assert nash_conv(kuhn, uniform) == pytest.approx(11 / 12)


def test_kuhns_own_solution_is_perfect_and_worth_what_the_game_is() -> None:
    tree = Tree(kuhn)
    table = read(tree, perfect)
    assert measure(tree, table, tree.roles)["nash_conv"] == pytest.approx(0, abs=1e-12)
    assert best_reply_value(tree, table, "player_1") == pytest.approx(-1 / 18)
    assert best_reply_value(tree, table, "player_2") == pytest.approx(1 / 18)


def test_a_best_reply_uses_what_it_sees_and_nothing_else() -> None:
    """Against one who always bets and calls, it is best to fold a jack and bet a king; a cheat
    would also fold a queen to a king."""
    tree = Tree(kuhn)
    table = read(tree, lambda infos: [[0.0, 1.0] for _ in infos])
    # K wins 2; J folds: -1; Q calls: +2 against J, -2 against K
    assert best_reply_value(tree, table, "player_2") == pytest.approx((2 - 1 + 0) / 3)


def test_a_best_reply_reads_the_other_by_what_it_does() -> None:
    """Who bets and calls with a king alone tells what it has: a queen folds to its bet, and a jack
    bluffs when it checks. Two deals lose a chip, four win one."""
    tree = Tree(kuhn)
    table = read(tree, lambda infos: [_honest(info) for info in infos])
    assert best_reply_value(tree, table, "player_2") == pytest.approx(2 / 6)


def _honest(info):
    king = info.messages[0].content.startswith("K")
    return [0.0, 1.0] if king else [1.0, 0.0]


def test_losses_of_both_seats_add_up_and_none_is_negative() -> None:
    tree = Tree(kuhn)
    table = read(tree, uniform)
    seats = {role: lost(tree, table, role) for role in tree.roles}
    assert min(seats.values()) > 0
    assert sum(seats.values()) == pytest.approx(11 / 12)
    for role in tree.roles:
        assert measure(tree, table, [role])["nash_conv"] == pytest.approx(seats[role])


def test_a_seat_needs_only_its_own_policy_to_be_read() -> None:
    tree = Tree(kuhn)
    table = read(tree, uniform)
    mine = {at: some for at, some in table.items() if tree.infos[at].role == "player_2"}
    assert measure(tree, mine, ["player_2"])["nash_conv"] == pytest.approx(
        lost(tree, table, "player_2")
    )


@pytest.mark.parametrize(
    "name", ["kuhn_poker-v1", pytest.param("leduc_poker-v1", marks=pytest.mark.slow)]
)
def test_the_values_of_the_poker_games_are_those_of_a_linear_program(name: str) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    from small_games import game_value

    tree = Tree(make_env(name, terse=True))
    value = game_value(tree, optimize.linprog)
    assert tree.values["player_1"] == pytest.approx(value, abs=1e-8)


def test_hidden_coins_cannot_be_exploited_if_they_are_tossed() -> None:
    assert distance(Coins(), uniform) == {"nash_conv": pytest.approx(0)}
    heads = distance(Coins(), lambda infos: [[1.0, 0.0] for _ in infos])
    assert heads == {"nash_conv": pytest.approx(2)}


def test_a_prompt_that_forgets_is_refused() -> None:
    with pytest.raises(SolveError, match="leaves out what it did or saw"):
        Tree(Forgetful())


@pytest.mark.parametrize(
    ("env", "options", "reason"),
    [
        ("sudoku-v1", {}, "has no starts"),
        ("hanabi-v1", {}, "more than 200 states"),
    ],
)
def test_what_cannot_be_written_out_says_so(env: str, options: dict, reason: str) -> None:
    with pytest.raises(SolveError, match=reason):
        Tree(make_env(env, **options), max_nodes=200)
