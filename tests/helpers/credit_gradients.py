"""Exact policy gradients of small games, and the exact expectation of what an algorithm estimates.

Nothing is sampled. The real rollouts are played by a sampler that walks through every way the
replies can come, each with its probability; the real algorithms assign the advantages. What comes
out is the expected gradient itself, free of noise.
"""

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from credit_games import Game, Rules, State

from pettingllms.algos import make_algorithm
from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.rollouts import Player
from pettingllms.rollouts.context import RolloutContext
from pettingllms.rollouts.env_calls import EnvCaller
from pettingllms.rollouts.scripted import ByteRenderer, text_ids
from pettingllms.rollouts.worker import ROLLOUTS
from pettingllms.types import Episode, Failed, Sample, SampleRequest, Scored, total

ResultT = TypeVar("ResultT")
ALL = RewardConfig()
TEAM = RewardConfig(process=0.0, agent=0.0)
Gradient = dict[tuple[str, str], float]
"""By prompt and word: the derivative by the logit of that word."""


class Choices:
    """One way through all random choices: those of a prefix, then the first of each."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.prefix = prefix
        self.taken: list[tuple[int, int]] = []
        self.chance = 1.0

    def pick(self, chances: Sequence[float]) -> int:
        at = len(self.taken)
        index = self.prefix[at] if at < len(self.prefix) else 0
        self.taken.append((index, len(chances)))
        self.chance *= chances[index]
        return index


def every_way(run: Callable[[Choices], ResultT]) -> Iterator[tuple[float, ResultT]]:
    """All results of a random procedure, with their probabilities."""
    prefix: list[int] = []
    while True:
        choices = Choices(prefix)
        result = run(choices)
        yield choices.chance, result
        taken = choices.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        prefix = [index for index, _ in taken[:-1]] + [taken[-1][0] + 1]


@dataclass
class TabularSampler:
    """Samples from the policies of a game, by the choices that it is given."""

    game: Game
    choices: Choices

    async def sample(self, request: SampleRequest) -> list[Sample | Failed]:
        _, prompt, _ = bytes(request.prompt_ids.tolist()).decode().split("\n", 2)
        chances = self.game.chances(prompt)
        words, shares = list(chances), list(chances.values())
        picked = [words[self.choices.pick(shares)] for _ in range(request.num_samples)]
        ids = [text_ids(word) for word in picked]
        return [Sample(one, np.zeros(len(one), np.float32), 0, "stop") for one in ids]


@dataclass
class GamePlayer:
    """Plays a game by the real rollouts, in every way that chance can go."""

    game: Game
    options: Mapping[str, Any]

    def episodes(self, start: int, number: int = 0) -> list[tuple[float, Episode]]:
        """Every episode from one start, with its probability."""
        config = RolloutConfig(**{"num_samples": 2, **self.options})
        with EnvCaller(60, blocking=False) as guard, asyncio.Runner() as runner:

            def play(choices: Choices) -> Episode:
                return runner.run(self._play(choices, config, guard, start, number))

            return list(every_way(play))

    async def _play(
        self, choices: Choices, config: RolloutConfig, guard: EnvCaller, start: int, number: int
    ) -> Episode:
        task = self.game.tasks("train")[start]
        episode = Episode(f"{task.id}/{number}", self.game.id, task, seed=start)
        sampler = TabularSampler(self.game, choices)
        players = {role: Player(role, sampler, ByteRenderer()) for role in self.game.roles}
        context = RolloutContext(self.game, players, config, RewardConfig(), guard)
        await ROLLOUTS[config.type](context, episode, number)
        assert episode.failure is None, episode.failure
        return episode


# --- the truth -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One complete episode of a game, without any rollout: states, replies and rewards."""

    chance: float
    steps: tuple[tuple[State, dict[str, str], Any], ...]


def every_line(game: Game, state: State, chance: float = 1.0) -> Iterator[Line]:
    """Every way that a game can go from a state on."""
    roles = game.acting(state)
    if not roles:
        yield Line(chance, ())
        return
    tables = [game.chances(prompt_of(game, state, role)) for role in roles]
    for words in itertools.product(*tables):
        replies = dict(zip(roles, words, strict=True))
        result = game.step(state, replies)
        p = math.prod(t[word] for t, word in zip(tables, words, strict=True))
        for rest in every_line(game, result.state, chance * p):
            yield Line(rest.chance, ((state, replies, result.rewards), *rest.steps))


def prompt_of(game: Game, state: State, role: str) -> str:
    return game.observe(state, role)[0].text


def return_of(line: Line, role: str, mix: RewardConfig, first: int = 0) -> float:
    """The weighted sum of a role's rewards from a step on."""
    found = 0.0
    for _, _, rewards in line.steps[first:]:
        levels = (rewards.process.get(role), rewards.agent.get(role), rewards.team)
        for weight, level in zip((mix.process, mix.agent, mix.team), levels, strict=True):
            found += weight * (level.value if isinstance(level, Scored) else 0.0)
    return found


def exact_gradient(game: Game, mix: RewardConfig) -> Gradient:
    """The gradient of each role's expected return with respect to its policy's logits."""
    found: Gradient = {}
    starts = game.tasks("train")
    for task in starts:
        for line in every_line(game, game.reset(task, 0), 1 / len(starts)):
            for state, replies, _ in line.steps:
                for role, word in replies.items():
                    weight = line.chance * return_of(line, role, mix)
                    add_score(found, game, prompt_of(game, state, role), word, weight)
    return found


def add_score(found: Gradient, game: Game, prompt: str, said: str, weight: float) -> None:
    """Add the gradient of a reply's log-probability, times a weight."""
    for word, chance in game.chances(prompt).items():
        key = (prompt, word)
        found[key] = found.get(key, 0.0) + weight * ((word == said) - chance)


# --- critics that know the truth -----------------------------------------------------------------


@dataclass
class Critic:
    """Exact values of a game: expectations over everything that the critic cannot see."""

    game: Game
    centralized: bool
    mix: RewardConfig
    values: dict[tuple[str, object], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sums: dict[tuple[str, object], list[float]] = {}
        starts = self.game.tasks("train")
        for task in starts:
            for line in every_line(self.game, self.game.reset(task, 0), 1 / len(starts)):
                for at, (state, replies, _) in enumerate(line.steps):
                    for role in replies:
                        both = sums.setdefault((role, self._seen(state, role)), [0.0, 0.0])
                        both[0] += line.chance
                        both[1] += line.chance * return_of(line, role, self.mix, at)
        self.values = {key: worth / chance for key, (chance, worth) in sums.items()}

    def _seen(self, state: State, role: str) -> object:
        return state if self.centralized else prompt_of(self.game, state, role)

    def value(self, state: State, role: str) -> float:
        return self.values[role, self._seen(state, role)]

    def mixed(self, state: State, replies: Mapping[str, str], role: str) -> float:
        """The team's expected return once the replies of all others are known."""
        found = 0.0
        for word, chance in self.game.chances(prompt_of(self.game, state, role)).items():
            result = self.game.step(state, {**replies, role: word})
            team = total([result.rewards.team])
            found += chance * (team.value if isinstance(team, Scored) else 0.0)
            for line in every_line(self.game, result.state):
                found += chance * line.chance * return_of(line, role, TEAM)
        return found

    def fill_in(self, episode: Episode) -> None:
        """Write what the critic says on every turn of an episode."""
        state = self.game.reset(episode.task, episode.seed)
        for at in episode.main_branch():
            turns = [episode.turns[index] for index in episode.steps[at].turns]
            replies = {turn.role: turn.text for turn in turns}
            for turn in turns:
                value = self.value(state, turn.role)
                turn.credit.values = np.full(turn.num_tokens + 1, value, np.float32)
                turn.credit.counterfactual_value = self.mixed(state, replies, turn.role)
            state = self.game.step(state, replies).state


# --- the estimate --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """An algorithm with its options, and the batch that it is given."""

    algo: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rollout: Mapping[str, Any] = field(default_factory=dict)
    batch: str = "plays"
    """`plays`: several episodes of one task. `tasks`: one episode of each of several tasks."""
    size: int = 3
    mix: RewardConfig = ALL
    """The weights of the levels of reward: what the return is, and what the algorithm is told."""
    state: Mapping[str, float] = field(default_factory=dict)
    """What earlier batches left, by role."""


def estimated_gradient(rules: Rules, setup: Setup) -> Gradient:
    """The expectation of the gradient that the algorithm's advantages give."""
    game = Game(rules)
    made = make_algorithm(setup.algo, **setup.options)
    algorithm = type(made)(made.config, setup.mix)
    kind = algorithm.rollout_type()
    player = GamePlayer(game, {"type": kind, **setup.rollout})
    num_starts = len(rules.starts)
    size = 1 if kind == "tree" else setup.size
    played = [
        [player.episodes(start, number) for start in range(num_starts)] for number in range(size)
    ]
    if "values" in algorithm.needs:
        critic = Critic(game, "centralized" in algorithm.needs, setup.mix)
        for _, episode in itertools.chain(*itertools.chain(*played)):
            critic.fill_in(episode)
    found: Gradient = {}
    for chance, batch in _batches(played, num_starts, setup):
        algorithm.load_state({f"{game.id}/{role}": b for role, b in setup.state.items()})
        algorithm.assign(batch)
        for turn in (turn for episode in batch for turn in episode.turns):
            if turn.credit.advantage is not None:
                add_score(
                    found, game, turn.messages[0].text, turn.text, chance * turn.credit.advantage
                )
    return found


def _batches(
    played: list[list[list[tuple[float, Episode]]]], num_starts: int, setup: Setup
) -> Iterator[tuple[float, list[Episode]]]:
    if setup.batch == "plays":
        pools = [[numbers[start] for numbers in played] for start in range(num_starts)]
        chance = 1 / num_starts
    else:
        pools = [
            [numbers[start] for numbers, start in zip(played, starts, strict=True)]
            for starts in itertools.product(range(num_starts), repeat=len(played))
        ]
        chance = 1 / len(pools)
    for pool in pools:
        for ways in itertools.product(*pool):
            p = math.prod(way[0] for way in ways)
            yield chance * p, [episode for _, episode in ways]


# --- comparing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """An estimate beside the truth, both as vectors over prompts and words."""

    exact: np.ndarray
    estimate: np.ndarray

    @property
    def cosine(self) -> float:
        norms = float(np.linalg.norm(self.exact) * np.linalg.norm(self.estimate))
        return float(self.exact @ self.estimate) / norms if norms else 0.0

    @property
    def scale(self) -> float:
        """The number that brings the truth nearest to the estimate."""
        return float(self.exact @ self.estimate) / float(self.exact @ self.exact)

    @property
    def is_exact(self) -> bool:
        """Whether the estimate is the truth times a positive number."""
        error = np.abs(self.estimate - self.scale * self.exact).max()
        return self.scale > 0 and bool(error < 1e-6 * self.scale)


@dataclass(frozen=True)
class Check:
    """One algorithm in one game."""

    whole: Comparison
    by_prompt: Mapping[str, Comparison]

    @property
    def wrong_signs(self) -> list[str]:
        """Prompts at which a step along the estimate makes the return worse."""
        return [
            prompt
            for prompt, one in self.by_prompt.items()
            if float(one.exact @ one.estimate) < -1e-9
        ]


def check(rules: Rules, setup: Setup) -> Check:
    """Compare an algorithm's expected gradient with the exact one."""
    exact = exact_gradient(Game(rules), setup.mix)
    estimate = estimated_gradient(rules, setup)
    prompts: dict[str, list[tuple[str, str]]] = {}
    for key in exact:
        prompts.setdefault(key[0], []).append(key)

    def compared(keys: Sequence[tuple[str, str]]) -> Comparison:
        return Comparison(
            np.array([exact[key] for key in keys]),
            np.array([estimate.get(key, 0.0) for key in keys]),
        )

    return Check(
        compared(list(exact)), {prompt: compared(keys) for prompt, keys in prompts.items()}
    )
