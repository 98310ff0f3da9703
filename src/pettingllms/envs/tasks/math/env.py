"""Math problems for two roles: one writes programs, one reasons, and each sees the other's
results."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from pettingllms.datasets import Problem
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import SoloAllRoles, with_options
from pettingllms.envs.tasks.math import players, programs
from pettingllms.envs.toolkit.answer_submissions import answer_submission, graded
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.boxed_answers import (
    HOW_TO_BOX,
    ProblemConfig,
    boxed_in,
    in_box,
    normalized_answer,
    other_answer,
    problem_tasks,
    verdict_on,
)
from pettingllms.envs.toolkit.program_output import program_in
from pettingllms.grading import NO_VERDICT, Verdict, start_grader
from pettingllms.types import (
    TEAM,
    Message,
    Reward,
    Rewards,
    Scored,
    Submission,
    Task,
    system,
    user,
)

TOOL, REASONER = "tool", "reasoner"
ROLES = (TOOL, REASONER)


class MathConfig(ProblemConfig):
    """Options of `math-v1`."""

    order: Literal["in_turn", "together"] = "in_turn"
    """`in_turn`: the reasoner sees the output of the tool's program of the same round.
    `together`: both reply simultaneously and see each other's results of the previous round."""
    max_rounds: int = Field(default=2, ge=1, le=20)
    """Maximum number of rounds. The episode ends earlier when both roles have the same answer."""
    program_seconds: float = Field(default=3.0, gt=0, le=60)
    """Time limit of a program in seconds."""
    program_memory_mb: int = Field(default=512, ge=64)
    """Memory limit of a program in MB."""


@dataclass(frozen=True, slots=True)
class Found:
    """The latest result of a role."""

    role: str
    answer: str | None = None
    """The answer in force, or None."""
    verdict: Verdict = NO_VERDICT
    note: str = ""
    """Feedback on the last reply, if it gave no answer."""
    invalid: bool = False
    """Whether the last reply was invalid. The previous answer then stays in force."""
    reply: str = ""
    """The whole reply with the answer, for a judge; empty without one."""

    def describe(self, viewer: str) -> str:
        """The text about it in the viewer's prompt."""
        whose = "Your" if self.role == viewer else f"The {self.role}'s"
        what = "program" if self.role == TOOL else "reply"
        lines = [f"{whose} {what} {self.note}."] if self.note else []
        if self.answer is not None:
            still = " still" if self.note else ""
            lines.append(f"{whose} answer is{still}: {self.answer}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Work:
    """A problem, the acting roles, and the latest result of each role."""

    problem: Problem
    turn: tuple[str, ...]
    round: int = 1
    found: tuple[Found, ...] = ()
    over: bool = False

    def of(self, role: str) -> Found:
        """The latest result of a role; empty at first."""
        return next((one for one in self.found if one.role == role), Found(role))


class Math(Environment[Work, MathConfig]):
    """Cooperative. The team's answer is the reasoner's last one."""

    id = "math-v1"
    Config = MathConfig
    players = players.PLAYERS
    limit_level = "team"
    late_rewards = True  # the team is rewarded at the end
    blocking = True
    runs_programs = True

    def __init__(self, config: MathConfig | None = None) -> None:
        super().__init__(config)
        self.judged = self.config.judged
        self._problems = problem_tasks(self.config)

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._problems.tasks(split)

    def reset(self, task: Task, seed: int) -> Work:
        start_grader()
        return Work(self._problems.problem(task), self._first())

    def acting(self, state: Work) -> tuple[str, ...]:
        return () if state.over else state.turn

    def observe(self, state: Work, role: str) -> Sequence[Message]:
        if self.config.terse:
            asked = state.problem.short or state.problem.question
            known = [f"{one.role[0]}:{one.answer or '-'}" for one in state.found]
            return [user("\n".join([f"{role} {state.round}", asked, *known]))]
        results = [one.describe(role) for one in state.found]
        parts = [state.problem.question, "\n".join([self._round(state), *results]), _ask(role)]
        return [system(self._part(role)), user("\n\n".join(parts))]

    def step(self, state: Work, replies: Mapping[str, str]) -> StepResult[Work]:
        found = {role: self._find(state, role, replies[role]) for role in state.turn}
        after = self._advance(state, found)
        process = {
            role: self._gain(state.of(role), now)
            for role, now in found.items()
            if now.invalid or not self.judged
        }
        metrics = {"illegal": float(any(one.invalid for one in found.values()))}
        if TOOL in found:
            metrics["ran"] = float(found[TOOL].answer is not None)
        if not after.over:
            return StepResult(after, Rewards(process), metrics)
        metrics |= {"rounds": float(after.round), "right": float(self.success(after, REASONER))}
        if self.judged:
            return StepResult(after, *self._judged_end(after, process, metrics))
        agent = {role: after.of(role).verdict.reward() for role in ROLES}
        return StepResult(after, Rewards(process, agent, agent[REASONER]), metrics)

    def _judged_end(
        self, state: Work, process: Mapping[str, Reward], metrics: Mapping[str, float]
    ) -> tuple[Rewards, Mapping[str, float], dict[str, Submission]]:
        """The final answers as submissions; a role without an answer gets 0."""
        shown = {
            role: answer_submission(state.problem, one.answer, one.reply, self.config.terse)
            for role in ROLES
            if (one := state.of(role)).answer is not None
        }
        agent: dict[str, Reward] = {role: Scored(0.0) for role in ROLES if role not in shown}
        if REASONER in shown:
            return Rewards(process, agent), metrics, {**shown, TEAM: shown[REASONER]}
        return Rewards(process, agent, Scored(0.0)), metrics, shown

    def rule(self, submission: Submission, part: str = "") -> Reward:
        return graded(submission)

    def success(self, state: Work, role: str) -> bool:
        return state.of(REASONER).verdict.right

    def answer(self, state: Work, role: str) -> str | None:
        found = state.of(REASONER).answer
        return None if found is None else normalized_answer(found)

    def solo(self) -> SoloAllRoles:
        """One role that writes the program, sees its output, and then answers."""
        return SoloAllRoles(with_options(self, order="in_turn"))

    def redeal(self, state: Work, role: str, rng: random.Random) -> Work:
        """Another correct answer: observations show neither it nor any verdict."""
        truth = other_answer(state.problem, rng)
        found = tuple(
            replace(one, verdict=Verdict(right=rng.random() < 0.5)) for one in state.found
        )
        return replace(state, problem=replace(state.problem, answer=truth), found=found)

    def reply_of(self, typed: str) -> str:
        """A line of code for the tool or an answer for the reasoner, distinguished by `print`."""
        if self.config.terse or "```" in typed:
            return typed
        return f"```python\n{typed}\n```" if "print(" in typed else in_box(typed)

    def hint(self, state: Work, role: str) -> str:
        return "a line of Python that prints" if role == TOOL else "an answer"

    def _first(self) -> tuple[str, ...]:
        return ROLES if self.config.order == "together" else (TOOL,)

    def _find(self, state: Work, role: str, reply: str) -> Found:
        problem, c = state.problem, self.config
        try:
            if role == REASONER:
                answer = boxed_in(reply, problem, c.terse)
                verdict = verdict_on(problem, answer)
                return Found(role, answer, verdict, reply=reply if self.judged else "")
            source = program_in(reply, c.terse)
        except BadReply as refusal:
            return replace(state.of(role), note=f"was refused: {refusal}", invalid=True)
        printed = programs.run(source, c.program_seconds, c.program_memory_mb)
        if printed.answer is None:
            return Found(role, note=printed.note)
        shown = f"{source}\nOutput: {printed.answer}" if self.judged else ""
        return Found(role, printed.answer, verdict_on(problem, printed.answer), reply=shown)

    def _advance(self, state: Work, found: Mapping[str, Found]) -> Work:
        known = {one.role: one for one in state.found} | dict(found)
        after = replace(state, found=tuple(known[role] for role in ROLES if role in known))
        if REASONER not in state.turn:
            return replace(after, turn=(REASONER,))
        over = state.round == self.config.max_rounds or _agree(after)
        return replace(after, turn=self._first(), round=state.round + (not over), over=over)

    def _gain(self, before: Found, now: Found) -> Reward:
        """The change in correctness: the first correct answer earns 1, and losing it costs 1."""
        if now.invalid:
            return Scored(self.config.illegal_reward)
        was = float(before.verdict.right)
        return now.verdict.reward(1.0 - was, 0.0 - was)

    def _round(self, state: Work) -> str:
        return f"Round {state.round} of {self.config.max_rounds}."

    def _part(self, role: str) -> str:
        when = "after it" if self.config.order == "in_turn" else "at the same time"
        team = (
            "You solve a problem of mathematics in a team of two. The tool writes a Python "
            f"program; the reasoner answers {when}. The reasoner's last answer is the team's."
        )
        if role == TOOL:
            return (
                f"{team} You are the tool. Write one program as ```python ... ```, with the "
                "standard library alone. The last line that it prints is your answer; print the "
                "answer and nothing else."
            )
        return (
            f"{team} You are the reasoner. Solve the problem step by step, and check what the "
            f"tool's program printed: it may be wrong. {HOW_TO_BOX}"
        )


def _agree(state: Work) -> bool:
    one, other = (state.of(role).answer for role in ROLES)
    return (
        one is not None and other is not None and normalized_answer(one) == normalized_answer(other)
    )


def _ask(role: str) -> str:
    return "Write the program." if role == TOOL else "Answer the problem."
