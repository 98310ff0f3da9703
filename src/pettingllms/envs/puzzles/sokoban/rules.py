"""The rules of Sokoban: the effect of moves and the score of a plan."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from pettingllms.envs.toolkit.grid import Grid, distances

FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "-", ".", "$", "*", "@", "+"
STEP, ILLEGAL, ON_GOAL_REWARD, SOLVED, FAILED = -0.01, -0.05, 1.0, 10.0, -5.0
"""Rewards of AT-GRPO's Sokoban: of a move, of an impossible one, of a box that comes onto a goal
(lost again when it leaves), of the solution, and of none."""
POTENTIAL, GAMMA = 0.1, 0.99
"""Weight and discount of the potential, which is from -1 to 0."""
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
    floor, steps, position = level.floor(), level.steps, start_of(level)
    for move in plan:
        position = _moved(floor, steps[move], position)
        if not position.possible:
            break
    return position


def _moved(floor: Set[int], step: int, at: Position) -> Position:
    ahead, beyond = at.player + step, at.player + 2 * step
    if ahead not in floor or (ahead in at.boxes and (beyond not in floor or beyond in at.boxes)):
        return replace(at, possible=False)
    if ahead in at.boxes:
        return Position(at.boxes - {ahead} | {beyond}, ahead)
    return Position(at.boxes, ahead)


def push_on(level: Grid, plan: str, more: str) -> tuple[str, float]:
    """The moves so far after more of them, which end at an impossible one or when every box is on a
    goal, and the reward of these."""
    floor, steps, goals, reward = level.floor(), level.steps, goals_of(level), 0.0
    away, far = distances(floor, goals, steps.values()), len(level.text)

    def total(boxes: frozenset[int]) -> int:
        return sum(away.get(box, far) for box in boxes)

    first, position = total(start_of(level).boxes), after(level, plan)
    for move in more:
        moved = _moved(floor, steps[move], position)
        if position.boxes == goals or not moved.possible:
            return plan, reward + ILLEGAL * (position.boxes != goals)
        last, now = (-min(1.0, total(one.boxes) / first) for one in (position, moved))
        reward += STEP + POTENTIAL * (GAMMA * now - last)
        reward += ON_GOAL_REWARD * (len(moved.boxes & goals) - len(position.boxes & goals))
        plan, position = plan + move, moved
        reward += SOLVED * (position.boxes == goals)
    return plan, reward


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
