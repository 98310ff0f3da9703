"""Team design: a designer proposes a team as a graph, and the team's executors solve the task.

The task is a sum over numbers in labeled parts. The designer does not see the numbers. It decides
which executor reads which part, who hears which others, and who answers, so success depends on the
structure that it proposes and on how well the executors add.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks, halved_seed, of_half
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.envs.tasks.team_design import players, prompts
from pettingllms.envs.tasks.team_design.expected import noisy_accuracy
from pettingllms.envs.tasks.team_design.graph import (
    LABELS,
    PROMPTS,
    Executor,
    Limits,
    TeamGraph,
    executor_role,
    graph_text,
    parse_graph,
    short_text,
)
from pettingllms.envs.tasks.team_design.structures import (
    is_readers_and_combiner,
    readers_and_combiner,
    single,
)
from pettingllms.envs.toolkit.answers import BadReply, answer_in, as_reply
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user

DESIGNER = players.DESIGNER


class TeamDesignConfig(EnvConfig):
    """Options of `team_design-v1`."""

    min_parts: int = Field(default=2, ge=1, le=len(LABELS))
    """Minimum number of parts of a task."""
    num_parts: int = Field(default=2, ge=1, le=len(LABELS))
    """Maximum number of parts of a task."""
    part_size: int = Field(default=2, ge=1, le=8)
    """Numbers per part."""
    base: int = Field(default=10, ge=2, le=10)
    """Numbers are below it, and replies are remainders of a division by it."""
    max_executors: int = Field(default=3, ge=1, le=8)
    """Maximum number of executors in a graph."""
    max_rounds: int = Field(default=1, ge=1, le=4)
    """Maximum number of rounds in a graph; in each, every executor of the graph acts once."""
    max_reads: int = Field(default=len(LABELS), ge=1, le=len(LABELS))
    """Maximum number of parts that one executor may read."""
    design: str = ""
    """A fixed graph as JSON. No designer acts then, and the roles are the graph's executors."""
    noise: bool = False
    """Whether the environment changes replies of executors at random, the more often the more
    numbers the executor sees. The best structure is then known for executors that never err."""
    turn_cost: float = Field(default=0.02, ge=0)
    """Subtracted from the designer's reward at the end for each executor turn."""
    invalid_reward: float = -0.5
    """Agent reward of the designer for an invalid graph, which ends the episode."""
    illegal_reward: float = -0.1
    """Process reward of an executor's reply that is not one digit below `base`."""
    correct_reward: float = 0.2
    """Process reward of an executor for the correct reply to the numbers that it sees. Replies to
    prompts of the designer's own text are not graded."""
    num_tasks: int = Field(default=1024, ge=1)
    """Tasks per split, each generated from its seed."""

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        if self.min_parts > self.num_parts:
            raise ValueError(
                f"min_parts is {self.min_parts}; expected at most num_parts = {self.num_parts}"
            )
        dearest = -self.turn_cost * self.max_executors * self.max_rounds
        if self.invalid_reward >= dearest:
            raise ValueError(
                f"invalid_reward is {self.invalid_reward:g}, but a valid graph may cost "
                f"{dearest:g}; set invalid_reward below that, or lower turn_cost"
            )
        return self

    def limits(self) -> Limits:
        """The limits of graphs."""
        return Limits(self.num_parts, self.max_executors, self.max_rounds, self.max_reads)


@dataclass(frozen=True, slots=True)
class TeamState:
    """The numbers, the team's graph, and the executors' replies so far."""

    parts: tuple[tuple[int, ...], ...]
    seed: int
    """Seed of the noise."""
    graph: TeamGraph | None = None
    """None until the designer has proposed a valid one."""
    replies: tuple[tuple[str, int | None], ...] = ()
    """Role and digit of each executor turn; None for an illegal reply."""
    refusal: str = ""
    """Why the designer's graph is invalid."""

    def numbers_for(self, one: Executor) -> list[int | None]:
        """The numbers that an executor sees: those of its parts, then the replies it hears."""
        read = [n for label, part in zip(LABELS, self.parts) if label in one.reads for n in part]  # noqa: B905
        latest = dict(self.replies)
        return [*read, *(latest.get(role) for role in one.hears)]


class TeamDesign(Environment[TeamState, TeamDesignConfig]):
    """Cooperative and sequential: the designer proposes a graph, then its executors act."""

    id = "team_design-v1"
    Config = TeamDesignConfig
    players = players.PLAYERS
    limit_level = "team"
    late_rewards = True  # the team and the designer are rewarded at the end

    def __init__(self, config: TeamDesignConfig | None = None) -> None:
        super().__init__(config)
        self.limit_reward = self.config.invalid_reward
        self.limits = self.config.limits()
        self._fixed = _fixed_graph(self.config.design, self.limits)

    @property
    def roles(self) -> tuple[str, ...]:
        if self._fixed is not None:
            return tuple(one.role for one in self._fixed.executors)
        executors = (executor_role(at + 1) for at in range(self.config.max_executors))
        return (DESIGNER, *executors)

    def solo(self) -> Environment[Any, Any]:
        """One role that designs and executes, and has the cost of the turns."""
        return SoloAllRoles(self, also_rewarded=(DESIGNER,))

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks, halved_seed)

    def reset(self, task: Task, seed: int) -> TeamState:
        parts = of_half(task.seed % 2, lambda attempt: self._parts(task.seed, attempt), repr)
        return TeamState(parts, derive_seed("noise", task.id, seed), self._fixed)

    def acting(self, state: TeamState) -> tuple[str, ...]:
        if state.refusal:
            return ()
        if state.graph is None:
            return (DESIGNER,)
        done, order = len(state.replies), state.graph.executors
        return (order[done % len(order)].role,) if done < state.graph.num_turns else ()

    def observe(self, state: TeamState, role: str) -> Sequence[Message]:
        if role == DESIGNER:
            if self.config.terse:
                return [user(LABELS[: len(state.parts)])]
            situation = prompts.for_designer(len(state.parts), self.config.part_size)
            return [system(prompts.designer_part(self.limits, self.config.base)), user(situation)]
        executor = state.graph.executor(role) if state.graph else None
        if executor is None:
            return [user(prompts.UNUSED)]
        numbers = state.numbers_for(executor)
        if self.config.terse:
            return [user(prompts.terse_executor(executor, numbers))]
        heard = {role: value for role, value in state.replies if role in executor.hears}
        num_read = len(numbers) - len(executor.hears)
        shown = prompts.for_executor(executor, numbers[:num_read], heard)
        return [system(prompts.executor_part(role, self.config.base)), user(shown)]

    def step(self, state: TeamState, replies: Mapping[str, str]) -> StepResult[TeamState]:
        (role,) = self.acting(state)
        if role == DESIGNER:
            return self._design(state, replies[role])
        return self._execute(state, role, replies[role])

    def success(self, state: TeamState, role: str) -> bool:
        if state.graph is None or self.acting(state):
            return False
        return dict(state.replies).get(state.graph.answers) == self._truth(state)

    def answer(self, state: TeamState, role: str) -> str | None:
        if state.graph is None:
            return None
        answer = dict(state.replies).get(state.graph.answers)
        return None if answer is None else str(answer)

    def redeal(self, state: TeamState, role: str, rng: random.Random) -> TeamState:
        """Other numbers in the parts that the role does not read."""
        executor = state.graph.executor(role) if state.graph else None
        seen = executor.reads if executor else ()
        parts = tuple(
            part if LABELS[at] in seen else self._part(rng) for at, part in enumerate(state.parts)
        )
        return replace(state, parts=parts)

    def silence(self, state: TeamState, role: str) -> str:
        """The first graph of readers and a combiner that fits, and 0 for an executor."""
        if role != DESIGNER:
            return self.reply_of("0")
        num_parts = len(state.parts)
        fits = num_parts < self.config.max_executors
        return self.written(readers_and_combiner(num_parts) if fits else single(1))

    def written(self, graph: TeamGraph) -> str:
        """The reply of a designer that proposes a graph."""
        return self.reply_of((short_text if self.config.terse else graph_text)(graph))

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: TeamState, role: str) -> str:
        return 'a graph, such as ["a","b","12"]' if role == DESIGNER else "one digit"

    def _design(self, state: TeamState, reply: str) -> StepResult[TeamState]:
        try:
            graph = parse_graph(answer_in(reply, self.config.terse), self.limits)
        except BadReply as refusal:
            invalid = Scored(self.config.invalid_reward)
            rewards = Rewards(agent={DESIGNER: invalid}, team=Scored(0.0))
            metrics = {"illegal": 1.0, "invalid_graph": 1.0, **_structure(None, 0)}
            return StepResult(replace(state, refusal=str(refusal)), rewards, metrics)
        metrics = {"illegal": 0.0, "invalid_graph": 0.0}
        return StepResult(replace(state, graph=graph), Rewards({DESIGNER: Scored(0.0)}), metrics)

    def _execute(self, state: TeamState, role: str, reply: str) -> StepResult[TeamState]:
        digit = self._digit_in(reply)
        process = {role: self._score(state, role, digit)}
        heard = self._after_noise(state, role, digit) if self.config.noise else digit
        after = replace(state, replies=(*state.replies, (role, heard)))
        metrics = {"illegal": float(digit is None)}
        if self.acting(after):
            return StepResult(after, Rewards(process), metrics)
        cost = Scored(-self.config.turn_cost * len(after.replies))
        agent: dict[str, Reward] = {DESIGNER: cost} if self._fixed is None else {}
        team = Scored(float(self.success(after, role)))
        metrics |= _structure(state.graph, len(state.parts))
        return StepResult(after, Rewards(process, agent, team), metrics)

    def _digit_in(self, reply: str) -> int | None:
        try:
            text = answer_in(reply, self.config.terse)
        except BadReply:
            return None
        digits = "0123456789"[: self.config.base]
        return int(text) if len(text) == 1 and text in digits else None

    def _after_noise(self, state: TeamState, role: str, digit: int | None) -> int | None:
        """The digit that others hear: the same one, or another for too many numbers. The chance
        does not depend on the prompt, so no prompt avoids it."""
        executor = state.graph.executor(role) if state.graph else None
        if executor is None or digit is None:
            return digit
        rng = random.Random(derive_seed(state.seed, len(state.replies)))
        if rng.random() < noisy_accuracy(len(state.numbers_for(executor))):
            return digit
        return (digit + rng.randrange(1, self.config.base)) % self.config.base

    def _score(self, state: TeamState, role: str, digit: int | None) -> Scored:
        if digit is None:
            return Scored(self.config.illegal_reward)
        executor = state.graph.executor(role) if state.graph else None
        if executor is None or executor.prompt not in PROMPTS:
            return Scored(0.0)
        numbers = [one for one in state.numbers_for(executor) if one is not None]
        correct = players.correct_reply(executor.prompt, numbers, self.config.base)
        return Scored(self.config.correct_reward if digit == correct else 0.0)

    def _truth(self, state: TeamState) -> int:
        return sum(number for part in state.parts for number in part) % self.config.base

    def _parts(self, seed: int, attempt: int) -> tuple[tuple[int, ...], ...]:
        rng = random.Random(derive_seed("team_design", seed, attempt))
        num_parts = rng.randint(self.config.min_parts, self.config.num_parts)
        return tuple(self._part(rng) for _ in range(num_parts))

    def _part(self, rng: random.Random) -> tuple[int, ...]:
        return tuple(rng.randrange(self.config.base) for _ in range(self.config.part_size))


def _structure(graph: TeamGraph | None, num_parts: int) -> dict[str, float]:
    """Metrics at the end of an episode: what its team looked like, if there was one."""
    if graph is None:
        return {"executor_turns": 0.0, "readers_and_combiner": 0.0}
    found = is_readers_and_combiner(graph, num_parts)
    return {"executor_turns": float(graph.num_turns), "readers_and_combiner": float(found)}


def _fixed_graph(design: str, limits: Limits) -> TeamGraph | None:
    if not design:
        return None
    try:
        return parse_graph(design, limits)
    except BadReply as refusal:
        raise ValueError(f"env.design is {design!r:.80}: {refusal}; set a valid graph") from None
