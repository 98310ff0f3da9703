"""Scripted players of Sokoban: random moves, and A* over pushes."""

import heapq
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import Any

from pettingllms.envs.puzzles.sokoban.rules import goals_of, start_of
from pettingllms.envs.toolkit.grid import Grid, distances, random_moves, shortest_walk, without_last
from pettingllms.envs.toolkit.plan_check import Script

Boxes = frozenset[int]
Node = tuple[Boxes, int]
"""Positions of the boxes and of the player after the last push."""
MAX_NODES = 20_000
"""Nodes to expand before the search gives up."""
WEIGHT = 3
"""Heuristic weight. Above 1 the search is far faster, but its plan may not be the shortest."""


class Search:
    """Weighted A* over pushes, with moves as cost, for a plan of at most `max_moves`."""

    def __init__(self, level: Grid, max_moves: int) -> None:
        self.level = level
        self.max_moves = max_moves
        self.floor = level.floor()
        self.steps = level.steps
        self.goals = goals_of(level)
        self.pushes = [self._pushes_to(goal) for goal in sorted(self.goals)]
        self.alive = frozenset().union(*self.pushes)
        self.least: dict[Boxes, int | None] = {}

    def run(self, max_nodes: int) -> str | None:
        """A plan; None if no plan exists or the search gave up."""
        start = start_of(self.level)
        first: Node = (start.boxes, start.player)
        order = count()
        cost: dict[Node, int] = {first: 0}
        came: dict[Node, tuple[Node, str]] = {}
        queue = [(0, next(order), 0, first)]
        num_nodes = 0
        while queue and num_nodes < max_nodes:
            _, _, moved, node = heapq.heappop(queue)
            if moved > cost[node]:
                continue
            if node[0] == self.goals:
                return self._plan(came, node)
            num_nodes += 1
            for after, move, moves in self.pushes_from(node):
                total, least = moved + moves, self.pushes_left(after[0])
                if least is None or total + least > self.max_moves:
                    continue
                if total < cost.get(after, total + 1):
                    cost[after] = total
                    came[after] = (node, move)
                    heapq.heappush(queue, (total + WEIGHT * least, next(order), total, after))
        return None

    def pushes_from(self, node: Node) -> list[tuple[Node, str, int]]:
        """Pushes from a node, without obvious deadlocks, and the moves each takes."""
        boxes, player = node
        reach = distances(self.floor - boxes, [player], self.steps.values())
        return [
            ((boxes - {box} | {box + step}, box), move, reach[box - step] + 1)
            for box in boxes
            for move, step in self.steps.items()
            if box - step in reach and box + step in self.alive and box + step not in boxes
            if not self.stuck(boxes - {box} | {box + step}, box + step)
        ]

    def stuck(self, boxes: Boxes, box: int) -> bool:
        """Whether the box is in a 2x2 deadlock of boxes and walls."""
        down = self.steps["D"]
        for corner in (box, box - 1, box - down, box - down - 1):
            square = {corner, corner + 1, corner + down, corner + down + 1}
            if not square & self.floor - boxes and not square & boxes <= self.goals:
                return True
        return False

    def pushes_left(self, boxes: Boxes) -> int | None:
        """Lower bound: fewest pushes that assign boxes to distinct goals; None if impossible."""
        if boxes not in self.least:
            best: dict[int, int] = {0: 0}
            for box in boxes:
                best = self._one_more(best, box)
            self.least[boxes] = min(best.values(), default=None)
        return self.least[boxes]

    def _one_more(self, best: Mapping[int, int], box: int) -> dict[int, int]:
        """Fewest pushes per set of used goals, after assigning one more box."""
        more: dict[int, int] = {}
        for taken, pushes in best.items():
            for goal, pushes_from in enumerate(self.pushes):
                if not taken >> goal & 1 and box in pushes_from:
                    key, total = taken | 1 << goal, pushes + pushes_from[box]
                    more[key] = min(total, more.get(key, total))
        return more

    def _pushes_to(self, goal: int) -> dict[int, int]:
        """Cells from which a single box can be pushed to the goal, with the number of pushes."""
        found = {goal: 0}
        queue = [goal]
        for cell in queue:
            for step in self.steps.values():
                if {cell - step, cell - 2 * step} <= self.floor and cell - step not in found:
                    found[cell - step] = found[cell] + 1
                    queue.append(cell - step)
        return found

    def _plan(self, came: Mapping[Node, tuple[Node, str]], node: Node) -> str:
        plan = ""
        while node in came:
            before, move = came[node]
            stand = node[1] - self.steps[move]
            walk = shortest_walk(self.floor - before[0], before[1], stand, self.steps)
            plan = f"{walk}{move}{plan}"
            node = before
        return plan


@lru_cache(maxsize=4096)
def solve(level: Grid, max_moves: int) -> str | None:
    """A plan of at most `max_moves`; None if the search finds none in time."""
    return Search(level, max_moves).run(MAX_NODES)


def _solve_for(env: Any, level: Grid) -> str | None:
    return solve(level, env.config.max_moves)


PLAYERS = Script(_solve_for, random_moves, without_last).players("astar")
