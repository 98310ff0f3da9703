"""Assignments of players to roles that balance roles in symmetric games.

The first mover wins more often, so a policy that always had one role would be rated, and trained,
for that role. Roles therefore rotate: after each full round every player had each role equally
often.
"""

from collections.abc import Mapping, Sequence

from pettingllms.types import Task

Assignment = Mapping[str, str]
"""Which player answers for each role of a task."""


def duel(roles: Sequence[str], player: str, opponent: str, number: int) -> Assignment:
    """One player in a role that rotates with the number of the game, the opponent in all others."""
    own_role = roles[number % len(roles)]
    return {role: player if role == own_role else opponent for role in roles}


def rotations(roles: Assignment, tasks: Sequence[Task], first: int) -> dict[str, Assignment]:
    """Assignments by task id, rotated by one role from task to task; `first` is the number of
    earlier tasks."""
    return {task.id: rotated(roles, first + at) for at, task in enumerate(tasks)}


def rotated(roles: Assignment, number: int) -> Assignment:
    """The same players, rotated by `number` roles."""
    players = list(roles.values())
    return {role: players[(at - number) % len(players)] for at, role in enumerate(roles)}
