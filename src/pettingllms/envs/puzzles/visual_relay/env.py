"""A looker sees a picture and cannot act; a mover acts and cannot see: they must talk.

Neither role can do the task alone. A mover that is told nothing takes one cell of nine, and what
the looker knows is in the picture and nowhere in its text: a team that does better has looked.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks, of_half
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.puzzles.visual_relay import players
from pettingllms.envs.puzzles.visual_relay.image import COLORS, Labels, cell_name, draw_pieces
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.seeds import derive_seed
from pettingllms.types import Image, Message, Rewards, Scored, Task, system, user

LOOKER, MOVER = "looker", "mover"


class VisualRelayConfig(EnvConfig):
    """Options of the visual relay."""

    num_tasks: int = Field(default=1024, ge=1)
    """Boards in a split, each made from its task's seed."""
    side: int = Field(default=3, ge=2, le=6)
    """Rows and columns of a board."""
    num_pieces: int = Field(default=3, ge=1, le=6)
    """Pieces on a board, each of a colour of its own. One of them is wanted."""
    wanted: Literal["any", "red", "blue", "green", "yellow", "black", "purple"] = "any"
    """The colour that is wanted on every board; `any`: one of the board's, told in words, so that
    what is read and what is seen must be brought together."""
    max_rounds: int = Field(default=1, ge=1)
    """Times that the looker may speak and the mover may take a cell."""
    illegal_reward: float = -0.1
    """Process reward of a reply that is refused; nothing is said or taken then."""
    cell_pixels: int = Field(default=28, ge=12, le=128)
    """Width and height of a cell of the picture."""
    labels: Labels = "edge"
    """Where the picture names cells: by letters and numbers at its edge, or each cell inside it,
    which is easier to read: a cell is then enough to know its own name."""
    blank: bool = False
    """Show the board without its pieces: what a team reaches that cannot see."""

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
    """Pieces by colour and cell, the colour that is wanted, and what was said and taken last."""

    pieces: tuple[tuple[str, int], ...]
    wanted: str
    turn: str = LOOKER
    round: int = 1
    words: str | None = None
    refusal: str | None = None
    """Why the last reply was refused, if it was."""
    taken: int | None = None
    over: bool = False


class VisualRelay(Environment[Scene, VisualRelayConfig]):
    """Cooperative and sequential. Both know which colour is wanted, one sees where it is."""

    id = "visual_relay-v1"
    Config = VisualRelayConfig
    players = players.PLAYERS
    late_rewards = True
    limit_level = "team"

    @property
    def roles(self) -> tuple[str, ...]:
        return (LOOKER, MOVER)

    @property
    def image_roles(self) -> tuple[str, ...]:
        return (LOOKER,)

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
        images = [self._picture(state)] if role == LOOKER else []
        if self.config.terse:
            return [user("\n".join(self._tersely(state, role)), *images)]
        lines = [f"Wanted: the {state.wanted} piece.", *self._situation(state, role)]
        ask = "Tell the mover where it is." if role == LOOKER else "Take a cell."
        return [system(self._part(role)), user("\n".join([*lines, ask]), *images)]

    def step(self, state: Scene, replies: Mapping[str, str]) -> StepResult[Scene]:
        role = state.turn
        try:
            answer = answer_in(replies[role], self.config.terse)
            after = self._said(state, answer) if role == LOOKER else self._moved(state, answer)
        except BadReply as refusal:
            refused = replace(state, refusal=str(refusal), words=None)
            return self._result(_passed(refused, self.config.max_rounds), role, illegal=True)
        return self._result(_passed(after, self.config.max_rounds), role, illegal=False)

    def success(self, state: Scene, role: str) -> bool:
        return state.taken == dict(state.pieces)[state.wanted]

    def solo(self) -> Environment[Any, Any]:
        """One policy in both seats: as the mover it has what it said as the looker, no picture."""
        return SoloAllRoles(self)

    def redeal(self, state: Scene, role: str, rng: random.Random) -> Scene:
        """Pieces that lie elsewhere, which the mover cannot tell until it has taken one."""
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

    def _part(self, role: str) -> str:
        side = self.config.side
        board = (
            f"A board has columns A to {'ABCDEF'[side - 1]} and rows 1 to {side}, A1 at the top "
            f"left, and {self.config.num_pieces} pieces of different colours. The wanted one must "
            "be taken."
        )
        if role == LOOKER:
            return (
                f"You are the looker: you see the board in the picture, and you cannot act. {board}"
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


def _passed(state: Scene, max_rounds: int) -> Scene:
    """The scene with the turn passed on; over if the piece was taken, or no round is left."""
    if state.turn == LOOKER:
        return replace(state, turn=MOVER)
    found = state.taken == dict(state.pieces)[state.wanted]
    if found or state.round == max_rounds:
        return replace(state, over=True)
    return replace(state, turn=LOOKER, round=state.round + 1)
