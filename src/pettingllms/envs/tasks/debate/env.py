"""Debate: several roles answer one question over rounds and see the others' last answers.

After Du et al. (2023) and, as a game for RL, Park et al. (2025). Each answer gets a process reward
in its round for being correct, or a judge's score, which influence shaping and the algorithm
`debate` use. The team's answer is the majority of the last answers.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from pettingllms.datasets import Problem
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.debate import players
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
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.grading import NO_VERDICT, Verdict, start_grader
from pettingllms.grading.forms import written
from pettingllms.seeds import derive_seed
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
from pettingllms.types.rewards import SubmissionLevel

ALONE = "debater"
REASON = "Reason:"


class DebateConfig(ProblemConfig):
    """Options of `debate-v1`."""

    num_debaters: int = Field(default=3, ge=2, le=8)
    """Number of roles, which answer simultaneously."""
    num_rounds: int = Field(default=3, ge=1, le=10)
    """Number of rounds. In the first, the debaters have not seen each other's answers."""
    reasons: bool = False
    """Whether an answer may come with a one-line reason, which the others see too."""
    verifier: float | None = Field(default=None, ge=0.5, le=1)
    """If set, all roles also see a verifier's verdict on each answer. The verdict is correct
    with this probability."""


@dataclass(frozen=True, slots=True)
class Position:
    """The current position of a debater."""

    answer: str | None = None
    verdict: Verdict = NO_VERDICT
    reason: str = ""
    score: bool | None = None
    """The verifier's verdict on the answer; None without a verifier."""
    refusal: str | None = None
    """Why the last reply was invalid. The previous answer then stays."""
    reply: str = ""
    """The whole reply with the answer, for a judge; empty without one."""


@dataclass(frozen=True, slots=True)
class Floor:
    """A question, the round, and the position of each debater."""

    problem: Problem
    positions: tuple[Position, ...]
    seed: int
    round: int = 1
    over: bool = False


class Debate(Environment[Floor, DebateConfig]):
    """Cooperative, simultaneous. Solo, one debater revises its answer over the same rounds."""

    id = "debate-v1"
    Config = DebateConfig
    players = players.PLAYERS
    limit_level = "team"
    late_rewards = True  # the team is rewarded at the end
    blocking = True

    def __init__(self, config: DebateConfig | None = None) -> None:
        super().__init__(config)
        self.judged = self.config.judged
        self._problems = problem_tasks(self.config)

    @property
    def roles(self) -> tuple[str, ...]:
        if self.config.solo:
            return (ALONE,)
        return tuple(f"debater_{at + 1}" for at in range(self.config.num_debaters))

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._problems.tasks(split)

    def reset(self, task: Task, seed: int) -> Floor:
        start_grader()
        positions = (Position(),) * len(self.roles)
        return Floor(self._problems.problem(task), positions, derive_seed("debate", task.id, seed))

    def acting(self, state: Floor) -> tuple[str, ...]:
        return () if state.over else self.roles

    def observe(self, state: Floor, role: str) -> Sequence[Message]:
        if self.config.terse:
            asked = state.problem.short or state.problem.question
            seen = self._seen_by(state, role) if state.round > 1 else []
            return [user(" ".join([asked, *(_tersely(one) for _, one in seen)]))]
        parts = [state.problem.question, self._situation(state, role), "Answer the question."]
        return [system(self._part(state.problem)), user("\n\n".join(parts))]

    def step(self, state: Floor, replies: Mapping[str, str]) -> StepResult[Floor]:
        positions = tuple(
            self._read(state, at, replies[role]) for at, role in enumerate(self.roles)
        )
        over = state.round == self.config.num_rounds
        after = replace(state, positions=positions, round=state.round + (not over), over=over)
        share = sum(one.verdict.right for one in positions) / len(positions)
        metrics = {
            "illegal": float(any(one.refusal is not None for one in positions)),
            "right": share,
            f"right_in_round_{state.round}": share,
            f"success_in_round_{state.round}": float(self.success(after, self.roles[0])),
            "distinct": float(len(self._votes(after))),
        }
        if self.judged:
            return StepResult(after, self._unjudged(after), metrics, self._submissions(after))
        process = {role: self._score(one) for role, one in zip(self.roles, positions, strict=True)}
        team = self._team(after) if over else None
        return StepResult(after, Rewards(process, team=team), metrics)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        return graded(submission)

    def success(self, state: Floor, role: str) -> bool:
        """Whether the majority answer is correct; ties go to the answer given first."""
        chosen = self._chosen(state)
        return chosen is not None and chosen.verdict.right

    def answer(self, state: Floor, role: str) -> str | None:
        chosen = self._chosen(state)
        return None if chosen is None else _vote(chosen)

    def redeal(self, state: Floor, role: str, rng: random.Random) -> Floor:
        """Another correct answer: debaters' answers and the verifier's verdicts stay unchanged."""
        truth = other_answer(state.problem, rng)
        positions = tuple(
            replace(one, verdict=Verdict(right=rng.random() < 0.5)) for one in state.positions
        )
        return replace(state, problem=replace(state.problem, answer=truth), positions=positions)

    def silence(self, state: Floor, role: str) -> str:
        """The current answer; at first the empty reply, which is invalid."""
        own = state.positions[self.roles.index(role)].answer
        return "" if own is None else self.reply_of(own)

    def reply_of(self, typed: str) -> str:
        return in_box(typed, self.config.terse)

    def hint(self, state: Floor, role: str) -> str:
        return ", ".join(state.problem.choices) or "a number or a formula"

    def _read(self, state: Floor, at: int, reply: str) -> Position:
        problem = state.problem
        try:
            answer = boxed_in(reply, problem, self.config.terse)
            reason = _reason_in(reply) if self.config.reasons else ""
        except BadReply as refusal:
            return replace(state.positions[at], refusal=str(refusal))
        verdict = verdict_on(problem, answer)
        verified = self._verified(state, answer, verdict)
        return Position(answer, verdict, reason, verified, reply=reply if self.judged else "")

    def _verified(self, state: Floor, answer: str, verdict: Verdict) -> bool | None:
        """The verifier's verdict, the same for the same answer within an episode."""
        if self.config.verifier is None or verdict.failure is not None:
            return None
        chance = random.Random(derive_seed(state.seed, normalized_answer(answer))).random()
        return verdict.right == (chance < self.config.verifier)

    def _score(self, position: Position) -> Reward:
        if position.refusal is not None:
            return Scored(self.config.illegal_reward)
        return position.verdict.reward()

    def _unjudged(self, state: Floor) -> Rewards:
        """The rewards of what is not submitted: invalid replies, and a team without an answer."""
        named = zip(self.roles, state.positions, strict=True)
        process = {role: self._score(one) for role, one in named if one.refusal is not None}
        silent = state.over and self._chosen(state) is None
        return Rewards(process, team=Scored(0.0) if silent else None)

    def _submissions(self, state: Floor) -> dict[str, Submission]:
        """Each answer of this round, and at the end that of the team."""
        named = zip(self.roles, state.positions, strict=True)
        shown = {
            role: self._submission(state, one, "process")
            for role, one in named
            if one.refusal is None
        }
        chosen = self._chosen(state) if state.over else None
        return shown if chosen is None else {**shown, TEAM: self._submission(state, chosen)}

    def _submission(
        self, state: Floor, one: Position, level: SubmissionLevel = "agent"
    ) -> Submission:
        terse = self.config.terse
        return answer_submission(state.problem, one.answer or "", one.reply, terse, level)

    def _votes(self, state: Floor) -> Counter[str]:
        return Counter(_vote(one) for one in state.positions if one.answer is not None)

    def _chosen(self, state: Floor) -> Position | None:
        """A position with the majority answer, and with its most common unit."""
        votes = self._votes(state)
        if not votes:
            return None
        answer = votes.most_common(1)[0][0]
        agreed = [s for s in state.positions if s.answer is not None and _vote(s) == answer]
        unit = Counter(map(_unit, agreed)).most_common(1)[0][0]
        return next(one for one in agreed if _unit(one) == unit)

    def _team(self, state: Floor) -> Reward:
        chosen = self._chosen(state)
        return Scored(0.0) if chosen is None else chosen.verdict.reward()

    def _seen_by(self, state: Floor, role: str) -> list[tuple[str, Position]]:
        """The position of each debater, the viewer first."""
        named = list(zip(self.roles, state.positions, strict=True))
        return sorted(named, key=lambda one: one[0] != role)

    def _situation(self, state: Floor, role: str) -> str:
        lines = [f"Round {state.round} of {self.config.num_rounds}."]
        for name, position in self._seen_by(state, role):
            own = name == role
            if own and position.refusal is not None:
                lines.append(f"Your last reply was refused: {position.refusal}.")
            if position.answer is not None:
                whose = "Your answer" if own else f"Answer of {name}"
                lines.append(f"{whose}{_mark(position)}: {position.answer}{_why(position)}")
            elif state.round > 1 and not own:
                lines.append(f"{name} has no answer yet.")
        return "\n".join(lines)

    def _part(self, problem: Problem) -> str:
        count, rounds = len(self.roles), self.config.num_rounds
        if self.config.solo:
            again = f", and go over your answer in {rounds} rounds" if rounds > 1 else ""
            who = f"You answer a question{again}."
        else:
            who = (
                f"You are one of {count} debaters who answer a question over {rounds} rounds. "
                "After each round you see what the others answered. They may be wrong, and so may "
                "you: check, and change your answer or stay with it. What most say in the end is "
                "the team's answer."
            )
        choose = f" The answer is one of: {', '.join(problem.choices)}." if problem.choices else ""
        why = f" You may add a line '{REASON} ...' in {HOW_TO_TALK}." if self.config.reasons else ""
        verifier = (
            " A verifier, which can be wrong, marks each answer." if self.config.verifier else ""
        )
        return f"{who}{verifier}{choose} {HOW_TO_BOX}{why}"


def _vote(position: Position) -> str:
    """The vote of an answer: its normalized spelling. Voting does not use the correct answer."""
    return normalized_answer(position.answer or "")


def _unit(position: Position) -> str:
    return written(position.answer or "").unit


def _tersely(position: Position) -> str:
    mark = {True: "+", False: "-", None: ""}[position.score]
    return f"{position.answer or '?'}{mark}"


def _mark(position: Position) -> str:
    """The verifier's verdict, placed before all text of a debater so that no debater can fake
    it."""
    return {True: " (the verifier: right)", False: " (the verifier: wrong)", None: ""}[
        position.score
    ]


def _why(position: Position) -> str:
    return f" ({position.reason})" if position.reason else ""


def _reason_in(reply: str) -> str:
    """The text after the last `Reason:`, to the end of its line; empty without one."""
    _, found, rest = reply.rpartition(REASON)
    return checked_words(rest.split("\n", 1)[0]) if found else ""
