"""Sokoban levels: generated from a seed by reverse moves, or read from a file.

Generation starts from a solved level and pulls boxes away from their goals. A reversed pull is a
push, so every level has a solution, and counting the moves keeps it within the limit.
"""

import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path

from pettingllms.datasets.rows import text_files
from pettingllms.datasets.splits import read_splits
from pettingllms.envs.puzzles.sokoban.rules import FLOOR, GOAL, drawn, goals_of
from pettingllms.envs.toolkit.grid import WALL, Grid, distances
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed

WALL_SHARE = 0.25
MIN_PUSHES = 2
"""Required mean distance of a box to the nearest goal; relaxed if no such level is found."""
MAX_ATTEMPTS = 200
"""Attempts with fewer and fewer inner walls and weaker requirements."""


@lru_cache(maxsize=4096)
def make_level(
    seed: int, width: int, height: int, num_boxes: int, num_pulls: int, max_moves: int
) -> Grid:
    """Generate a level: a random room with boxes pulled away from their goals."""
    for attempt in count():
        rng = random.Random(derive_seed("sokoban", seed, attempt))
        ease = max(0.0, 1 - attempt / MAX_ATTEMPTS)
        room = _room(rng, width, height, WALL_SHARE * ease)
        if len(room.floor()) < num_boxes + 2:
            continue
        goals = rng.sample(sorted(room.floor()), num_boxes)
        solved = room.put(dict.fromkeys(goals, GOAL))
        min_total = min(MIN_PUSHES * num_boxes, num_pulls) * ease
        if level := _pulled_apart(rng, solved, num_pulls, max_moves, min_total):
            return level
    raise AssertionError("count() has no end")


def _room(rng: random.Random, width: int, height: int, wall_share: float) -> Grid:
    """A walled room with inner walls; only its largest connected part stays floor."""
    edge = WALL * width
    inner = [
        "".join(WALL if rng.random() < wall_share else FLOOR for _ in range(width - 2))
        for _ in range(height - 2)
    ]
    room = Grid("\n".join([edge, *(f"{WALL}{row}{WALL}" for row in inner), edge]))
    left, largest = set(room.floor()), set[int]()
    while left:
        part = set(distances(left, [min(left)], room.steps.values()))
        left -= part
        largest = max(largest, part, key=len)
    return room.put(dict.fromkeys(room.floor() - largest, WALL))


def _pulled_apart(
    rng: random.Random, solved: Grid, num_pulls: int, max_moves: int, min_total: float
) -> Grid | None:
    """Pull boxes at random; return the position with most boxes off, and farthest from, goals.

    None if their total distance is below `min_total`.
    """
    goals, floor, steps = goals_of(solved), solved.floor(), solved.steps.values()
    away = distances(floor, goals, steps)
    boxes, player, num_moves = goals, rng.choice(sorted(floor - goals)), 0
    seen = {boxes}
    best, most = None, (0, 0)
    for _ in range(num_pulls):
        reach = distances(floor - boxes, [player], steps)
        pulls = [
            (pulled, box + 2 * step, num_moves + reach[box + step] + 1)
            for box in sorted(boxes)
            for step in steps
            if box + step in reach and box + 2 * step in reach
            if (pulled := boxes - {box} | {box + step}) not in seen
        ]
        if not pulls:
            break
        boxes, player, num_moves = rng.choice(pulls)
        seen.add(boxes)
        stands = distances(floor - boxes, [player], steps)
        near = [cell for cell, far in stands.items() if num_moves + far <= max_moves]
        value = (len(boxes - goals), sum(away[box] for box in boxes))
        if near and value > most:
            best, most = drawn(solved, boxes, rng.choice(near)), value
    return best if most[1] >= min_total else None


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a source."""

    id: str
    text: str
    number: int
    """Its position among the distinct levels."""

    def key(self) -> str:
        """The level itself: another drawing is another level."""
        return self.text


@lru_cache(maxsize=8)
def read_splits_of(data: str, test_data: str) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
    """Levels to train and to test on."""
    return read_splits(data, test_data, read_source, lambda level: level.number % 10 == 0)


def read_source(source: str, part: str) -> tuple[Level, ...]:
    """The levels of a source in the Boxoban format."""
    grids = [grid for file in text_files(source, part, "levels") for grid in read_levels(str(file))]
    number = {text: at for at, text in enumerate(dict.fromkeys(grid.text for grid in grids))}
    return tuple(
        Level(f"level-{at}", grid.text, number[grid.text]) for at, grid in enumerate(grids)
    )


@lru_cache(maxsize=16)
def read_levels(path: str) -> tuple[Grid, ...]:
    """Read levels in the Boxoban format: `; n`, then rows of `#@+$*.` and spaces."""
    blocks: list[list[str]] = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the file {path}: {error}") from None
    for line in lines:
        if line.startswith(";"):
            blocks.append([])
        elif line.strip():
            if not blocks:
                raise ValueError(f"{path} does not begin with a line like '; 0'")
            blocks[-1].append(line.rstrip())
    if len(blocks) < 2:
        raise ValueError(f"{path} has {len(blocks)} levels; give two or more, to train and to test")
    return tuple(_level(rows, f"{path}, level {at}") for at, rows in enumerate(blocks))


def _level(rows: list[str], where: str) -> Grid:
    text = "\n".join(rows).replace(" ", FLOOR)
    if wrong := set(text) - set("#-.$*@+\n"):
        raise ValueError(f"{where} has {sorted(wrong)}; a level is made of '#@+$*.' and spaces")
    width = len(rows[0]) if rows else 0
    edge = "".join([rows[0], rows[-1], *(row[0] + row[-1] for row in rows)]) if rows else " "
    if set(edge) != {WALL} or any(len(row) != width for row in rows):
        raise ValueError(f"{where} is not a rectangle with walls all around")
    level = Grid(text)
    num_boxes, num_goals = len(level.where("$*")), len(goals_of(level))
    if len(level.where("@+")) != 1 or num_boxes != num_goals or not level.where("$"):
        raise ValueError(
            f"{where} needs one player, as many boxes as goals, and a box that is not on a goal"
        )
    return level
