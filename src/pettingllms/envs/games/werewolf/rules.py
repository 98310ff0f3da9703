"""The rules of werewolf: who is alive, who acts, and the results of nights and votes.

Environment roles are the hidden roles, in a fixed order: wolves, seer, villagers. The names that
players see are assigned at random, so a name reveals nothing about a role. A position is an index
into the roles, from 0; names are numbers from 1.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

WOLVES, VILLAGE = "wolves", "village"
Phase = Literal["night", "talk", "vote", "over"]
NO_PLAYER = 0
"""The name that means no player."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on a day, and the positions that know of it."""

    day: int
    kind: Literal["kill", "look", "found", "died", "hanged", "said", "vote"]
    who: int
    """Name of the player who acted or was affected."""
    target: int = NO_PLAYER
    words: str = ""
    known_to: tuple[int, ...] | None = None
    """None: all players."""


@dataclass(frozen=True, slots=True)
class Village:
    """The full state of a game."""

    names: tuple[int, ...]
    """The name of each position."""
    num_wolves: int
    alive: tuple[bool, ...]
    day: int = 1
    phase: Phase = "night"
    num_spoken: int = 0
    """Number of messages this day."""
    events: tuple[Event, ...] = ()
    winner: str | None = None

    def wolves(self) -> list[int]:
        """Positions of living wolves."""
        return [position for position in range(self.num_wolves) if self.alive[position]]

    def living(self) -> list[int]:
        """Positions of living players, in the order of their names."""
        positions = [position for position, alive in enumerate(self.alive) if alive]
        return sorted(positions, key=lambda position: self.names[position])

    def position_of(self, name: int) -> int:
        """The position with this name."""
        return self.names.index(name)

    def part(self, position: int) -> str:
        """The hidden role of a position."""
        if position < self.num_wolves:
            return "wolf"
        return "seer" if position == self.num_wolves else "villager"

    def side(self, position: int) -> str:
        """The team of a position."""
        return WOLVES if position < self.num_wolves else VILLAGE

    def acting(self) -> list[int]:
        """Positions to act now."""
        if self.phase == "night":
            seer = self.num_wolves
            return [*self.wolves(), *([seer] if self.alive[seer] else [])]
        if self.phase == "talk":
            return [self.living()[self.num_spoken % len(self.living())]]
        return self.living() if self.phase == "vote" else []

    def choices(self, position: int) -> list[int]:
        """Names that a player may choose at night or in a vote."""
        barred = (
            set(self.wolves())
            if self.phase == "night" and position < self.num_wolves
            else {position}
        )
        return sorted(self.names[other] for other in self.living() if other not in barred)


def after_night(village: Village, chosen: Mapping[int, int], num_talks: int) -> Village:
    """The state after a night: the wolves' victim dies and the seer learns a role."""
    events = list(village.events)
    wolves = tuple(range(village.num_wolves))
    for position, name in chosen.items():
        kind: Literal["kill", "look"] = "kill" if position in wolves else "look"
        known_to = wolves if position in wolves else (position,)
        events.append(Event(village.day, kind, village.names[position], name, known_to=known_to))
        if kind == "look" and name != NO_PLAYER:
            part = "a wolf" if village.position_of(name) in wolves else "no wolf"
            events.append(Event(village.day, "found", name, words=part, known_to=(position,)))
    victim = most_named([name for position, name in chosen.items() if position in wolves])
    village = replace(village, events=tuple(events))
    village = _without(village, victim, "died")
    phase: Phase = "talk" if num_talks else "vote"
    return village if village.winner else replace(village, phase=phase, num_spoken=0)


def after_words(village: Village, words: str, num_talks: int) -> Village:
    """The state after a public message."""
    (position,) = village.acting()
    event = Event(village.day, "said", village.names[position], words=words)
    spoken = village.num_spoken + 1
    over = spoken == num_talks * len(village.living())
    phase: Phase = "vote" if over else "talk"
    return replace(village, events=(*village.events, event), num_spoken=spoken, phase=phase)


def after_vote(village: Village, chosen: Mapping[int, int], max_days: int) -> Village:
    """The state after a vote: the player with most votes is hanged; none in a tie."""
    votes = [Event(village.day, "vote", village.names[s], name) for s, name in chosen.items()]
    votes.sort(key=lambda event: event.who)
    village = replace(village, events=(*village.events, *votes))
    village = _without(village, most_named(list(chosen.values())), "hanged")
    if village.winner:
        return village
    if village.day == max_days:
        return replace(village, winner=WOLVES, phase="over")
    return replace(village, day=village.day + 1, phase="night")


def most_named(names: list[int]) -> int:
    """The unique most frequent name, or NO_PLAYER."""
    counts = Counter(name for name in names if name != NO_PLAYER).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return NO_PLAYER
    return counts[0][0]


def _without(village: Village, name: int, how: Literal["died", "hanged"]) -> Village:
    event = Event(village.day, how, name)
    if name == NO_PLAYER:
        return replace(village, events=(*village.events, event))
    gone = village.position_of(name)
    event = replace(event, words=village.part(gone))
    alive = tuple(lives and position != gone for position, lives in enumerate(village.alive))
    after = replace(village, alive=alive, events=(*village.events, event))
    num_wolves = len(after.wolves())
    if not num_wolves:
        return replace(after, winner=VILLAGE, phase="over")
    if 2 * num_wolves >= len(after.living()):
        return replace(after, winner=WOLVES, phase="over")
    return after
