"""A planner and a checker write one plan together: the base of the puzzle environments.

In each round the planner proposes a whole plan. The checker sees it, and accepts it or replies with
a corrected plan. No role observes whether a plan is correct: it knows only the puzzle and the other
role's replies.

Each reply gets a process reward at once: the change in score of the plan in force. These rewards
sum to the final score, so longer episodes earn nothing extra.
"""

import random
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from pettingllms.datasets.seeded import SeededTasks, halved_seed, of_half
from pettingllms.envs.base import Environment, ScriptedPlayer, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.drawing import BoardImageConfig
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.seeds import derive_seed
from pettingllms.types import Image, Message, Rewards, Scored, Task, system, user

PLANNER, CHECKER, SOLVER = "planner", "checker", "solver"
ACCEPT = "accept"
STRONG_SHARE = 0.15
"""How often the noisy player replies as the strong one. Its replies compound: a team of two
solves about twice as many puzzles as one role."""
LOWEST = -1.0
"""Lowest reward of one plan, with the roles `tool_planner`."""


class PlanCheckConfig(BoardImageConfig):
    """Options of planner-checker environments."""

    num_tasks: int = Field(default=1024, ge=1)
    """Puzzles per split, each generated from its task's seed."""
    max_rounds: int = Field(default=3, ge=1)
    """Maximum number of rounds; the episode then ends with the plan in force. Solo, a round is
    one reply."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply; the plan in force stays."""
    roles: Literal["planner_checker", "tool_planner"] = "planner_checker"
    """`planner_checker`: the checker accepts or corrects the planner's plan. `tool_planner`: the
    tool writes a program that runs in the sandbox, and the planner acts on the plan that it prints,
    with the rewards of AT-GRPO's games."""
    program_seconds: float = Field(default=3.0, gt=0, le=60)
    """`tool_planner`: time limit of a program in seconds."""
    program_memory_mb: int = Field(default=512, ge=64)
    """`tool_planner`: memory limit of a program in MB."""
    failed_reward: float = Field(default=-1.0, le=LOWEST)
    """`tool_planner`: process reward of a program that fails or prints no plan. No plan earns less
    than -1."""
    unparsable_reward: float = Field(default=-2.0, le=2 * LOWEST)
    """`tool_planner`: process reward of a reply without a program or plan."""

    def unused_keys(self) -> set[str]:
        """Keys of the roles that do not play."""
        if self.roles == "tool_planner":
            return {"illegal_reward"}
        programs = {"program_seconds", "program_memory_mb", "failed_reward", "unparsable_reward"}
        return {"roles", *programs}

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        if self.roles == "tool_planner" and self.observation != "text":
            raise ValueError(
                f"roles is 'tool_planner', whose programs cannot read images, but observation is "
                f"'{self.observation}'; set observation = \"text\""
            )
        return self


PuzzleT = TypeVar("PuzzleT", bound=Hashable)
PlanConfigT = TypeVar("PlanConfigT", bound=PlanCheckConfig)


@dataclass(frozen=True, slots=True)
class LastReply:
    """The last reply of a role: a plan, an acceptance, or an invalid reply."""

    role: str
    plan: str | None = None
    accepted: bool = False
    refusal: str | None = None

    def describe(self, viewer: str) -> str:
        """One line about it for the viewer."""
        own = self.role == viewer
        if self.refusal is not None:
            whose = "Your" if own else f"The {self.role}'s"
            return f"{whose} reply was refused: {self.refusal}."
        who = "You" if own else f"The {self.role}"
        if self.accepted:
            return f"{who} accepted the plan."
        verb = "changed the plan to" if self.role == CHECKER else "proposed"
        return f"{who} {verb}: {self.plan}"


@dataclass(frozen=True, slots=True)
class Draft(Generic[PuzzleT]):
    """A puzzle, the plan in force, and the latest replies."""

    puzzle: PuzzleT
    turn: str
    """The acting role."""
    round: int = 1
    plan: str | None = None
    replies: tuple[LastReply, ...] = ()
    """The last reply of each role, oldest first."""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Acted:
    """What a plan changed, with the roles `tool_planner`."""

    plan: str
    """Everything that was acted on so far."""
    reward: float


class PlanCheck(Environment[Draft[PuzzleT], PlanConfigT], Generic[PuzzleT, PlanConfigT]):
    """Sequential and cooperative. A subclass defines the puzzle, the plan format and the score.

    Solo, the one role `solver` proposes and accepts its plans.
    """

    limit_level = "team"
    late_rewards = True  # a plan may still be corrected, and the team is rewarded at the end
    plan_hint: ClassVar[str]
    """Example of a plan, shown to a person."""
    fail_reward: ClassVar[float] = 0.0
    """Team reward if the last round ends without a solution, with the roles `tool_planner`."""
    next_round: ClassVar[str] = "Each plan replaces the one before."
    """What a plan does to the next one, with the roles `tool_planner`."""

    @classmethod
    def create(cls, config: Any) -> Environment[Any, Any]:
        if config.roles == "planner_checker":
            return super().create(config)
        from pettingllms.envs.toolkit.tool_plan import ToolPlan

        return ToolPlan(cls(config))

    @abstractmethod
    def rules(self) -> str:
        """The puzzle and the plan format, for the system prompt."""

    @abstractmethod
    def make(self, seed: int) -> PuzzleT:
        """The puzzle of a seed: immutable, solvable and deterministic."""

    @abstractmethod
    def show(self, puzzle: PuzzleT) -> str:
        """The puzzle as text for a language model."""

    @abstractmethod
    def picture(self, puzzle: PuzzleT) -> Image:
        """The puzzle as an image for a VLM."""

    @abstractmethod
    def read(self, puzzle: PuzzleT, answer: str) -> str:
        """The plan of an answer, normalized and on one line; BadReply with the reason."""

    @abstractmethod
    def score(self, puzzle: PuzzleT, plan: str) -> float:
        """From 0 to 1; 1 if the plan solves the puzzle, and only then."""

    @abstractmethod
    def paint(self, puzzle: PuzzleT, plan: str | None) -> str:
        """The puzzle and the plan in Rich markup, for a person."""

    def act(self, puzzle: PuzzleT, plan: str | None, answer: str) -> Acted:
        """Act on another plan after those so far, with the roles `tool_planner`."""
        before = 0.0 if plan is None else self.score(puzzle, plan)
        return Acted(answer, self.score(puzzle, answer) - before)

    def position(self, puzzle: PuzzleT, plan: str | None) -> PuzzleT:
        """The puzzle after the plans so far, with the roles `tool_planner`."""
        return puzzle

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLVER,) if self.config.solo else (PLANNER, CHECKER)

    @property
    def image_roles(self) -> tuple[str, ...]:
        return () if self.config.observation == "text" else self.roles

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks, halved_seed)

    def puzzle(self, task: Task) -> PuzzleT:
        """The puzzle of a task."""
        return of_half(
            task.seed % 2, lambda attempt: self.make(derive_seed(task.seed, attempt)), self.show
        )

    def reset(self, task: Task, seed: int) -> Draft[PuzzleT]:
        return Draft(self.puzzle(task), self.roles[0])

    def acting(self, state: Draft[PuzzleT]) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Draft[PuzzleT], role: str) -> Sequence[Message]:
        images = [self.picture(state.puzzle)] if self.image_roles else []
        if self.config.terse:
            return [user(self._tersely(state, role), *images)]
        parts = [*self._shown(state), self._situation(state, role), _ask(state, role)]
        return [
            system(f"{self._part(role)} {self.rules()} {HOW_TO_ANSWER}"),
            user("\n\n".join(parts), *images),
        ]

    def step(self, state: Draft[PuzzleT], replies: Mapping[str, str]) -> StepResult[Draft[PuzzleT]]:
        role = state.turn
        closing = role == self.roles[-1]
        try:
            plan: str | None = self._plan_in(state, replies[role])
            last = LastReply(role, plan, accepted=closing and plan == state.plan)
        except BadReply as refusal:
            plan, last = state.plan, LastReply(role, refusal=str(refusal))
        over = last.accepted or (closing and state.round == self.config.max_rounds)
        after = Draft(
            state.puzzle,
            turn=self.roles[(self.roles.index(role) + 1) % len(self.roles)],
            round=state.round + (closing and not over),
            plan=plan,
            replies=(*(earlier for earlier in state.replies if earlier.role != role), last),
            over=over,
        )
        illegal = last.refusal is not None
        score = self._score(after)
        gained = score - self._score(state)
        process = {role: Scored(self.config.illegal_reward if illegal else gained)}
        team = Scored(float(score == 1.0)) if over else None
        return StepResult(
            after, Rewards(process, team=team), {"score": score, "illegal": float(illegal)}
        )

    def success(self, state: Draft[PuzzleT], role: str) -> bool:
        return self._score(state) == 1.0

    def answer(self, state: Draft[PuzzleT], role: str) -> str | None:
        return state.plan

    def silence(self, state: Draft[PuzzleT], role: str) -> str:
        """Acceptance of the plan in force; the planner's empty reply is invalid, and the plan in
        force stays."""
        return self.reply_of(ACCEPT) if _may_accept(state, role) else ""

    def draw(self, state: Draft[PuzzleT], role: str) -> str:
        from rich.markup import escape

        lines = [self.paint(state.puzzle, state.plan), escape(self._situation(state, role))]
        if state.over:
            lines.append("[green]solved[/]" if self.success(state, role) else "[red]not solved[/]")
        return "\n\n".join(lines)

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def refusal(self, state: Draft[PuzzleT], role: str, reply: str) -> str | None:
        try:
            self._plan_in(state, reply)
        except BadReply as refusal:
            return str(refusal)
        return None

    def hint(self, state: Draft[PuzzleT], role: str) -> str:
        return f"{ACCEPT}, or {self.plan_hint}" if _may_accept(state, role) else self.plan_hint

    def _plan_in(self, state: Draft[PuzzleT], reply: str) -> str:
        """The plan in force after a reply; BadReply if the reply is invalid."""
        answer = answer_in(reply, self.config.terse)
        if answer.lower().rstrip(".") != ACCEPT:
            return self.read(state.puzzle, answer)
        if state.turn == PLANNER:
            raise BadReply("the planner cannot accept; give a whole plan")
        if state.plan is None:
            raise BadReply("there is no plan to accept; give a whole plan")
        return state.plan

    def _score(self, state: Draft[PuzzleT]) -> float:
        return 0.0 if state.plan is None else self.score(state.puzzle, state.plan)

    def _part(self, role: str) -> str:
        rounds = self.config.max_rounds
        if role == SOLVER:
            return (
                f"You solve a puzzle with a plan. There are up to {rounds} rounds; answering "
                f"{ACCEPT} ends them early and keeps your last plan."
            )
        end = f"There are up to {rounds} rounds; the last plan is the team's answer."
        if role == PLANNER:
            return (
                "You are the planner: you propose a whole plan for a puzzle, and a checker accepts "
                f"or changes it. {end}"
            )
        return (
            "You are the checker: a planner proposes a plan for a puzzle. Check it step by step. "
            f"If it is right, answer {ACCEPT}; if it is wrong, answer a corrected whole plan. {end}"
        )

    def _tersely(self, state: Draft[PuzzleT], role: str) -> str:
        lines = [f"{role} {state.round}", *(text.replace(" ", "") for text in self._shown(state))]
        if state.replies and state.replies[-1].refusal is not None:
            lines.append("refused")
        if state.plan is not None:
            lines.append(state.plan)
        return "\n".join(lines)

    def _shown(self, state: Draft[PuzzleT]) -> list[str]:
        """The puzzle as text, unless it is shown only as an image."""
        return [] if self.config.observation == "image" else [self.show(state.puzzle)]

    def _situation(self, state: Draft[PuzzleT], role: str) -> str:
        lines = [f"Round {state.round} of {self.config.max_rounds}."]
        lines += [reply.describe(role) for reply in state.replies]
        if state.plan is None:
            lines.append("There is no plan yet.")
        elif state.replies[-1].refusal is not None:
            lines.append(f"The plan is still: {state.plan}")
        return "\n".join(lines)


def _may_accept(state: Draft[Any], role: str) -> bool:
    return role != PLANNER and state.plan is not None


def _ask(state: Draft[Any], role: str) -> str:
    if _may_accept(state, role):
        return f"Answer {ACCEPT}, or a whole plan that is better."
    return "Answer a whole plan."


@dataclass(frozen=True, slots=True)
class Script:
    """Scripted players that can play every role."""

    solve: Callable[[Any, Any], str | None]
    """Takes the environment and a puzzle; returns a solution, or None if it gives up."""
    guess: Callable[[Any, Any, random.Random], str]
    """Takes the environment, a puzzle and a random generator; returns any plan."""
    spoil: Callable[[Any, Any, str], str]
    """Takes the environment, a puzzle and its solution; returns a plan that is wrong only at its
    end."""

    def players(self, strong: str) -> Mapping[str, ScriptedPlayer]:
        """The random player, the strong one under its name, and a mix of strong and hasty."""
        return {
            "random": self.play_random,
            "noisy": noisy(self.play_strong, self.play_hasty, STRONG_SHARE),
            strong: self.play_strong,
        }

    def play_blind(self, env: Any, state: Draft[Any], role: str, rng: random.Random) -> str:
        """A guess, kept by the checker."""
        if _may_accept(state, role):
            return str(env.reply_of(ACCEPT))
        return str(env.reply_of(self.guess(env, state.puzzle, rng)))

    def play_random(self, env: Any, state: Draft[Any], role: str, rng: random.Random) -> str:
        """A guess, or acceptance with probability 0.5."""
        if _may_accept(state, role) and rng.random() < 0.5:
            return str(env.reply_of(ACCEPT))
        return str(env.reply_of(self.guess(env, state.puzzle, rng)))

    def play_hasty(self, env: Any, state: Draft[Any], role: str, rng: random.Random) -> str:
        """The solution with a wrong end, or acceptance of any plan."""
        if _may_accept(state, role):
            return str(env.reply_of(ACCEPT))
        if (solution := self.solve(env, state.puzzle)) is None:
            return self.play_random(env, state, role, rng)
        return str(env.reply_of(self.spoil(env, state.puzzle, solution)))

    def play_strong(self, env: Any, state: Draft[Any], role: str, rng: random.Random) -> str:
        """The solution, or acceptance of a correct plan."""
        if _may_accept(state, role) and env.score(state.puzzle, state.plan) == 1.0:
            return str(env.reply_of(ACCEPT))
        return str(
            env.reply_of(self.solve(env, state.puzzle) or self.guess(env, state.puzzle, rng))
        )
