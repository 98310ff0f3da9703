"""Code: a tester writes tests and a coder a program that passes them, over several rounds.

All model-generated code runs in the sandbox. Each reply gets a reward at once for the improvement
of the artifact. A program is scored by the visible tests; tests are scored by how well they
separate correct from incorrect programs. Only the hidden tests decide the team reward at the end.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.code import players
from pettingllms.envs.tasks.code.grade import Grade, grade, grade_all, solves
from pettingllms.envs.tasks.code.problems import problems_of
from pettingllms.envs.tasks.code.prompts import (
    CODER,
    SOLVER,
    TESTER,
    Work,
    part_text,
    story_text,
    terse_text,
)
from pettingllms.envs.tasks.code.replies import KEEP, read_tests, text_in
from pettingllms.envs.tasks.code.run import UNKNOWN, Clock
from pettingllms.envs.toolkit.answers import BadReply, as_reply
from pettingllms.errors import DataError, MissingDataError
from pettingllms.types import Failed, Message, Reward, Rewards, Scored, Task, system, user

BUILT = 0.2
"""Score of a program that runs at all; the rest comes from the visible tests."""


class CodeConfig(EnvConfig):
    """Options of `code-v1`."""

    data: str = ""
    """Source of the problems: a name of `pettingllms data list`, such as `apps`; `hf:OWNER/NAME`;
    or a file in the format of APPS, CodeContests, LiveCodeBench, HumanEval or MBPP. Empty: the
    bundled problems."""
    test_data: str = ""
    """Source of the test problems, in the same form. Empty: one in ten problems of `data`, or all
    of it if it is a test set."""
    max_rounds: int = Field(default=3, ge=1)
    """Maximum number of rounds; the program in force is then the team's. In a round the tester
    acts, then the coder."""
    max_tests: int = Field(default=5, ge=1, le=50)
    """Maximum number of tests that the tester may have in force."""
    case_seconds: float = Field(default=2.0, gt=0)
    """CPU time limit of a program per test, in seconds."""
    total_seconds: float = Field(default=8.0, gt=0)
    """Wall-clock limit for all tests together, in seconds."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply; the program and tests in force stay."""

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        try:
            problems_of("test", self.data, self.test_data)
        except MissingDataError:
            pass  # the environment raises it; plans do without data
        except DataError as error:
            raise ValueError(f"data: {error}") from None
        return self


class Code(Environment[Work, CodeConfig]):
    """Cooperative and sequential. No role observes the hidden tests and the known solutions.

    Solo, the one role `solver` writes the program and sees the results of the visible tests.
    """

    id = "code-v1"
    Config = CodeConfig
    players = players.PLAYERS
    limit_level = "team"
    late_rewards = True  # the team is rewarded at the end
    blocking = True
    runs_programs = True

    def __init__(self, config: CodeConfig | None = None) -> None:
        super().__init__(config)
        problems_of("test", self.config.data, self.config.test_data)

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLVER,) if self.config.solo else (CODER, TESTER)

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        found = problems_of(split, self.config.data, self.config.test_data)
        return [Task(f"{split}-{p.name}", {"split": split, "at": at}) for at, p in enumerate(found)]

    def reset(self, task: Task, seed: int) -> Work:
        found = problems_of(task.data["split"], self.config.data, self.config.test_data)
        return Work(found[task.data["at"]], self.roles[-1])

    def acting(self, state: Work) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Work, role: str) -> Sequence[Message]:
        if self.config.terse:
            return [user(terse_text(state, role))]
        rounds, calls = self.config.max_rounds, bool(state.problem.function)
        part = part_text(role, calls, rounds, self.config.max_tests)
        return [system(part), user(story_text(state, role, rounds))]

    def step(self, state: Work, replies: Mapping[str, str]) -> StepResult[Work]:
        role = state.turn
        kept = tuple(refusal for refusal in state.refusals if refusal[0] != role)
        try:
            text = text_in(replies[role], self.config.terse)
            after = self._tested(state, text) if role == TESTER else self._coded(state, text)
            after = replace(after, refusals=kept)
        except BadReply as refusal:
            after = replace(state, refusals=(*kept, (role, str(refusal))))
        illegal = bool(after.refusals) and after.refusals[-1][0] == role
        after = self._passed_on(after)
        gained = 0.0 if role == TESTER else after.program_score - state.program_score
        process = self.config.illegal_reward if illegal else gained
        agent = {TESTER: _gain(state, after)} if role == TESTER and state.problem.good else {}
        team = Scored(float(after.solved)) if after.over else None
        metrics = {
            "illegal": float(illegal),
            "visible": after.program_score,
            "tests": after.tests_score or 0.0,
        }
        return StepResult(after, Rewards({role: Scored(process)}, agent, team), metrics)

    def success(self, state: Work, role: str) -> bool:
        return state.solved

    def redeal(self, state: Work, role: str, rng: random.Random) -> Work:
        """Other hidden tests, and other known solutions."""
        problem = state.problem
        hidden = tuple(rng.sample(problem.hidden, len(problem.hidden) // 2))
        return replace(
            state,
            problem=replace(problem, hidden=hidden, checks=(), good=("pass",), bad=("pass",)),
            tests_score=rng.random(),
            solved=rng.random() < 0.5,
        )

    def silence(self, state: Work, role: str) -> str:
        """Keep the program in force; an empty reply is invalid, and what was in force stays."""
        return self.reply_of(KEEP) if role != TESTER and state.program is not None else ""

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def refusal(self, state: Work, role: str, reply: str) -> str | None:
        try:
            text = text_in(reply, self.config.terse)
            if role == TESTER:
                read_tests(state.problem, text, self.config.max_tests)
        except BadReply as refusal:
            return str(refusal)
        return None

    def hint(self, state: Work, role: str) -> str:
        if role != TESTER:
            return f"a program, or {KEEP}" if state.program is not None else "a program"
        calls = state.problem.function
        return f"{calls}(...) == value" if calls else "input: ... output: ..."

    def draw(self, state: Work, role: str) -> str:
        from rich.markup import escape

        return escape(story_text(state, role, self.config.max_rounds))

    @property
    def clock(self) -> Clock:
        """Time limits of programs."""
        return Clock(self.config.case_seconds, self.config.total_seconds)

    def _coded(self, state: Work, text: str) -> Work:
        if text.strip().lower().rstrip(".") == KEEP:
            if state.program is None:
                raise BadReply("there is no program to keep; give a whole one")
            text = state.program
        return self._graded(replace(state, program=text))

    def _tested(self, state: Work, text: str) -> Work:
        tests = read_tests(state.problem, text, self.config.max_tests)
        after = replace(state, tests=tests, tests_score=self.tests_quality(state.problem, tests))
        return after if state.program is None else self._graded(after)

    def _graded(self, state: Work) -> Work:
        assert state.program is not None  # noqa: S101 - see the callers
        visible = state.problem.visible
        result = grade(state.problem, state.program, (*visible, *state.tests), self.clock)
        shown = Grade(result.fault, result.results[: len(visible)])
        program_score = 0.0 if result.fault else BUILT + (1 - BUILT) * shown.share
        return replace(state, grade=result, program_score=program_score)

    def _passed_on(self, state: Work) -> Work:
        """Advance to the next role. A round, and possibly the episode, ends with the coder."""
        if state.turn == TESTER:
            return replace(state, turn=CODER)
        done = state.grade is not None and state.grade.all_passed
        if not done and state.round < self.config.max_rounds:
            return replace(state, turn=self.roles[-1], round=state.round + 1)
        right = state.program is not None and self._is_right(state)
        return replace(state, over=True, solved=right)

    def _is_right(self, state: Work) -> bool:
        assert state.program is not None  # noqa: S101 - see the caller
        return solves(state.problem, state.program, self.clock)

    def tests_quality(self, problem: CodeProblem, tests: tuple[Case, ...]) -> float | None:
        """Quality of tests, from 0 to 1: the mean of two shares. One is the share of tests that
        agree with a known solution, the other the share of known mistakes that these tests
        catch. None if no solution is known or it cannot run. All programs share one time limit:
        a mistake that gets no time is not caught."""
        if not problem.good:
            return None
        known = grade_all(problem, [problem.good[0], *problem.bad], tests, self.clock)
        truth, *mistakes = known
        if truth.fault:
            return None
        right = [at for at, result in enumerate(truth.results) if result.passed]
        share = len(right) / len(tests)
        if not mistakes:
            return share
        num_caught = sum(_is_caught(mistake, right) for mistake in mistakes)
        return (share + num_caught / len(mistakes)) / 2 if right else 0.0


def _is_caught(mistake: Grade, right: Sequence[int]) -> bool:
    """Whether a program ran and failed one of these tests."""
    if mistake.fault:
        return mistake.fault not in UNKNOWN
    results = [mistake.results[at] for at in right]
    return any(not one.passed and one.answer.fault not in UNKNOWN for one in results)


def _gain(before: Work, after: Work) -> Reward:
    """Improvement of the tests' quality by the tester's reply, if it is known."""
    if after.tests_score is None:
        return Failed("the known solution could not be run on the tests", "environment")
    return Scored(after.tests_score - (before.tests_score or 0.0))
