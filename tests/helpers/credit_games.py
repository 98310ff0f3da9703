"""Small team games with fixed stochastic policies, whose policy gradients can be enumerated.

Each game is a real environment. Each policy is a table: a probability for every word that a role
may say to a prompt. The probabilities follow from the prompt by a hash, so no symmetry of a game
can hide a defect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms.config import EnvConfig
from pettingllms.envs import Environment, Split, StepResult
from pettingllms.seeds import derive_seed
from pettingllms.types import NO_REWARDS, Message, Rewards, Scored, Task, user

Said = tuple[tuple[str, str], ...]
"""Roles with their words, oldest first; words of one step in the order of the roles."""


@dataclass(frozen=True)
class State:
    """What chance drew at the start, and what was said."""

    start: str
    said: Said = ()

    def words(self) -> str:
        return "".join(word for _, word in self.said)


@dataclass(frozen=True)
class Rules:
    """A game: who acts after these words, who sees what, and the rewards of a step."""

    name: str
    roles: tuple[str, ...]
    acting: Callable[[State], tuple[str, ...]]
    rewards: Callable[[State, State], Rewards]
    words: Mapping[str, str]
    """The letters that each role may say."""
    supports_images: Callable[[State, str], str] = lambda state, role: state.words()
    starts: tuple[str, ...] = ("",)
    """What chance may draw, all equally likely."""
    fixed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Probabilities of a role's words, by prompt; for all other prompts a hash gives them."""
    silence: str = ""
    has_team: bool = True


class Game(Environment[State, EnvConfig]):
    """The environment of some rules."""

    players = {"random": lambda env, state, role, rng: rng.choice(env.rules.words[role])}
    late_rewards = True

    def __init__(self, rules: Rules) -> None:
        self.id = f"{rules.name.replace(' ', '_')}-v1"
        super().__init__()
        self.rules = rules

    @property
    def roles(self) -> tuple[str, ...]:
        return self.rules.roles

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{start}", {"start": start}) for start in self.rules.starts]

    def reset(self, task: Task, seed: int) -> State:
        return State(task.data["start"])

    def acting(self, state: State) -> tuple[str, ...]:
        return self.rules.acting(state)

    def observe(self, state: State, role: str) -> Sequence[Message]:
        return [user(f"{role}|{self.rules.supports_images(state, role)}")]

    def step(self, state: State, replies: Mapping[str, str]) -> StepResult[State]:
        said = tuple((role, replies[role]) for role in self.acting(state))
        after = State(state.start, state.said + said)
        return StepResult(after, self.rules.rewards(state, after))

    def success(self, state: State, role: str) -> bool:
        return True

    def silence(self, state: State, role: str) -> str:
        return self.rules.silence

    def chances(self, prompt: str) -> dict[str, float]:
        """The policy: a probability for each word that may answer a prompt."""
        words = self.rules.words[prompt.split("|", maxsplit=1)[0]]
        hashed = [1 + derive_seed("policy", prompt, word) % 4 for word in words]
        shares = self.rules.fixed.get(prompt, hashed)
        return {word: share / sum(shares) for word, share in zip(words, shares, strict=True)}


def table(*key: str) -> float:
    """A reward for every outcome, with no pattern in it."""
    return derive_seed("reward", *key) % 100 / 50


def _in_turn(*order: tuple[str, ...]) -> Callable[[State], tuple[str, ...]]:
    """Roles that act in a fixed order, those of one step together."""

    def acting(state: State) -> tuple[str, ...]:
        num_said, at = len(state.said), 0
        for roles in order:
            if at == num_said:
                return roles
            at += len(roles)
        return ()

    return acting


def _at_the_end(
    acting: Callable[[State], tuple[str, ...]], team: Callable[[State], float]
) -> Callable[[State, State], Rewards]:
    def rewards(before: State, after: State) -> Rewards:
        return NO_REWARDS if acting(after) else Rewards(team=Scored(team(after)))

    return rewards


def _team_game(
    name: str,
    order: Sequence[tuple[str, ...]],
    team: Callable[[State], float],
    **options: Any,
) -> Rules:
    acting = _in_turn(*order)
    roles = tuple(dict.fromkeys(role for step in order for role in step))
    words = options.pop("words", None) or dict.fromkeys(roles, "LR")
    return Rules(name, roles, acting, _at_the_end(acting, team), words, **options)


def sequential(p: float = 0.3) -> Rules:
    """A speaker says L or R, a listener nearly obeys, and its action alone is rewarded."""
    obeys = {"listener|L": (0.9, 0.1), "listener|R": (0.1, 0.9)}
    return _team_game(
        "sequential",
        [("speaker",), ("listener",)],
        lambda state: float(state.words()[1:2] == "R"),
        fixed={"speaker|": (1 - p, p), **obeys},
    )


def coordination(p: float = 0.9) -> Rules:
    """The second role sees the first one's word; equal words are rewarded."""
    follows = {"second|L": (p, 1 - p), "second|R": (1 - p, p)}
    value = {"LL": 1.0, "RR": 0.6}
    return _team_game(
        "coordination",
        [("first",), ("second",)],
        lambda state: value.get(state.words(), 0.0),
        fixed={"first|": (p, 1 - p), **follows},
    )


def _late_rewards(before: State, after: State) -> Rewards:
    """The first word has a process reward that tempts it away from what the team needs."""
    ((role, word),) = after.said[len(before.said) :]
    tempting = {role: Scored(0.5 if word == "L" and not before.said else 0.0)}
    value = {"LL": 0.0, "LR": 0.6, "RL": 1.0, "RR": 2.0}
    return Rewards(tempting, team=Scored(value.get(after.words(), 0.0)) if before.said else None)


def _private_rewards(before: State, after: State) -> Rewards:
    """Each role has its own reward; the first one's depends on what the second does."""
    if len(after.said) < 2:
        return NO_REWARDS
    return Rewards(
        agent={role: Scored(table("private", role, after.words())) for role in ("buyer", "seller")}
    )


def _stopping_acting(state: State) -> tuple[str, ...]:
    """A planner proposes; a checker accepts, which ends the episode, or asks for another plan."""
    words = state.words()
    if len(words) % 2 == 0:
        return () if words.endswith("A") else ("planner",)
    return () if len(words) == 3 else ("checker",)


def _stopping_rewards(before: State, after: State) -> Rewards:
    """A plan is rewarded by its improvement, an episode by whether its last plan is right."""
    if before.said and _stopping_acting(before) == ("checker",):
        gained = {"checker": Scored(0.0)}
    else:
        was, now = (_plan(state) == "R" for state in (before, after))
        gained = {"planner": Scored(0.5 * (now - was))}
    solved = Scored(float(_plan(after) == "R"))
    return Rewards(gained, team=None if _stopping_acting(after) else solved)


def _plan(state: State) -> str:
    plans = [word for role, word in state.said if role == "planner"]
    return plans[-1] if plans else ""


SCORES = {"W": 0.8, "S": 1.0, "B": 0.2}
"""How good a plan is: nearly right, right, and worse."""


def checking(solves: float) -> Rules:
    """A checker finds a wrong plan: it accepts it, which ends the episode, solves the puzzle, or
    makes the plan worse. It has two rounds, and solves with the same probability in each."""
    wrong = (0.35, solves, 0.65 - solves)
    return Rules(
        "checking",
        ("checker",),
        lambda state: () if len(state.said) == 2 or state.words() == "A" else ("checker",),
        _checking_rewards,
        {"checker": "ASB"},
        fixed={"checker|": wrong, "checker|B": wrong, "checker|S": (1.0, 0.0, 0.0)},
    )


def _checking_rewards(before: State, after: State) -> Rewards:
    was, now = (_score(state) for state in (before, after))
    over = len(after.said) == 2 or after.words() == "A"
    return Rewards({"checker": Scored(now - was)}, team=Scored(float(now == 1.0)) if over else None)


def _score(state: State) -> float:
    plans = [word for word in "W" + state.words() if word != "A"]
    return SCORES[plans[-1]]


def games() -> dict[str, Rules]:
    """The games by name."""
    found = [
        sequential(),
        _team_game(
            "simultaneous",
            [("a", "b")],
            lambda s: table("both", s.words()),
            words={"a": "LRM", "b": "LR"},
        ),
        Rules(
            "late reward",
            ("a", "b"),
            _in_turn(("a",), ("b",)),
            _late_rewards,
            {"a": "LR", "b": "LR"},
        ),
        coordination(),
        _team_game(
            "chance moves",
            [("dealer",), ("guesser",)],
            lambda s: float(s.start[0] == s.words()[1:2]) * (1 + int(s.start[1])),
            supports_images=lambda s, role: s.start[0] if role == "dealer" else s.words(),
            starts=("L0", "L2", "R0", "R1"),
        ),
        _team_game("three roles", [("a",), ("b", "c")], lambda s: table("three", s.words())),
        Rules(
            "stopping",
            ("planner", "checker"),
            _stopping_acting,
            _stopping_rewards,
            {"planner": "RW", "checker": "AN"},
            silence="A",
        ),
        Rules(
            "own rewards",
            ("buyer", "seller"),
            _in_turn(("buyer",), ("seller",)),
            _private_rewards,
            {"buyer": "LR", "seller": "LR"},
            has_team=False,
        ),
    ]
    return {rules.name: rules for rules in found}
