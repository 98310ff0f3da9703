"""Who sits where: in a symmetric game nobody keeps the better seat.

Who moves first wins more, so a policy that always sat in one seat would be rated, and trained, for
the seat. Seats therefore follow from a count: after every full round each player was in each seat
equally often.
"""

from collections.abc import Mapping, Sequence

from pettingllms.types import Task

Assignment = Mapping[str, str]
"""Who plays each role of one task."""


def duel(roles: Sequence[str], player: str, opponent: str, number: int) -> Assignment:
    """One player in a seat that moves on with the number of the game, the other in all others."""
    position = roles[number % len(roles)]
    return {role: player if role == position else opponent for role in roles}


def rotations(roles: Assignment, tasks: Sequence[Task], first: int) -> dict[str, Assignment]:
    """Who plays each task, by its id, if everybody moves on by one seat from task to task; `first`
    tasks were played before."""
    return {task.id: rotated(roles, first + at) for at, task in enumerate(tasks)}


def rotated(roles: Assignment, number: int) -> Assignment:
    """The same players, all of them so many seats further on."""
    players = list(roles.values())
    return {role: players[(at - number) % len(players)] for at, role in enumerate(roles)}
