"""The rules of Sokoban: the effect of moves and the score of a plan."""

from collections.abc import Iterable, Set
from dataclasses import dataclass

from pettingllms.envs.toolkit.grid import Grid, distances

FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "-", ".", "$", "*", "@", "+"
ON_GOAL = {FLOOR: GOAL, BOX: BOX_ON_GOAL, PLAYER: PLAYER_ON_GOAL}


@dataclass(frozen=True, slots=True)
class Position:
    """Boxes and player after some moves, and whether every move was possible."""

    boxes: frozenset[int]
    player: int
    possible: bool = True


def goals_of(level: Grid) -> frozenset[int]:
    """The goal cells."""
    return level.where(GOAL + BOX_ON_GOAL + PLAYER_ON_GOAL)


def start_of(level: Grid) -> Position:
    """The position before the first move."""
    (player,) = level.where(PLAYER + PLAYER_ON_GOAL)
    return Position(level.where(BOX + BOX_ON_GOAL), player)


def after(level: Grid, plan: str) -> Position:
    """The position after a plan, which stops at the first impossible move."""
    floor, steps = level.floor(), level.steps
    start = start_of(level)
    boxes, player = set(start.boxes), start.player
    for move in plan:
        ahead, beyond = player + steps[move], player + 2 * steps[move]
        if ahead not in floor or (ahead in boxes and (beyond not in floor or beyond in boxes)):
            return Position(frozenset(boxes), player, possible=False)
        if ahead in boxes:
            boxes.remove(ahead)
            boxes.add(beyond)
        player = ahead
    return Position(frozenset(boxes), player)


def score_plan(level: Grid, plan: str) -> float:
    """1 if every move is possible and every box ends on a goal; else below 1."""
    goals, end = goals_of(level), after(level, plan)
    num_placed = len(end.boxes & goals)
    if end.possible and num_placed == len(end.boxes):
        return 1.0
    away = distances(level.floor(), goals, level.steps.values())
    far = len(level.text)
    first, last = (
        sum(away.get(box, far) for box in boxes) for boxes in (start_of(level).boxes, end.boxes)
    )
    return 0.8 * num_placed / len(end.boxes) + 0.15 * max(0.0, 1.0 - last / first)


def drawn(level: Grid, boxes: Iterable[int], player: int) -> Grid:
    """The level with boxes and player moved to these cells."""
    goals: Set[int] = goals_of(level)
    symbols = dict.fromkeys(level.floor(), FLOOR) | dict.fromkeys(boxes, BOX) | {player: PLAYER}
    return level.put({at: ON_GOAL[s] if at in goals else s for at, s in symbols.items()})
