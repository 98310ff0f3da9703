"""Base of two-player poker games with a deck of a few cards.

A state is the deal and the history of moves. All randomness is therefore in the initial state. A
role's observation contains the whole history: the game has perfect recall, which best-response
computation needs.
"""

import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user

ROLES = ("player_1", "player_2")
NAMES = {"J": "jack", "Q": "queen", "K": "king"}
STRENGTH = {"J": 1, "Q": 2, "K": 3}


class PokerConfig(EnvConfig):
    """Options of small poker games."""

    num_tasks: int = Field(default=1024, ge=1)
    """Hands per split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward of a reply that is not a legal move; it also folds."""


@dataclass(frozen=True, slots=True)
class Hand:
    """The cards of both players, then the board card if the game has one, and all moves so far."""

    cards: tuple[str, ...]
    history: tuple[str, ...] = ()
    forfeit: str | None = None
    """Why the last reply was invalid, if that ended the hand."""


@dataclass(frozen=True, slots=True)
class Betting:
    """The state of the betting, derived from the moves."""

    mover: int | None
    """Index of the acting player; None once the hand is over."""
    chips: tuple[int, int]
    """Chips that each player has put in."""
    moves: tuple[str, ...] = ()
    """Legal moves of the acting player."""
    folded: int | None = None
    shows_board: bool = False
    rounds: tuple[tuple[str, ...], ...] = ()
    """The moves of each betting round that has begun."""


class Poker(Environment[Hand, PokerConfig]):
    """Zero-sum, sequential, hidden cards. An illegal reply folds."""

    Config = PokerConfig
    late_rewards = True
    deck: tuple[str, ...]
    num_board: int = 0
    """Number of public cards."""
    rules: str
    """The rules for the system prompt."""
    game_value: float
    """Value of the game for player_1 in equilibrium."""

    @abstractmethod
    def follow(self, history: Sequence[str]) -> Betting:
        """The betting after these moves, all of them legal."""

    @property
    def values(self) -> dict[str, float]:
        """The value of the game for each role in equilibrium."""
        return dict(zip(ROLES, (self.game_value, -self.game_value), strict=True))

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def starts(self) -> list[tuple[float, Hand]]:
        """Every distinguishable deal, with its probability."""
        deals = Counter(permutations(self.deck, 2 + self.num_board))
        return [(count / deals.total(), Hand(cards)) for cards, count in deals.items()]

    def reset(self, task: Task, seed: int) -> Hand:
        rng = random.Random(derive_seed("poker", task.seed, seed))
        return Hand(tuple(rng.sample(self.deck, 2 + self.num_board)))

    def betting(self, state: Hand) -> Betting:
        """The betting of a hand; an invalid reply folds."""
        now = self.follow(state.history)
        if state.forfeit is None:
            return now
        return replace(now, mover=None, moves=(), folded=now.mover)

    def acting(self, state: Hand) -> tuple[str, ...]:
        mover = self.betting(state).mover
        return () if mover is None else (ROLES[mover],)

    def legal(self, state: Hand, role: str) -> list[str]:
        """Every legal reply of the acting role."""
        return [self.reply_of(move) for move in self.betting(state).moves]

    def observe(self, state: Hand, role: str) -> Sequence[Message]:
        now, position = self.betting(state), ROLES.index(role)
        if self.config.terse:
            moves = " | ".join(" ".join(words) for words in now.rounds)
            return [user(f"{self._shown(state, now, position)} {moves}".rstrip())]
        return [
            system(
                f"You are {role} in {self.rules} A reply that is not a legal move folds. "
                f"{HOW_TO_ANSWER}"
            ),
            user(
                "\n".join(
                    [*self._table(state, now, position), self._question(state, now, position)]
                )
            ),
        ]

    def step(self, state: Hand, replies: Mapping[str, str]) -> StepResult[Hand]:
        (mover,) = self.acting(state)
        process: dict[str, Reward] = {}
        try:
            move = self._read(replies[mover], self.betting(state).moves)
            after = replace(state, history=(*state.history, move))
        except BadReply as refusal:
            after = replace(state, forfeit=str(refusal))
            process = {mover: Scored(self.config.illegal_reward)}
        over = not self.acting(after)
        won = self.won(after) if over else (0, 0)
        agent = {role: Scored(chips) for role, chips in zip(ROLES, won, strict=True) if over}
        metrics = {"illegal": float(bool(process))}
        if over:
            metrics["pot"] = float(sum(self.betting(after).chips))
        return StepResult(after, Rewards(process, agent), metrics)

    def won(self, state: Hand) -> tuple[int, int]:
        """Chips that each player of a finished hand has won; negative if lost."""
        now = self.betting(state)
        loser = now.folded
        if loser is None:
            first, second = (self.strength(state.cards, position) for position in (0, 1))
            if first == second:
                return (0, 0)
            loser = 0 if first < second else 1
        lost = now.chips[loser]
        return (-lost, lost) if loser == 0 else (lost, -lost)

    def strength(self, cards: tuple[str, ...], position: int) -> int:
        """Strength of a player's cards at the showdown."""
        pairs = cards[position] in cards[2:]
        return STRENGTH[cards[position]] + 10 * pairs

    def success(self, state: Hand, role: str) -> bool:
        return self.won(state)[ROLES.index(role)] > 0

    def redeal(self, state: Hand, role: str, rng: random.Random) -> Hand:
        now, position = self.betting(state), ROLES.index(role)
        known = {position, 2} if now.shows_board else {position}
        left = list((Counter(self.deck) - Counter(state.cards[at] for at in known)).elements())
        rng.shuffle(left)
        cards = [c if at in known else left.pop() for at, c in enumerate(state.cards)]
        return replace(state, cards=tuple(cards))

    def silence(self, state: Hand, role: str) -> str:
        """Check, or fold to a bet: the passive move that adds no chips."""
        moves = self.betting(state).moves
        return self.reply_of("check" if "check" in moves else "fold")

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Hand, role: str) -> str:
        return ", ".join(self.betting(state).moves)

    def draw(self, state: Hand, role: str) -> str:
        from rich.markup import escape

        now, position = self.betting(state), ROLES.index(role)
        ending = f"\n[red]forfeit: {escape(state.forfeit)}[/]" if state.forfeit else ""
        lines = [*self._table(state, now, position), self._question(state, now, position)]
        return "\n".join(map(escape, lines)) + ending

    def _read(self, reply: str, moves: tuple[str, ...]) -> str:
        answer = answer_in(reply, self.config.terse).lower()
        if answer not in moves:
            raise BadReply(f"the answer is none of {', '.join(moves)}")
        return answer

    def _shown(self, state: Hand, now: Betting, position: int) -> str:
        board = (state.cards[2] if now.shows_board else "-") if self.num_board else ""
        return state.cards[position] + board

    def _table(self, state: Hand, now: Betting, position: int) -> list[str]:
        lines = [f"Your card: {NAMES[state.cards[position]]}."]
        if self.num_board:
            board = NAMES[state.cards[2]] if now.shows_board else "not shown yet"
            lines.append(f"The board: {board}.")
        for number, words in enumerate(now.rounds, 1):
            who = [("you" if at % 2 == position else ROLES[at % 2]) for at in range(len(words))]
            moves = ", ".join(f"{one}: {word}" for one, word in zip(who, words, strict=True))
            name = f"Round {number}" if self.num_board else "Said so far"
            lines.append(f"{name}: {moves or 'nothing yet'}.")
        lines.append(
            f"Chips put in: you {now.chips[position]}, {ROLES[1 - position]} "
            f"{now.chips[1 - position]}."
        )
        return lines

    def _question(self, state: Hand, now: Betting, position: int) -> str:
        if now.mover == position:
            return f"Your move: {' or '.join(now.moves)}."
        if now.mover is not None:
            return f"It is the turn of {ROLES[now.mover]}."
        shown = ""
        if now.folded is None:
            shown = f" {ROLES[1 - position]} had the {NAMES[state.cards[1 - position]]}."
        return f"The hand is over.{shown} You won {self.won(state)[position]:+d} chips."
