"""The expected gradient of every algorithm against the exact policy gradient, by enumeration."""

from pathlib import Path

import pytest
from credit_cases import CASES, REPLAY, checked
from credit_games import Game, checking, coordination, games, sequential
from credit_gradients import (
    TEAM,
    GamePlayer,
    Setup,
    check,
    every_line,
    exact_gradient,
    return_of,
)
from credit_table import TABLE, between_marks, table_text

from pettingllms.algos import make_algorithm
from pettingllms.config import RewardConfig
from pettingllms.registry import ALGORITHMS

DOCS = Path(__file__).parents[3] / "docs"
PAIRS = [(number, game) for number, case in enumerate(CASES) for game in case.games]


def _name(pair: tuple[int, str]) -> str:
    case, game = CASES[pair[0]], pair[1]
    return "-".join(part.replace(" ", "_") for part in (case.algo, case.label, game) if part)


def test_every_algorithm_is_checked() -> None:
    assert {case.algo for case in CASES} == set(ALGORITHMS.names())
    assert len(games()) >= 6


@pytest.mark.parametrize("pair", PAIRS, ids=_name)
def test_expected_gradient_is_exact_or_biased_as_documented(pair: tuple[int, str]) -> None:
    number, game = pair
    case, found = CASES[number], checked(number, game)
    assert found.whole.is_exact == (game not in case.biased), found.whole
    assert found.whole.cosine >= case.least - 1e-9
    assert found.whole.scale > 0
    assert tuple(found.wrong_signs) == case.wrong.get(game, ())


@pytest.mark.parametrize("p", [0.3, 0.5, 0.7, 0.9])
def test_a_speaker_whose_listener_acts_gets_its_part_of_the_credit(p: float) -> None:
    """With the listener's recorded reply, the speaker's advantage was exactly 0 at every p."""
    found = check(sequential(p), Setup("counterfactual", rollout=REPLAY, size=1))
    assert found.whole.is_exact
    exact, estimate = found.by_prompt["speaker|"].exact, found.by_prompt["speaker|"].estimate
    assert estimate == pytest.approx(2 * exact)
    assert abs(estimate[1]) == pytest.approx(2 * 0.8 * p * (1 - p))


def test_a_first_mover_is_not_blamed_in_a_game_of_coordination() -> None:
    """With frozen replies the gradient at p = 0.9 had the wrong sign."""
    setup = Setup("counterfactual", {"train_alternatives": False}, REPLAY, size=1)
    found = check(coordination(0.9), setup)
    assert found.whole.is_exact
    assert found.by_prompt["first|"].estimate[0] > 0


def accepting(solves: float, num_siblings: int, **options: str) -> tuple[float, float]:
    """The mean advantage of accepting a wrong plan, as AT-GRPO gives it and as it truly is."""

    class NotLate(Game):
        late_rewards = False

    game = NotLate(checking(solves))
    rollout = {"type": "tree", "num_samples": num_siblings, "select": "sampled", **options}
    algorithm = make_algorithm("at_grpo", standardize=False)
    reached = given = 0.0
    for chance, episode in GamePlayer(game, rollout).episodes(0):
        algorithm.assign([episode])
        for turn in episode.turns:
            if (
                turn.messages[0].text == "checker|"
                and turn.text == "A"
                and turn.links.branch is not None
            ):
                reached += chance
                given += chance * (turn.credit.advantage or 0.0)
    lines = list(every_line(game, game.reset(game.tasks("train")[0], 0)))
    first = [(line.chance, line.steps[0], return_of(line, "checker", TEAM)) for line in lines]
    # a reply answers for its own process reward, and for the team reward at the end
    worth = [(p, said, r + step.process["checker"].value) for p, (_, said, step), r in first]
    mean = sum(p * r for p, _, r in worth)
    accepted = [r for _, said, r in worth if said["checker"] == "A"]
    return given / reached * num_siblings / (num_siblings - 1), accepted[0] - mean


@pytest.mark.parametrize("solves", [0.25, 0.3])
def test_accepting_a_wrong_plan_is_credited_with_what_it_is_worth(solves: float) -> None:
    """Compared by process rewards alone, it looked good: others made the plan worse at once, and
    that they might still solve the puzzle was not counted."""
    given, true = accepting(solves, 2)
    assert true < -0.1
    assert given == pytest.approx(true)
    excluded, _ = accepting(solves, 2, continuation="none")
    assert excluded == 0.0


def test_the_enumeration_tells_a_wrong_gradient_from_a_right_one() -> None:
    """The truth of one game is not that of another, and myopic credit is caught."""
    exact = [exact_gradient(Game(rules), RewardConfig()) for rules in games().values()]
    assert len({tuple(sorted(one.items())) for one in exact}) == len(exact)
    myopic = {"num_samples": 2, "continuation": "none", "select": "sampled"}
    found = check(games()["late reward"], Setup("at_grpo", {"standardize": False}, myopic))
    assert found.whole.cosine < 0
    assert found.wrong_signs == ["a|"]


def test_the_documented_table_is_what_the_enumeration_finds() -> None:
    shown = between_marks((DOCS / "concepts" / "credit_assignment.md").read_text(encoding="utf-8"))
    assert shown == table_text(), f"run `python docs/make_credit.py`; it rewrites {TABLE}"
