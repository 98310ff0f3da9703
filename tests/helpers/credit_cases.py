"""Every algorithm as the enumeration checks it: where it is exact, and what biases it elsewhere.

An algorithm that is in the registry and not here fails the test; so does a bias that is listed and
gone, or there and not listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from credit_games import games
from credit_gradients import TEAM, Check, Setup, check

LATE = "late reward"
STOP = "stopping"
OWN = "own rewards"
ALL_GAMES = tuple(games())
TEAM_GAMES = tuple(name for name, rules in games().items() if rules.has_team)
LIGHT = ("sequential", LATE, "coordination", OWN)
PLAIN = {"standardize": False}
TREE = {"num_samples": 2, "continuation": "episode", "select": "sampled"}
REPLAY = {"replay": "resampled", "num_replays": 1}


@dataclass(frozen=True)
class Case:
    """An algorithm with options, and what is guaranteed of its expected gradient."""

    setup: Setup
    label: str
    """The options, for a table."""
    games: tuple[str, ...] = ALL_GAMES
    biased: tuple[str, ...] = ()
    """Games in which the expected gradient is not the exact one, up to a positive scale."""
    why: str = ""
    """What biases it."""
    least: float = 1.0
    """The cosine that is guaranteed between both."""
    wrong: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By game, prompts at which the expected gradient makes the return worse."""

    @property
    def algo(self) -> str:
        return self.setup.algo


DIVISION = "division by the deviation"
LATER = "a reply does not answer for the process rewards of later turns"
CASES = (
    Case(Setup("rloo"), ""),
    Case(Setup("rae", batch="tasks", size=1), ""),
    Case(Setup("ppo", PLAIN, batch="tasks", size=1), "standardize = false"),
    Case(Setup("mappo", PLAIN, batch="tasks", size=1), "standardize = false"),
    Case(Setup("vdn", PLAIN, batch="tasks", size=1, mix=TEAM), "standardize = false", TEAM_GAMES),
    Case(Setup("qmix", PLAIN, batch="tasks", size=1, mix=TEAM), "standardize = false", TEAM_GAMES),
    Case(
        Setup("counterfactual", rollout=REPLAY, size=1),
        "",
        biased=(STOP,),
        why=LATER,
        least=0.98,
    ),
    Case(
        Setup("counterfactual", {"train_alternatives": False}, REPLAY, size=1, mix=TEAM),
        "train_alternatives = false, reward.process = 0",
        TEAM_GAMES,
    ),
    Case(Setup("remove_role", rollout={"replay": "silent"}, size=1), ""),
    Case(
        Setup("at_grpo", PLAIN, TREE),
        "standardize = false, select = sampled",
        biased=(STOP,),
        why=LATER,
        least=0.98,
    ),
    Case(
        Setup("at_grpo", PLAIN, TREE, mix=TEAM),
        "the same, reward.process = 0",
        (STOP,),
    ),
    Case(
        Setup("at_grpo", PLAIN, {**TREE, "select": "best"}),
        "standardize = false",
        LIGHT,
        biased=LIGHT,
        why="states after the best sibling are visited more often",
        least=0.98,
    ),
    Case(
        Setup("at_grpo", {}, {**TREE, "select": "best"}),
        "",
        LIGHT,
        biased=LIGHT,
        why=f"the same, and {DIVISION}",
        least=0.8,
        wrong={OWN: ("buyer|",)},
    ),
    Case(
        Setup("magrpo", mix=TEAM),
        "",
        TEAM_GAMES,
        biased=(STOP,),
        why="episodes of unlike length: groups of late steps hold only those that got there",
        least=0.98,
    ),
    Case(
        Setup("dr_grpo"),
        "",
        biased=(LATE, STOP, OWN),
        why="one mean for all roles, whose rewards differ here",
        least=0.96,
    ),
    Case(
        Setup("dr_mas"),
        "",
        biased=tuple(name for name in ALL_GAMES if name != "sequential"),
        why=DIVISION,
        least=0.85,
        wrong={OWN: ("buyer|",)},
    ),
    Case(
        Setup("grpo"),
        "",
        biased=tuple(name for name in ALL_GAMES if name != "sequential"),
        why=f"{DIVISION}, and one mean for all roles",
        least=0.85,
    ),
    Case(
        Setup("reinforce_pp", batch="tasks"),
        "",
        biased=tuple(name for name in ALL_GAMES if name != "sequential"),
        why=f"{DIVISION}, one mean for all tasks and turns of a policy; {LATER}",
        least=0.8,
        wrong={OWN: ("buyer|",)},
    ),
    Case(
        Setup("debate"),
        "",
        biased=tuple(name for name in ALL_GAMES if name != "sequential"),
        why=f"{DIVISION}; it follows shaped scores, not the return alone",
        least=0.85,
        wrong={OWN: ("buyer|",)},
    ),
    Case(
        Setup("ppo", batch="tasks"),
        "",
        LIGHT,
        biased=LIGHT,
        why=DIVISION,
        least=0.9,
        wrong={OWN: ("buyer|",)},
    ),
)


@cache
def checked(number: int, game: str) -> Check:
    """What the enumeration finds for one case in one game."""
    return check(games()[game], CASES[number].setup)
