"""A proposer writes tasks, solvers answer them, and both learn from how many are solved.

After the idea of self-proposed curricula (Zhao et al., 2025). The proposer's reward is highest if
half of the solvers are right. The environment computes every correct answer itself. Solvers see a
task only in canonical form, so the proposer cannot mark it. On test tasks the proposer does not
act: solvers answer held-out tasks of our generator.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.propose import players
from pettingllms.envs.tasks.propose.arithmetic import Arithmetic
from pettingllms.envs.tasks.propose.domain import Domain, ProposedTask
from pettingllms.envs.tasks.propose.sudoku import Sudoku4
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.proposals import (
    HELD_OUT,
    PROPOSED,
    Outcome,
    SolvedTask,
    digest,
    outcome_metrics,
    solved_metrics,
)
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user

PROPOSER, ALONE = "proposer", "solver"
SEPARATOR = ";"
NUM_EXAMPLES = 2
HELD_OUT_SHARE = 8
"""One in this many canonical tasks is reserved for evaluation, by its hash."""
MAX_GIVEN = 5
"""Numbers of an arithmetic task."""
MAX_DRAWS = 1024
"""Generated tasks to look at for one of the wanted split."""


class ProposeConfig(EnvConfig):
    """Options of `propose-v1`."""

    domain: Literal["arithmetic", "sudoku"] = "arithmetic"
    """Kind of tasks: integer arithmetic, or 4x4 Sudoku."""
    proposes: bool = True
    """Whether the role `proposer` writes the training tasks. Otherwise our generator does."""
    num_solvers: int = Field(default=4, ge=2, le=16)
    """Number of solvers, which answer each task simultaneously."""
    num_proposals: int = Field(default=1, ge=1, le=4)
    """Number of tasks per reply of the proposer. Solvers answer the valid ones in order."""
    num_given: int = Field(default=3, ge=2, le=12)
    """Number of ingredients that a proposal must use: at most 5 numbers, or 12 clues of a
    Sudoku."""
    max_number: int = Field(default=20, ge=8, le=99)
    """Arithmetic: the largest given number. The smallest is 2."""
    rejected_reward: float = Field(default=-0.5, le=0)
    """Reward of the proposer for a task that is invalid, trivial or a duplicate."""
    num_tasks: int = Field(default=1024, ge=1)
    """Sets of ingredients, and held-out tasks."""

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if self.domain == "arithmetic" and self.num_given > MAX_GIVEN:
            raise ValueError(
                f"num_given is {self.num_given}, but arithmetic takes at most {MAX_GIVEN} numbers; "
                "set fewer"
            )
        return self


@dataclass(frozen=True, slots=True)
class Lesson:
    """The ingredients, the tasks to solve, and the answers so far."""

    given: tuple[str, ...]
    examples: tuple[str, ...] = ()
    """Canonical tasks of these ingredients that the proposer is shown and may not repeat."""
    tasks: tuple[ProposedTask, ...] = ()
    answers: tuple[tuple[str | None, ...], ...] = ()
    """By task, then by solver; None for an illegal reply."""
    is_proposed: bool = True
    """Whether the proposer wrote the tasks, rather than our generator."""
    is_test: bool = False
    rejected: tuple[str, ...] = ()
    """Why proposals were rejected. Reasons quote nothing of a reply."""

    @property
    def waits_for_proposal(self) -> bool:
        """Whether nothing was proposed yet."""
        return self.is_proposed and not self.tasks and not self.rejected

    @property
    def current(self) -> ProposedTask | None:
        """The task that solvers answer now."""
        return self.tasks[len(self.answers)] if len(self.answers) < len(self.tasks) else None


@dataclass(frozen=True, slots=True)
class Assessed:
    """One proposal, what became of it, and the reason."""

    outcome: Outcome
    task: ProposedTask | None = None
    reason: str = ""


class Propose(Environment[Lesson, ProposeConfig]):
    """The proposer acts once, then the solvers simultaneously on each task that is accepted."""

    id = "propose-v1"
    Config = ProposeConfig
    players = players.PLAYERS
    late_rewards = True  # the proposer is rewarded when its tasks are answered

    def __init__(self, config: ProposeConfig | None = None) -> None:
        super().__init__(config)
        self.limit_reward = self.config.rejected_reward
        self.domain: Domain = (
            Sudoku4(self.config.num_given)
            if self.config.domain == "sudoku"
            else Arithmetic(self.config.num_given, self.config.max_number)
        )

    @property
    def solvers(self) -> tuple[str, ...]:
        """The roles that answer."""
        if self.config.solo:
            return (ALONE,)
        return tuple(f"solver_{at + 1}" for at in range(self.config.num_solvers))

    @property
    def roles(self) -> tuple[str, ...]:
        return (PROPOSER, *self.solvers) if self._has_proposer else self.solvers

    @property
    def _has_proposer(self) -> bool:
        return self.config.proposes and not self.config.solo

    def solo(self) -> Environment[Any, Any]:
        """One solver that answers tasks of our generator."""
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Lesson:
        """Ingredients depend on the task only, so proposals of one task are comparable."""
        rng = random.Random(derive_seed("propose", task.seed))
        is_test = task.id.startswith("test")
        if is_test or not self._has_proposer:
            made = self._generated(rng, held_out=is_test)
            return Lesson((), tasks=(made,), is_proposed=False, is_test=is_test)
        given = self.domain.draw(rng)
        written = [self.domain.write(given, rng) for _ in range(NUM_EXAMPLES)]
        examples = [self.domain.parse(text, given) for text in written]
        shown = [one.text for one in examples if not self.is_held_out(one)]
        return Lesson(given, tuple(dict.fromkeys(shown)))

    def acting(self, state: Lesson) -> tuple[str, ...]:
        if state.waits_for_proposal:
            return (PROPOSER,)
        return self.solvers if state.current is not None else ()

    def observe(self, state: Lesson, role: str) -> Sequence[Message]:
        if role == PROPOSER:
            return self._observe_proposer(state)
        task = state.current
        shown = "There is no task." if task is None else task.text
        if self.config.terse:
            return [user(shown)]
        return [system(f"{self.domain.solver_rules} {HOW_TO_ANSWER}"), user(shown)]

    def step(self, state: Lesson, replies: Mapping[str, str]) -> StepResult[Lesson]:
        if state.waits_for_proposal:
            return self._step_proposer(state, replies[PROPOSER])
        return self._step_solvers(state, replies)

    def success(self, state: Lesson, role: str) -> bool:
        """A solver: all its answers are correct. The proposer: solvers disagree on a task that it
        wrote; on a test task, most solvers are right."""
        if not state.answers:
            return False
        if role != PROPOSER:
            at = self.solvers.index(role)
            pairs = zip(state.tasks, state.answers, strict=True)
            return all(answers[at] == task.answer for task, answers in pairs)
        rates = [self._solve_rate(state, at) for at in range(len(state.answers))]
        return any(0 < rate < 1 for rate in rates) if state.is_proposed else rates[0] > 0.5

    def answer(self, state: Lesson, role: str) -> str | None:
        """The answer of a solver to a generated task; proposed tasks differ between episodes."""
        if role == PROPOSER or state.is_proposed or not state.answers:
            return None
        return state.answers[-1][self.solvers.index(role)]

    def redeal(self, state: Lesson, role: str, rng: random.Random) -> Lesson:
        """Other ingredients: solvers are not shown them."""
        return state if role == PROPOSER else replace(state, given=self.domain.draw(rng))

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Lesson, role: str) -> str:
        return "a task" if role == PROPOSER else "the answer"

    def is_held_out(self, task: ProposedTask) -> bool:
        """Whether a task is reserved for evaluation."""
        return derive_seed("held out", task.text) % HELD_OUT_SHARE == 0

    def assess(self, state: Lesson, text: str, others: Sequence[str] = ()) -> Assessed:
        """What becomes of one proposal; `others` are canonical tasks of the same reply."""
        try:
            task = self.domain.parse(text, state.given)
        except BadReply as refusal:
            return Assessed("invalid", reason=str(refusal))
        if task.trivial:
            return Assessed("trivial", task, task.trivial)
        if task.text in state.examples or task.text in others:
            return Assessed("duplicate", task, "it is an example or was proposed before")
        if self.is_held_out(task):
            return Assessed("held_out", task, "it is reserved for evaluation")
        return Assessed("accepted", task)

    def _step_proposer(self, state: Lesson, reply: str) -> StepResult[Lesson]:
        assessed = self._assess_reply(state, reply)
        counts = Counter(one.outcome for one in assessed)
        tasks = tuple(one.task for one in assessed if one.outcome == "accepted" and one.task)
        reasons = tuple(one.reason for one in assessed if one.outcome != "accepted")
        metrics = outcome_metrics(counts) | {"illegal": float(counts["invalid"] > 0)}
        after = replace(state, tasks=tasks, rejected=reasons)
        if not reasons:
            return StepResult(after, metrics=metrics)
        num_penalized = len(reasons) - counts["held_out"]
        share = num_penalized / self.config.num_proposals
        reward = self.config.rejected_reward * share if share else 0.0
        return StepResult(after, Rewards(agent={PROPOSER: Scored(reward)}), metrics)

    def _assess_reply(self, state: Lesson, reply: str) -> list[Assessed]:
        """One entry per task that the proposer had to write."""
        wanted = self.config.num_proposals
        try:
            texts = answer_in(reply, self.config.terse).split(SEPARATOR, wanted)
        except BadReply as refusal:
            return [Assessed("invalid", reason=str(refusal))] * wanted
        if len(texts) != wanted:
            return [Assessed("invalid", reason=f"the reply does not have {wanted} tasks")] * wanted
        assessed: list[Assessed] = []
        for text in texts:
            others = [one.task.text for one in assessed if one.task is not None]
            assessed.append(self.assess(state, text, others))
        return assessed

    def _step_solvers(self, state: Lesson, replies: Mapping[str, str]) -> StepResult[Lesson]:
        task = state.current
        assert task is not None  # noqa: S101 - solvers act only on a task
        answers = tuple(self._read(replies[role]) for role in self.solvers)
        after = replace(state, answers=(*state.answers, answers))
        rate = self._solve_rate(after, -1)
        agent: dict[str, Reward] = {
            role: Scored(float(answer == task.answer))
            for role, answer in zip(self.solvers, answers, strict=True)
        }
        solved = SolvedTask(task.level, rate, digest(task.text), digest(task.answer))
        metrics = {"illegal": float(None in answers), "solve_rate": rate}
        if state.is_proposed:
            agent[PROPOSER] = Scored((1 - abs(2 * rate - 1)) / self.config.num_proposals)
            metrics |= solved_metrics(solved, PROPOSED)
        elif state.is_test:
            metrics |= solved_metrics(solved, HELD_OUT)
        return StepResult(after, Rewards(agent=agent), metrics)

    def _read(self, reply: str) -> str | None:
        try:
            return self.domain.read(answer_in(reply, self.config.terse))
        except BadReply:
            return None

    def _solve_rate(self, state: Lesson, at: int) -> float:
        answers = state.answers[at]
        right = state.tasks[at if at >= 0 else len(state.answers) - 1].answer
        return answers.count(right) / len(answers)

    def _generated(self, rng: random.Random, held_out: bool) -> ProposedTask:
        """A generated task that is reserved for evaluation, or one that is not."""
        for _ in range(MAX_DRAWS):
            task = self.domain.generate(rng)
            if self.is_held_out(task) == held_out:
                break
        return task

    def _observe_proposer(self, state: Lesson) -> Sequence[Message]:
        given = " ".join(state.given) or "nothing"
        if self.config.terse:
            return [user(f"use {given}")]
        count = self.config.num_proposals
        number = "one task" if count == 1 else f"{count} different tasks"
        form = f" Write {SEPARATOR} between tasks." if count > 1 else ""
        rules = (
            f"You write {number} for {len(self.solvers)} solvers. Your reward is highest if half "
            "of them solve a task, and 0 if all or none do. Invalid, trivial and repeated tasks "
            f"lower it. {self.domain.proposer_rules}{form} {HOW_TO_ANSWER}"
        )
        lines = [
            f"Given: {given}",
            *(f"Example, do not repeat it: {one}" for one in state.examples),
        ]
        return [system(rules), user("\n".join(lines))]
