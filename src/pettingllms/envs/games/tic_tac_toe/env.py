"""Tic-tac-toe: two players, alternating moves, three in a row wins."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import Field

from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.games.tic_tac_toe import players
from pettingllms.envs.solo import SoloOneRole
from pettingllms.envs.toolkit import drawing
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.drawing import BoardImageConfig, by_observation
from pettingllms.seeds import derive_seed
from pettingllms.types import Image, Message, Rewards, Scored, Task, system, user

MARKS = {"player_x": "X", "player_o": "O"}
COLORS = {"X": "[bold cyan]X[/]", "O": "[bold magenta]O[/]"}
LEGEND = "In the picture X is a blue cross, O a red ring, and a grey number stands in a free cell."


class TicTacToeConfig(BoardImageConfig):
    """Options of tic-tac-toe."""

    num_tasks: int = Field(default=1024, ge=1)
    """Games per split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward for an illegal reply, which also loses the game."""
    max_opening: int = Field(default=0, ge=0, le=8)
    """Maximum number of random opening moves, for more varied positions."""
    opponent: Literal["random", "minimax"] = "random"
    """Solo: the scripted opponent."""


@dataclass(frozen=True, slots=True)
class Board:
    """Nine cells of 'X', 'O' or '.', the role to move, and the winner, if any."""

    cells: str = "." * 9
    mover: str = "player_x"
    winner: str | None = None
    forfeit: str | None = None
    """Why the loser's last reply was illegal, if that ended the game."""


class TicTacToe(Environment[Board, TicTacToeConfig]):
    """Symmetric, zero-sum, sequential. An illegal reply loses the game."""

    id = "tic_tac_toe-v1"
    Config = TicTacToeConfig
    players = players.PLAYERS
    late_rewards = True
    limit_reward = -1.0

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(MARKS)

    @property
    def image_roles(self) -> tuple[str, ...]:
        return () if self.config.observation == "text" else self.roles

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Board:
        """The empty board, or a board after random opening moves."""
        rng = random.Random(derive_seed("opening", task.seed, seed))
        board = Board()
        for _ in range(rng.randint(0, self.config.max_opening)):
            opened = _opened(board, rng.choice(players.free(board.cells)))
            if opened is None:
                break
            board = opened
        return board

    def starts(self) -> list[tuple[float, Board]]:
        """Every initial board with its probability."""
        going, ended = {Board(): 1.0}, dict[Board, float]()
        per_length = 1 / (self.config.max_opening + 1)
        found = {Board(): per_length}
        for _ in range(self.config.max_opening):
            after: dict[Board, float] = {}
            for board, chance in going.items():
                free = players.free(board.cells)
                for at in free:
                    opened = _opened(board, at)
                    to, place = (ended, board) if opened is None else (after, opened)
                    to[place] = to.get(place, 0.0) + chance / len(free)
            going = after
            for board, chance in [*going.items(), *ended.items()]:
                found[board] = found.get(board, 0.0) + per_length * chance
        return [(chance, board) for board, chance in found.items()]

    def legal(self, state: Board, role: str) -> list[str]:
        """All legal replies of an acting role."""
        return [self.reply_of(str(at + 1)) for at in players.free(state.cells)]

    def acting(self, state: Board) -> tuple[str, ...]:
        return () if state.winner or "." not in state.cells else (state.mover,)

    def observe(self, state: Board, role: str) -> Sequence[Message]:
        between = "" if self.config.terse else " "
        rows = [between.join(_label(state.cells, at) for at in range(r, r + 3)) for r in (0, 3, 6)]
        images = [draw_board(state.cells, self.config.cell_pixels)] if self.image_roles else []
        if self.config.observation == "image":
            rows = []
        if self.config.terse:
            return [user("\n".join([MARKS[role], *rows]), *images)]
        legend = by_observation(self.config.observation, "Free cells show their number.", LEGEND)
        return [
            system(
                f"You play tic-tac-toe as {MARKS[role]}. Three in a row wins: across, down or "
                f"diagonal. {legend} {HOW_TO_ANSWER}"
            ),
            user("\n".join([*rows, "Your move: the number of a free cell."]), *images),
        ]

    def step(self, state: Board, replies: Mapping[str, str]) -> StepResult[Board]:
        mover, rival = state.mover, _other(state.mover)
        try:
            at = _move(state.cells, answer_in(replies[mover], self.config.terse))
        except BadReply as error:
            lost = Board(state.cells, mover, winner=rival, forfeit=str(error))
            process = {mover: Scored(self.config.illegal_reward)}
            return StepResult(lost, Rewards(process, _outcome(rival)), {"illegal": 1.0})
        cells = state.cells[:at] + MARKS[mover] + state.cells[at + 1 :]
        winner = mover if players.wins(cells, MARKS[mover]) else None
        over = winner is not None or "." not in cells
        rewards = Rewards(agent=_outcome(winner)) if over else Rewards()
        return StepResult(Board(cells, rival, winner), rewards, {"illegal": 0.0})

    def success(self, state: Board, role: str) -> bool:
        return state.winner == role

    def solo(self) -> SoloOneRole:
        return SoloOneRole(self, self.config.opponent)

    def silence(self, state: Board, role: str) -> str:
        """The first free cell: passing is not allowed, and an empty reply loses the game."""
        return self.reply_of(str(players.free(state.cells)[0] + 1))

    def draw(self, state: Board, role: str) -> str:
        from rich.markup import escape

        cells = [COLORS.get(c, f"[dim]{at + 1}[/]") for at, c in enumerate(state.cells)]
        rows = ["│".join(f" {cell} " for cell in cells[r : r + 3]) for r in (0, 3, 6)]
        ending = f"\n\n[red]forfeit: {escape(state.forfeit)}[/]" if state.forfeit else ""
        board = "\n───┼───┼───\n".join(rows)
        return f"{board}\n\n{COLORS[MARKS[role]]} is {role}{ending}"

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def refusal(self, state: Board, role: str, reply: str) -> str | None:
        try:
            _move(state.cells, answer_in(reply, self.config.terse))
        except BadReply as error:
            return str(error)
        return None

    def hint(self, state: Board, role: str) -> str:
        return "a free cell: " + ", ".join(str(at + 1) for at in players.free(state.cells))


def _opened(board: Board, at: int) -> Board | None:
    """The board after a random opening move; None if the move would end the game."""
    cells = board.cells[:at] + MARKS[board.mover] + board.cells[at + 1 :]
    over = players.wins(cells, MARKS[board.mover]) or "." not in cells
    return None if over else Board(cells, _other(board.mover))


def _label(cells: str, at: int) -> str:
    return str(at + 1) if cells[at] == "." else cells[at]


def _other(role: str) -> str:
    return "player_o" if role == "player_x" else "player_x"


def _outcome(winner: str | None) -> dict[str, Scored]:
    if winner is None:
        return {role: Scored(0.0) for role in MARKS}
    return {winner: Scored(1.0), _other(winner): Scored(-1.0)}


def _move(cells: str, answer: str) -> int:
    if answer not in "123456789" or len(answer) != 1:
        raise BadReply(f"{answer[:20]!r} is not a cell from 1 to 9")
    at = int(answer) - 1
    if cells[at] != ".":
        raise BadReply(f"cell {answer} is taken by {cells[at]}")
    return at


@lru_cache(maxsize=8192)
def draw_board(cells: str, cell: int) -> Image:
    """The board as an image."""
    board = drawing.Board(3, 3, cell)
    board.lines()
    for number, mark in enumerate(cells):
        at = (number % 3, number // 3)
        match mark:
            case "X":
                board.cross(at, drawing.BLUE, 0.26, 0.13)
            case "O":
                board.ring(at, drawing.RED, 0.18, 0.13)
            case _:
                board.letter(at, str(number + 1), drawing.GREY, 0.5)
    return board.image()
