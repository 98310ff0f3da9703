"""Rounds: the part of a play in which each role speaks at most once."""

from pettingllms.types import Episode, Turn


def rounds(episode: Episode) -> list[list[int]]:
    """Step indices of each round of the trunk. One ends when a role would speak a second time."""
    found: list[list[int]] = []
    spoken: set[str] = set()
    for at in episode.trunk():
        roles = {episode.turns[index].role for index in episode.steps[at].turns}
        if not found or spoken & roles:
            found.append([])
            spoken = set()
        found[-1].append(at)
        spoken |= roles
    return found


def turns_in(episode: Episode, steps: list[int]) -> list[Turn]:
    """The replies that entered these steps, in order."""
    return [episode.turns[index] for at in steps for index in episode.steps[at].turns]
