"""The iterated prisoner's dilemma, with optional messages and configurable payoffs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.games.iterated_dilemma import players
from pettingllms.envs.games.iterated_dilemma.players import COOPERATE, DEFECT, ROLES
from pettingllms.envs.solo import SoloOneRole
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user

PASS = "pass"  # noqa: S105 - a word of the game


class IteratedDilemmaConfig(EnvConfig):
    """Options of the iterated dilemma. The payoffs may define any symmetric 2x2 game."""

    num_rounds: int = Field(default=10, ge=1, le=100)
    """Number of rounds."""
    shows_end: bool = True
    """Whether prompts state the number of rounds."""
    talk: bool = False
    """Whether both roles send a message before every choice, simultaneously."""
    reward: float = 3.0
    """Payoff for each role if both cooperate."""
    temptation: float = 5.0
    """Payoff for defecting against a cooperator."""
    sucker: float = 0.0
    """Payoff for cooperating with a defector."""
    punishment: float = 1.0
    """Payoff for each role if both defect."""
    num_tasks: int = Field(default=1024, ge=1)
    """Matches per split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward for an illegal reply; an illegal choice counts as defecting."""
    opponent: Literal["random", "tit_for_tat", "cooperate", "defect", "grim"] = "tit_for_tat"
    """Solo: the scripted opponent."""


@dataclass(frozen=True, slots=True)
class Match:
    """Both roles' choices in every round, and their messages before each."""

    chosen: tuple[tuple[str, str], ...] = ()
    said: tuple[tuple[str, str], ...] = ()


class IteratedDilemma(Environment[Match, IteratedDilemmaConfig]):
    """General-sum, simultaneous, perfect information. Both roles get a reward every round."""

    id = "iterated_dilemma-v1"
    Config = IteratedDilemmaConfig
    players = players.PLAYERS
    late_rewards = True

    def __init__(self, config: IteratedDilemmaConfig | None = None) -> None:
        super().__init__(config)
        both = (COOPERATE, DEFECT)
        self.limit_reward = min(self.payoffs((a, b))[0] for a in both for b in both)

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Match:
        return Match()

    def acting(self, state: Match) -> tuple[str, ...]:
        return ROLES if len(state.chosen) < self.config.num_rounds else ()

    def talking(self, state: Match) -> bool:
        """Whether the roles send messages now, rather than choices."""
        return self.config.talk and len(state.said) == len(state.chosen)

    def payoffs(self, chosen: tuple[str, str]) -> tuple[float, float]:
        """The payoffs of one round."""
        mine = {
            (COOPERATE, COOPERATE): self.config.reward,
            (DEFECT, COOPERATE): self.config.temptation,
            (COOPERATE, DEFECT): self.config.sucker,
            (DEFECT, DEFECT): self.config.punishment,
        }
        return mine[chosen], mine[chosen[1], chosen[0]]

    def observe(self, state: Match, role: str) -> Sequence[Message]:
        position = ROLES.index(role)
        if self.config.terse:
            return [user(self._terse(state, position))]
        return [
            system(self._rules(role)),
            user("\n".join([*self._history(state, position), self._question(state, position)])),
        ]

    def step(self, state: Match, replies: Mapping[str, str]) -> StepResult[Match]:
        process: dict[str, Reward] = {}
        read = self._read_message if self.talking(state) else self._read_choice
        answers = []
        for role in ROLES:
            try:
                answers.append(read(replies[role]))
            except BadReply:
                answers.append("" if self.talking(state) else DEFECT)
                process[role] = Scored(self.config.illegal_reward)
        both, metrics = (answers[0], answers[1]), {"illegal": float(len(process))}
        if self.talking(state):
            after = replace(state, said=(*state.said, both))
            return StepResult(after, Rewards(process), metrics)
        agent = dict(zip(ROLES, map(Scored, self.payoffs(both)), strict=True))
        metrics["cooperation"] = both.count(COOPERATE) / 2
        after = replace(state, chosen=(*state.chosen, both))
        return StepResult(after, Rewards(process, agent), metrics)

    def success(self, state: Match, role: str) -> bool:
        """Whether the return is at least that of mutual cooperation."""
        position = ROLES.index(role)
        points = sum(self.payoffs(both)[position] for both in state.chosen)
        return points >= self.config.reward * len(state.chosen)

    def solo(self) -> SoloOneRole:
        return SoloOneRole(self, self.config.opponent)

    def silence(self, state: Match, role: str) -> str:
        """No message, and defect: what an illegal reply counts as, without the penalty."""
        return self.reply_of(PASS if self.talking(state) else DEFECT)

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Match, role: str) -> str:
        if self.talking(state):
            return f"a message ({HOW_TO_TALK}), or {PASS}"
        return f"{COOPERATE} or {DEFECT}"

    def draw(self, state: Match, role: str) -> str:
        from rich.markup import escape

        position = ROLES.index(role)
        return escape("\n".join([*self._history(state, position), self._question(state, position)]))

    def _read_choice(self, reply: str) -> str:
        answer = answer_in(reply, self.config.terse).lower()
        if answer not in (COOPERATE, DEFECT):
            raise BadReply(f"the answer is neither {COOPERATE} nor {DEFECT}")
        return answer

    def _read_message(self, reply: str) -> str:
        words = checked_words(answer_in(reply, self.config.terse))
        return "" if words.lower() == PASS else words

    def _rules(self, role: str) -> str:
        (both,), (neither,) = ({*self.payoffs((c, c))} for c in (COOPERATE, DEFECT))
        taken, lost = self.payoffs((DEFECT, COOPERATE))
        rounds = f"{self.config.num_rounds} rounds" if self.config.shows_end else "several rounds"
        talk = (
            f" Before each choice both send a message ({HOW_TO_TALK}), or {PASS}; it binds nobody."
            if self.config.talk
            else ""
        )
        return (
            f"You are {role}. You and {ROLES[1 - ROLES.index(role)]} play {rounds}. In each, both "
            f"choose at the same time: {COOPERATE} or {DEFECT}. If both cooperate, each gets "
            f"{both:g}. If both defect, each gets {neither:g}. If one defects alone, it gets "
            f"{taken:g} and the other {lost:g}. Get as many points as you can.{talk} An answer "
            f"that is neither counts as {DEFECT}. {HOW_TO_ANSWER}"
        )

    def _history(self, state: Match, position: int) -> list[str]:
        lines, rival = [], ROLES[1 - position]
        for number in range(max(len(state.chosen), len(state.said))):
            line = f"Round {number + 1}:"
            for words, who in zip(
                _mine_first(state.said, number, position), ("you", rival), strict=True
            ):
                line += f' {who} said "{words}",' if words else ""
            if number < len(state.chosen):
                mine, other = _mine_first(state.chosen, number, position)
                points = self.payoffs((mine, other))
                line += (
                    f" you {mine}, {rival} {other}; you get {points[0]:g}, {rival} {points[1]:g}."
                )
            lines.append(line.rstrip(","))
        return lines

    def _question(self, state: Match, position: int) -> str:
        if not self.acting(state):
            points = sum(self.payoffs(both)[position] for both in state.chosen)
            return f"All rounds are over. You got {points:g} points."
        of = f" of {self.config.num_rounds}" if self.config.shows_end else ""
        asked = "your message" if self.talking(state) else f"{COOPERATE} or {DEFECT}"
        return f"Round {len(state.chosen) + 1}{of}: {asked}?"

    def _terse(self, state: Match, position: int) -> str:
        of = f"/{self.config.num_rounds}" if self.config.shows_end else ""
        pairs = ["".join(c[0] for c in (b[position], b[1 - position])) for b in state.chosen]
        lines = [" ".join([f"{len(state.chosen) + 1}{of}", *pairs])]
        if self.config.talk:
            lines += state.said[-1][:: 1 if position == 0 else -1] if state.said else ()
            lines.append("say" if self.talking(state) else "choose")
        return "\n".join(lines)


def _mine_first(pairs: tuple[tuple[str, str], ...], number: int, position: int) -> tuple[str, str]:
    first, second = pairs[number] if number < len(pairs) else ("", "")
    return (first, second) if position == 0 else (second, first)
