"""Debugging: one role plants a bug in a correct program, the other finds and repairs it.

Only the tests decide, and they run in the sandbox. A change is a bug if the program still runs and
a test now fails. It is repaired if all tests pass again. If the planter plants no bug, the mender
gets a known mistake, so both roles act in every episode.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.code_problems import CodeProblem
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import SoloOneRole
from pettingllms.envs.tasks.code.grade import Grade, grade
from pettingllms.envs.tasks.code.problems import problems_of
from pettingllms.envs.tasks.code.replies import text_in
from pettingllms.envs.tasks.code.run import Clock
from pettingllms.envs.tasks.debugging import players
from pettingllms.envs.tasks.debugging.planting import changed_line
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, as_reply
from pettingllms.envs.toolkit.rule_rewards import rule_reward
from pettingllms.types import Message, Reward, Rewards, Scored, Submission, Task, system, user

PLANTER, MENDER = "planter", "mender"
ROLES = (PLANTER, MENDER)
FOUND = 0.3
"""Mender's reward for finding the line; the rest is for repairing it."""
CRITERIA = {
    PLANTER: "Look at whether one small slip was planted that changes what the program does, and "
    "whether it is one that people make and overlook.",
    MENDER: "Look at whether the bug was found and mended, and nothing else was changed.",
}


class DebuggingConfig(EnvConfig):
    """Options of `debugging-v1`."""

    max_tries: int = Field(default=2, ge=1, le=10)
    """Number of replies that the mender has."""
    case_seconds: float = Field(default=2.0, gt=0)
    """CPU time limit of a program per test, in seconds."""
    total_seconds: float = Field(default=8.0, gt=0)
    """Wall-clock limit for all tests together, in seconds."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Test results of a program."""

    runs: bool
    """Whether the program can run at all."""
    visible: bool
    """Whether it passes the visible tests."""
    hidden: bool
    """Whether it passes the hidden tests."""

    @property
    def is_bug(self) -> bool:
        """Whether it runs and a test fails."""
        return self.runs and not (self.visible and self.hidden)

    @property
    def is_subtle(self) -> bool:
        """Whether the visible tests still pass."""
        return self.visible


@dataclass(frozen=True, slots=True)
class Hunt:
    """A program, the planted bug, and the mender's work."""

    problem: CodeProblem
    original: str
    turn: str = PLANTER
    planted: str = ""
    line: int | None = None
    """Number of the planted line, from 1; None if a known mistake replaced it."""
    subtle: bool = False
    repaired: str = ""
    """The mender's last program."""
    failing: str = ""
    """A visible test that it fails, as shown to the mender."""
    found: bool = False
    works: bool = False
    num_tries: int = 0
    refusal: str = ""
    over: bool = False


class Debugging(Environment[Hunt, DebuggingConfig]):
    """Zero-sum if a bug was planted; sequential. No role observes the hidden tests."""

    id = "debugging-v1"
    Config = DebuggingConfig
    players = players.PLAYERS
    late_rewards = True
    submits = True
    blocking = True
    runs_programs = True
    rule_parts = ("planted", "subtle", "found", "mended")

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def solo(self) -> Environment[Any, Any]:
        return SoloOneRole(self, "right")

    def tasks(self, split: Split) -> Sequence[Task]:
        found = problems_of(split)
        return [Task(f"{split}-{p.name}", {"split": split, "at": at}) for at, p in enumerate(found)]

    def reset(self, task: Task, seed: int) -> Hunt:
        problem = problems_of(task.data["split"])[task.data["at"]]
        return Hunt(problem, problem.good[0])

    def acting(self, state: Hunt) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Hunt, role: str) -> Sequence[Message]:
        program = state.original if role == PLANTER else state.planted
        if self.config.terse:
            return [user("\n".join([role, program, state.refusal]).strip())]
        calls = bool(state.problem.function)
        tests = "\n".join(case.describe(calls) for case in state.problem.visible)
        lines = [state.problem.statement, f"Visible tests:\n{tests}", f"The program:\n{program}"]
        if state.num_tries and role == MENDER:
            lines.append(f"Your last try is not right. {state.failing}".strip())
        if state.refusal:
            lines.append(f"Your last reply was refused: {state.refusal}.")
        return [system(_part(role, self.config)), user("\n\n".join(lines))]

    def step(self, state: Hunt, replies: Mapping[str, str]) -> StepResult[Hunt]:
        role = state.turn
        try:
            text = text_in(replies[role], self.config.terse)
            after = self._plant(state, text) if role == PLANTER else self._repair(state, text)
            process, illegal = Scored(0.0), 0.0
        except BadReply as refusal:
            after = self._rejected(state, str(refusal))
            process, illegal = Scored(self.config.illegal_reward), 1.0
        metrics = {"illegal": illegal}
        if not after.over:
            return StepResult(after, Rewards({role: process}), metrics)
        metrics |= {"planted": float(after.line is not None), "mended": float(after.works)}
        planter = float(after.line is not None and not after.works)
        mender = FOUND * after.found + (1 - FOUND) * after.works
        agent = {PLANTER: Scored(planter), MENDER: Scored(mender)}
        shown = {who: self.submission(after, who) for who in ROLES}
        return StepResult(after, Rewards({role: process}, agent), metrics, shown)

    def submission(self, state: Hunt, role: str) -> Submission:
        """A role's version of the program, for a judge."""
        given = state.original if role == PLANTER else state.planted
        work = "A bug was to be planted in" if role == PLANTER else "A bug was to be mended in"
        question = f"{state.problem.statement}\n{work} this program:\n{given}"
        answer = state.planted if role == PLANTER else state.repaired
        if role == PLANTER:
            facts = {"planted": state.line is not None, "subtle": state.subtle}
        else:
            facts = {"found": state.found, "mended": state.works}
        return Submission(question, answer, CRITERIA[role], facts)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        """Score by the tests: a bug that the visible tests miss scores higher."""
        parts = {name: float(value) for name, value in submission.facts.items()}
        return rule_reward(parts, part, sum(parts.values()) / len(parts))

    def success(self, state: Hunt, role: str) -> bool:
        return state.works if role == MENDER else state.line is not None and not state.works

    def redeal(self, state: Hunt, role: str, rng: random.Random) -> Hunt:
        """Other hidden tests; for the mender also another original program and line."""
        hidden = tuple(rng.sample(state.problem.hidden, len(state.problem.hidden) // 2))
        problem = replace(state.problem, hidden=hidden, good=("pass",), bad=("pass",))
        if role == PLANTER:
            return replace(state, problem=problem)
        return replace(state, problem=problem, original="pass", line=rng.randint(1, 9))

    def silence(self, state: Hunt, role: str) -> str:
        """Leave the program unchanged."""
        return self.reply_of(state.original if role == PLANTER else state.planted)

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Hunt, role: str) -> str:
        return "the whole program"

    def draw(self, state: Hunt, role: str) -> str:
        from rich.markup import escape

        return escape(self.observe(state, role)[-1].content)

    def test_outcome(self, problem: CodeProblem, program: str) -> Outcome:
        """Test results of a program."""
        ran = self._ran(problem, program)
        shown = ran.results[: len(problem.visible)]
        rest = ran.results[len(problem.visible) :]
        runs = not ran.fault
        return Outcome(
            runs,
            runs and all(one.passed for one in shown),
            runs and all(one.passed for one in rest),
        )

    def _ran(self, problem: CodeProblem, program: str) -> Grade:
        clock = Clock(self.config.case_seconds, self.config.total_seconds)
        return grade(problem, program, (*problem.visible, *problem.hidden), clock)

    def _plant(self, state: Hunt, text: str) -> Hunt:
        line = changed_line(state.original, text)
        if line is None:
            return self._known(state)
        outcome = self.test_outcome(state.problem, text)
        if not outcome.runs:
            raise BadReply("the program cannot be run any more; plant a bug with which it runs")
        if not outcome.is_bug:
            return self._known(state)
        return replace(
            state, turn=MENDER, planted=text, line=line, subtle=outcome.is_subtle, refusal=""
        )

    def _known(self, state: Hunt) -> Hunt:
        """Replace a change that is no bug by a known mistake."""
        return replace(state, turn=MENDER, planted=state.problem.bad[0], line=None, refusal="")

    def _repair(self, state: Hunt, text: str) -> Hunt:
        ran = self._ran(state.problem, text)
        works = found = ran.all_passed
        if state.line is not None and not works:
            found = _touches(state.planted, text, state.line)
        num_tries = state.num_tries + 1
        return replace(
            state,
            repaired=text,
            works=works,
            found=found,
            failing="" if works else _failing(state.problem, ran),
            num_tries=num_tries,
            refusal="",
            over=works or num_tries >= self.config.max_tries,
        )

    def _rejected(self, state: Hunt, why: str) -> Hunt:
        if state.turn == PLANTER:
            return self._known(state)
        num_tries = state.num_tries + 1
        over = num_tries >= self.config.max_tries
        return replace(state, num_tries=num_tries, refusal=why, failing="", over=over)


def _failing(problem: CodeProblem, ran: Grade) -> str:
    if ran.fault:
        return "It cannot be run."
    shown = ran.results[: len(problem.visible)]
    failed = next((one for one in shown if not one.passed), None)
    if failed is None:
        return "It passes the visible tests and fails a hidden one."
    return f"It fails {failed.case.describe(bool(problem.function))}"


def _touches(planted: str, repaired: str, line: int) -> bool:
    try:
        return changed_line(planted, repaired) == line
    except BadReply:
        return False


def _part(role: str, config: DebuggingConfig) -> str:
    if role == PLANTER:
        part = (
            "You are the planter. The program works. Plant one bug: change, add or leave out one "
            "line, so that the program still runs and some test fails, and so that a reader "
            "overlooks it. A mender looks for it after you; you win if it is not mended."
        )
    else:
        part = (
            "You are the mender. Somebody has planted a bug in one line of the program. Find it "
            f"and mend it; hidden tests decide whether you did. You have {config.max_tries} tries."
        )
    return f"{part} Answer the whole program, and nothing but the program. {HOW_TO_ANSWER}"
