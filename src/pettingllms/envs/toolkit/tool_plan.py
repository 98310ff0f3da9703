"""A tool user and a planner on one puzzle: the roles that AT-GRPO's games were published with.

In each round the tool writes a Python program, which runs in the sandbox and prints a plan. The
planner sees that plan, or why there is none, and answers the plan that is acted on. Solo, the role
`solver` answers plans without a tool.

The environment's reward of a plan is the process reward of the planner and a team reward, so that
it counts twice. The tool gets the reward that its own plan would have earned, and the team reward.
A reply earns at least LOWEST, and a reply without a program or plan less: no policy gains by
breaking its program.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pettingllms.envs.base import Environment, ScriptedPlayer, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.plan_check import (
    LOWEST,
    PLANNER,
    SOLVER,
    Acted,
    Draft,
    PlanCheck,
    PlanCheckConfig,
)
from pettingllms.envs.toolkit.program_output import Printed, as_program, program_in, run
from pettingllms.types import Message, Rewards, Scored, Task, system, user

TOOL = "tool"
NO_PROGRAM = Printed(None, "is missing")
NOT_RUN = Printed(None)


@dataclass(frozen=True, slots=True)
class Work:
    """A puzzle, what was done to it, and the latest result of each role."""

    puzzle: Any
    turn: str
    """The acting role."""
    round: int = 1
    plan: str | None = None
    """Everything that was acted on so far."""
    printed: Printed = NOT_RUN
    """The plan that the program of this round printed, or why there is none."""
    refusal: str = ""
    """Why the last plan was refused."""
    over: bool = False


class ToolPlan(Environment[Work, PlanCheckConfig]):
    """The rules, plans and rewards are those of a planner-checker environment."""

    limit_level = "team"
    late_rewards = True  # the tool is rewarded for what the planner does with its plan
    blocking = True

    def __init__(self, env: PlanCheck[Any, Any]) -> None:
        super().__init__(env.config)
        self.env = env
        self.id = env.id
        self.players = {name: partial(_play, play) for name, play in env.players.items()}
        self.limit_reward = LOWEST + env.fail_reward
        self.runs_programs = not env.config.solo

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLVER,) if self.config.solo else (TOOL, PLANNER)

    def solo(self) -> Environment[Any, Any]:
        return ToolPlan(with_options(self.env, solo=True))  # type: ignore[arg-type]

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.env.tasks(split)

    def reset(self, task: Task, seed: int) -> Work:
        return Work(self.env.puzzle(task), self.roles[0])

    def acting(self, state: Work) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Work, role: str) -> Sequence[Message]:
        shown = self.env.show(self.env.position(state.puzzle, state.plan))
        if self.config.terse:
            lines = [f"{role} {state.round}", shown.replace(" ", ""), state.printed.answer or "-"]
            return [user("\n".join(lines))]
        parts = [shown, self._situation(state, role), _ask(role)]
        return [
            system(f"{self._part(role)} {self.env.rules()} {_how(role)}"),
            user("\n\n".join(parts)),
        ]

    def step(self, state: Work, replies: Mapping[str, str]) -> StepResult[Work]:
        reply = replies[state.turn]
        return self._program(state, reply) if state.turn == TOOL else self._act(state, reply)

    def success(self, state: Work, role: str) -> bool:
        return self._solved(state.puzzle, state.plan)

    def answer(self, state: Work, role: str) -> str | None:
        return state.plan

    def silence(self, state: Work, role: str) -> str:
        """The planner answers what the program printed."""
        return "" if role == TOOL else self.reply_of(state.printed.answer or "")

    def draw(self, state: Work, role: str) -> str:
        from rich.markup import escape

        lines = [self.env.paint(state.puzzle, state.plan), escape(self._situation(state, role))]
        if state.over:
            lines.append("[green]solved[/]" if self.success(state, role) else "[red]not solved[/]")
        return "\n\n".join(lines)

    def reply_of(self, typed: str) -> str:
        """A line of code for the tool or a plan for the planner, distinguished by `print`."""
        if "print(" in typed and "```" not in typed:
            return as_program(typed, self.config.terse)
        return as_reply(typed, self.config.terse)

    def hint(self, state: Work, role: str) -> str:
        return "a line of Python that prints a plan" if role == TOOL else self.env.plan_hint

    def _program(self, state: Work, reply: str) -> StepResult[Work]:
        c, missing = self.config, False
        try:
            source = program_in(reply, c.terse)
        except BadReply:
            printed, reward, missing = NO_PROGRAM, c.unparsable_reward, True
        else:
            printed = self._run(state, source)
            reward = c.failed_reward
        if printed.answer is not None:
            reward = self._acted(state, printed.answer).reward
        after = replace(state, turn=PLANNER, printed=printed)
        metrics = {"illegal": float(missing), "ran": float(printed.answer is not None)}
        return StepResult(after, Rewards({TOOL: Scored(reward)}), metrics)

    def _run(self, state: Work, source: str) -> Printed:
        """The plan that a program prints. The line is read as untrusted text."""
        found = run(source, self.config.program_seconds, self.config.program_memory_mb)
        if found.answer is None:
            return found
        try:
            return Printed(self.env.read(state.puzzle, found.answer.strip()))
        except BadReply:
            return Printed(None, "printed a last line that is no plan")

    def _act(self, state: Work, reply: str) -> StepResult[Work]:
        role, plan, refusal = state.turn, state.plan, ""
        try:
            answer = self.env.read(state.puzzle, answer_in(reply, self.config.terse))
        except BadReply as error:
            refusal, own, shared = str(error), self.config.unparsable_reward, 0.0
        else:
            acted = self._acted(state, answer)
            plan, own, shared = acted.plan, acted.reward, acted.reward
        solved = self._solved(state.puzzle, plan)
        over = solved or state.round == self.config.max_rounds
        if over and not solved:
            shared += self.env.fail_reward
        after = Work(
            state.puzzle,
            turn=self.roles[0],
            round=state.round + (not over),
            plan=plan,
            printed=state.printed if over else NOT_RUN,
            refusal=refusal,
            over=over,
        )
        rewards = Rewards({role: Scored(own)}, team=Scored(shared))
        return StepResult(
            after, rewards, {"illegal": float(bool(refusal)), "solved": float(solved)}
        )

    def _acted(self, state: Work, answer: str) -> Acted:
        acted = self.env.act(state.puzzle, state.plan, answer)
        return replace(acted, reward=max(LOWEST, acted.reward))

    def _solved(self, puzzle: Any, plan: str | None) -> bool:
        return plan is not None and self.env.score(puzzle, plan) == 1.0

    def _part(self, role: str) -> str:
        rounds = f"There are up to {self.config.max_rounds} rounds. {self.env.next_round}"
        if role == TOOL:
            return (
                "You are the tool: you write a Python program that prints a plan for a puzzle, "
                f"and a planner decides what to do with the plan. {rounds}"
            )
        if role == SOLVER:
            return f"You solve a puzzle with plans. {rounds}"
        return (
            "You are the planner: a tool writes a program that prints a plan for a puzzle. Check "
            f"the plan step by step: it may be wrong. Your own plan is what counts. {rounds}"
        )

    def _situation(self, state: Work, role: str) -> str:
        lines = [f"Round {state.round} of {self.config.max_rounds}."]
        if state.refusal:
            lines.append(f"The last plan was refused: {state.refusal}.")
        elif state.plan is not None and not self._solved(state.puzzle, state.plan):
            lines.append("The plan so far does not solve the puzzle.")
        if state.printed.answer is not None:
            lines.append(f"The program printed the plan: {state.printed.answer}")
        elif state.printed.note:
            lines.append(f"The program {state.printed.note}.")
        return "\n".join(lines)


def _how(role: str) -> str:
    if role != TOOL:
        return HOW_TO_ANSWER
    return (
        "You may think first. Write one program as ```python ... ```, with the standard library "
        "alone. The last line that it prints is your plan; print the plan and nothing else."
    )


def _ask(role: str) -> str:
    return "Write the program." if role == TOOL else "Answer a plan."


def _play(player: ScriptedPlayer, env: ToolPlan, state: Work, role: str, rng: random.Random) -> str:
    """The plan that a player of the puzzle proposes, or a program that prints it."""
    inner: Any = env.env
    first = Draft(inner.position(state.puzzle, state.plan), inner.roles[0])
    reply = player(inner, first, inner.roles[0], rng)
    if role != TOOL:
        return reply
    return as_program(f"print({answer_in(reply, env.config.terse)!r})", env.config.terse)
