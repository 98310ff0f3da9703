"""Games of a few states, for distances that can be worked out by hand, and a linear program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pettingllms.config import EnvConfig
from pettingllms.envs import Environment, StepResult
from pettingllms.exploitability import InfoState, Tree
from pettingllms.types import Message, Rewards, Scored, Task, user


def uniform(infos: Sequence[InfoState]) -> list[list[float]]:
    return [[1 / len(info.replies)] * len(info.replies) for info in infos]


class Words(Environment[tuple[str, ...], EnvConfig]):
    """A state is the words so far. Subclasses define turns, observations and rewards."""

    players = {"random": lambda env, state, role, rng: rng.choice(env.legal(state, role))}
    late_rewards = True
    speakers: tuple[str, ...] = ("a", "b")
    words: tuple[str, ...] = ("h", "t")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b")

    def tasks(self, split: Any) -> list[Task]:
        return [Task(f"{split}-0")]

    def starts(self) -> list[tuple[float, tuple[str, ...]]]:
        return [(1.0, ())]

    def reset(self, task: Task, seed: int) -> tuple[str, ...]:
        return self.starts()[0][1]

    def num_said(self, state: tuple[str, ...]) -> int:
        return len(state)

    def acting(self, state: tuple[str, ...]) -> tuple[str, ...]:
        return self.speakers[self.num_said(state) :][:1]

    def legal(self, state: tuple[str, ...], role: str) -> tuple[str, ...]:
        return self.words

    def seen(self, state: tuple[str, ...], role: str) -> str:
        raise NotImplementedError

    def pay(self, state: tuple[str, ...]) -> Rewards:
        raise NotImplementedError

    def observe(self, state: tuple[str, ...], role: str) -> list[Message]:
        return [user(f"{role} {self.seen(state, role)}")]

    def step(
        self, state: tuple[str, ...], replies: Mapping[str, str]
    ) -> StepResult[tuple[str, ...]]:
        (word,) = replies.values()
        after = (*state, word)
        return StepResult(after, Rewards() if self.acting(after) else self.pay(after))

    def success(self, state: tuple[str, ...], role: str) -> bool:
        return True


class Coins(Words):
    """a hides a coin, b guesses it; worth 0."""

    id = "coins-v1"
    values = {"a": 0.0, "b": 0.0}

    def seen(self, state: tuple[str, ...], role: str) -> str:
        return "?"

    def pay(self, state: tuple[str, ...]) -> Rewards:
        won = 1.0 if state[0] == state[1] else -1.0
        return Rewards(agent={"a": Scored(-won), "b": Scored(won)})


class Forgetful(Coins):
    """a hides two coins, and does not remember the first when it hides the second."""

    id = "forgetful-v1"
    speakers = ("a", "a", "b")

    def seen(self, state: tuple[str, ...], role: str) -> str:
        return str(len(state))


class Signal(Words):
    """Chance shows a one of three things; a says one of two words; b names the thing."""

    id = "signal-v1"
    things = ("x", "y", "z")

    def starts(self) -> list[tuple[float, tuple[str, ...]]]:
        return [(0.5, ("x",)), (0.3, ("y",)), (0.2, ("z",))]

    def num_said(self, state: tuple[str, ...]) -> int:
        return len(state) - 1

    def legal(self, state: tuple[str, ...], role: str) -> tuple[str, ...]:
        return ("h", "t") if role == "a" else self.things

    def seen(self, state: tuple[str, ...], role: str) -> str:
        return " ".join(state if role == "a" else state[1:])

    def pay(self, state: tuple[str, ...]) -> Rewards:
        return Rewards(team=Scored(float(state[0] == state[2])))


def game_value(tree: Tree, linprog: Callable[..., Any]) -> float:
    """What a zero-sum game is worth to its first role, in sequence form: maximise over plans x the
    least that a plan y leaves of it."""
    first, second = tree.roles
    sequences: dict[str, dict[Any, int]] = {role: {None: 0} for role in tree.roles}
    last: dict[str, list[Any]] = {role: [None] * len(tree.nodes) for role in tree.roles}
    chance = [0.0] * len(tree.nodes)
    for probability, at in tree.starts:
        chance[at] = probability
    parents: dict[int, Any] = {}
    weighted: dict[tuple[int, int], float] = {}
    for at, node in enumerate(tree.nodes):
        for number, child in enumerate(node.children):
            role = tree.infos[node.info].role
            parents[node.info] = last[role][at]
            own = sequences[role]
            own.setdefault((node.info, number), len(own))
            chance[child] = chance[at]
            for other in tree.roles:
                last[other][child] = (node.info, number) if other == role else last[other][at]
            place = tuple(sequences[r][last[r][child]] for r in (first, second))
            weighted[place] = weighted.get(place, 0.0) + chance[at] * node.rewards[number][0]
    payoff = np.zeros((len(sequences[first]), len(sequences[second])))
    for place, amount in weighted.items():
        payoff[place] += amount

    def plans(role: str) -> tuple[Any, Any]:
        infos = [at for at, info in enumerate(tree.infos) if info.role == role]
        flow = np.zeros((1 + len(infos), len(sequences[role])))
        flow[0, 0] = 1
        for row, info in enumerate(infos, 1):
            flow[row, sequences[role][parents[info]]] = -1
            for number in range(len(tree.infos[info].replies)):
                flow[row, sequences[role][info, number]] = 1
        right = np.zeros(len(flow))
        right[0] = 1
        return flow, right

    (flow_x, right_x), (flow_y, right_y) = plans(first), plans(second)
    num_x, num_v = payoff.shape[0], len(flow_y)
    found = linprog(
        np.concatenate([np.zeros(num_x), -right_y]),
        A_ub=np.hstack([-payoff.T, flow_y.T]),
        b_ub=np.zeros(payoff.shape[1]),
        A_eq=np.hstack([flow_x, np.zeros((len(flow_x), num_v))]),
        b_eq=right_x,
        bounds=[(0, None)] * num_x + [(None, None)] * num_v,
    )
    assert found.status == 0
    return -float(found.fun)
