"""Visual relay: a looker sees an image but cannot act; a mover acts on the looker's message.

Neither role can solve the task alone. The answer is only in the image, never in the text, so a
success rate above chance (one in nine by default) requires image understanding. With
`observation = "text"` the looker reads the board instead: a task of communication for text models.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks, of_half
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.puzzles.visual_relay.image import COLORS, Labels, cell_name, draw_pieces
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.seeds import derive_seed
from pettingllms.types import Image, Message, Rewards, Scored, Task, system, user

LOOKER, MOVER = "looker", "mover"
INITIALS = {color: color[0] for color in COLORS} | {"black": "k"}
"""Letters of the pieces on a board shown as text; b is blue."""
CELL = re.compile(r"\b[A-F][1-6]\b")


class VisualRelayConfig(EnvConfig):
    """Options of the visual relay."""

    num_tasks: int = Field(default=1024, ge=1)
    """Boards per split, each generated from its task's seed."""
    side: int = Field(default=3, ge=2, le=6)
    """Rows and columns of a board."""
    num_pieces: int = Field(default=3, ge=1, le=6)
    """Pieces on a board, each of a different color. One of them is wanted."""
    wanted: Literal["any", "red", "blue", "green", "yellow", "black", "purple"] = "any"
    """The wanted color on every board. `any`: a color of the board, named in the text, so that the
    looker must combine text and image."""
    max_rounds: int = Field(default=1, ge=1)
    """Number of rounds; in each the looker sends a message and the mover takes a cell."""
    illegal_reward: float = -0.1
    """Process reward for an illegal reply, which has no other effect."""
    cell_pixels: int = Field(default=28, ge=12, le=128)
    """Width and height of a cell of the image."""
    labels: Labels = "edge"
    """Where the image names cells: `edge` has letters and numbers at the border, `cells` writes
    each cell's name into it, which is easier to read."""
    observation: Literal["image", "text"] = "image"
    """How the looker sees the board: as an image, or as rows of cells with the first letter of each
    piece's color."""
    blank: bool = False
    """Show the board without pieces: a baseline for a team without image input."""

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        if self.num_pieces >= self.side**2:
            raise ValueError(
                f"num_pieces is {self.num_pieces}, but a board of side {self.side} has "
                f"{self.side**2} cells, and some must be free; set fewer, or a larger side"
            )
        return self


@dataclass(frozen=True, slots=True)
class Scene:
    """Pieces by color and cell, the wanted color, and the last message and taken cell."""

    pieces: tuple[tuple[str, int], ...]
    wanted: str
    turn: str = LOOKER
    round: int = 1
    words: str | None = None
    refusal: str | None = None
    """Why the last reply was illegal, if it was."""
    taken: int | None = None
    over: bool = False


def play_random(env: Any, state: Scene, role: str, rng: random.Random) -> str:
    """Name or take a random cell."""
    side = env.config.side
    return str(env.reply_of(cell_name(rng.randrange(side * side), side)))


def play_honest(env: Any, state: Scene, role: str, rng: random.Random) -> str:
    """The looker names the cell; the mover takes the last cell named in the message."""
    if role == LOOKER:
        return str(env.reply_of(cell_name(dict(state.pieces)[state.wanted], env.config.side)))
    named = CELL.findall(state.words or "")
    return str(env.reply_of(named[-1])) if named else play_random(env, state, role, rng)


PLAYERS = {"random": play_random, "honest": play_honest}


class VisualRelay(Environment[Scene, VisualRelayConfig]):
    """Cooperative and sequential. Both roles know the wanted color; only the looker sees it."""

    id = "visual_relay-v1"
    Config = VisualRelayConfig
    players = PLAYERS
    late_rewards = True
    limit_level = "team"

    @property
    def roles(self) -> tuple[str, ...]:
        return (LOOKER, MOVER)

    @property
    def image_roles(self) -> tuple[str, ...]:
        return () if self.config.observation == "text" else (LOOKER,)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Scene:
        return of_half(
            task.id.startswith("test"),
            lambda attempt: self._make(random.Random(derive_seed("scene", task.seed, attempt))),
            repr,
        )

    def _make(self, rng: random.Random) -> Scene:
        colors = rng.sample(sorted(COLORS), self.config.num_pieces)
        cells = rng.sample(range(self.config.side**2), self.config.num_pieces)
        wanted = rng.choice(colors)
        if self.config.wanted not in ("any", *colors):
            colors[colors.index(wanted)] = self.config.wanted
        if self.config.wanted != "any":
            wanted = self.config.wanted
        return Scene(tuple(sorted(zip(colors, cells, strict=True))), wanted)

    def acting(self, state: Scene) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Scene, role: str) -> Sequence[Message]:
        images = [self._picture(state)] if role in self.image_roles else []
        board = self._rows(state) if role == LOOKER and not images else []
        if self.config.terse:
            rows = [row.replace(" ", "") for row in board]
            return [user("\n".join([*self._tersely(state, role), *rows]), *images)]
        lines = [f"Wanted: the {state.wanted} piece.", *board, *self._situation(state, role)]
        ask = "Tell the mover where it is." if role == LOOKER else "Take a cell."
        return [system(self._role_text(role)), user("\n".join([*lines, ask]), *images)]

    def step(self, state: Scene, replies: Mapping[str, str]) -> StepResult[Scene]:
        role = state.turn
        try:
            answer = answer_in(replies[role], self.config.terse)
            after = self._said(state, answer) if role == LOOKER else self._moved(state, answer)
        except BadReply as error:
            unchanged = replace(state, refusal=str(error), words=None)
            return self._result(_next_turn(unchanged, self.config.max_rounds), role, illegal=True)
        return self._result(_next_turn(after, self.config.max_rounds), role, illegal=False)

    def success(self, state: Scene, role: str) -> bool:
        return state.taken == dict(state.pieces)[state.wanted]

    def solo(self) -> Environment[Any, Any]:
        """One policy plays both roles; as the mover it sees its own message but no image."""
        return SoloAllRoles(self)

    def redeal(self, state: Scene, role: str, rng: random.Random) -> Scene:
        """Move the pieces: the mover does not know where they are before it takes a cell."""
        if role == LOOKER or state.over:
            return state
        colors = [color for color, _ in state.pieces]
        free = [cell for cell in range(self.config.side**2) if cell != state.taken]
        cells = rng.sample(free, len(colors))
        return replace(state, pieces=tuple(zip(colors, cells, strict=True)))

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def draw(self, state: Scene, role: str) -> str:
        side, names = self.config.side, {cell: color for color, cell in state.pieces}
        hidden = role == MOVER and not state.over
        rows = [
            " ".join(
                f"[{names[cell]}]●[/]" if cell in names and not hidden else "·"
                for cell in range(row * side, (row + 1) * side)
            )
            for row in range(side)
        ]
        head = "  " + " ".join("ABCDEF"[:side])
        board = [head, *(f"{at + 1} {row}" for at, row in enumerate(rows))]
        return "\n".join([*board, "", f"wanted: {state.wanted}", *self._situation(state, role)])

    def hint(self, state: Scene, role: str) -> str:
        return "what the mover should know" if role == LOOKER else "a cell, such as B2"

    def _rows(self, state: Scene) -> list[str]:
        """The board as text, from row 1 down."""
        side = self.config.side
        pieces = () if self.config.blank else state.pieces
        letters = {cell: INITIALS[color] for color, cell in pieces}
        cells = [letters.get(cell, ".") for cell in range(side**2)]
        return [" ".join(cells[at : at + side]) for at in range(0, side**2, side)]

    def _picture(self, state: Scene) -> Image:
        config = self.config
        pieces = () if config.blank else state.pieces
        return draw_pieces(config.side, pieces, config.cell_pixels, config.labels)

    def _said(self, state: Scene, answer: str) -> Scene:
        return replace(state, words=checked_words(answer), refusal=None)

    def _moved(self, state: Scene, answer: str) -> Scene:
        side = self.config.side
        names = [cell_name(cell, side) for cell in range(side**2)]
        if answer.upper() not in names:
            raise BadReply(f"{answer[:20]!r} is not a cell from {names[0]} to {names[-1]}")
        return replace(state, taken=names.index(answer.upper()), words=None, refusal=None)

    def _result(self, after: Scene, role: str, illegal: bool) -> StepResult[Scene]:
        process = {role: Scored(self.config.illegal_reward)} if illegal else {}
        found = self.success(after, role)
        team = Scored(float(found)) if after.over else None
        metrics = {"illegal": float(illegal), "found": float(found)}
        return StepResult(after, Rewards(process, team=team), metrics)

    def _role_text(self, role: str) -> str:
        side = self.config.side
        board = (
            f"A board has columns A to {'ABCDEF'[side - 1]} and rows 1 to {side}, A1 at the top "
            f"left, and {self.config.num_pieces} pieces of different colours. The wanted one must "
            "be taken."
        )
        if role == LOOKER:
            where = "in the picture" if self.image_roles else "as rows of cells (. is free)"
            return (
                f"You are the looker: you see the board {where}, and you cannot act. {board}"
                " A mover who sees nothing acts on what you say. Your answer is a message to it: "
                f"{HOW_TO_TALK}. {HOW_TO_ANSWER}"
            )
        return (
            f"You are the mover: you take a cell of a board that you cannot see. {board} A looker "
            "who sees the board tells you what it can. Your answer is a cell, such as B2. "
            f"{HOW_TO_ANSWER}"
        )

    def _situation(self, state: Scene, role: str) -> list[str]:
        lines = [f"Round {state.round} of {self.config.max_rounds}."]
        if state.taken is not None and not state.over:
            name = cell_name(state.taken, self.config.side)
            lines.append(f"{name} was taken, and the {state.wanted} piece is not there.")
        if state.refusal is not None and not state.over:
            lines.append("The last reply was refused, and nothing came of it.")
        if role == MOVER and state.words is not None:
            lines.append(f"The looker says: {state.words}")
        return lines

    def _tersely(self, state: Scene, role: str) -> list[str]:
        lines = [f"{role} {state.wanted}"]
        if state.taken is not None:
            lines.append(f"not {cell_name(state.taken, self.config.side)}")
        return lines if role == LOOKER else [*lines, state.words or "nothing"]


def _next_turn(state: Scene, max_rounds: int) -> Scene:
    """Pass the turn; the episode ends when the piece is taken or no round is left."""
    if state.turn == LOOKER:
        return replace(state, turn=MOVER)
    found = state.taken == dict(state.pieces)[state.wanted]
    if found or state.round == max_rounds:
        return replace(state, over=True)
    return replace(state, turn=LOOKER, round=state.round + 1)
