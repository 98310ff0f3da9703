"""Story premises, and a rule that scores stories by them.

The words that contradict a premise are known: other seasons, other hours, other weather. So the
rule can count consistency. It also counts what separates a story from filler: the required things,
and words that are not repeated.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

HEROES = ("fox", "baker", "giant", "robot", "queen", "sailor", "witch", "miller", "painter", "bear")
PLACES = ("forest", "harbour", "castle", "market", "desert", "island", "library", "station")
THINGS = (
    "key",
    "lantern",
    "letter",
    "violin",
    "map",
    "mirror",
    "clock",
    "kettle",
    "ladder",
    "coin",
)
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "season": ("spring", "summer", "autumn", "winter"),
    "hour": ("morning", "noon", "evening", "midnight"),
    "weather": ("rain", "snow", "fog", "sunshine"),
}
WORD = re.compile(r"[a-z]+")
ENOUGH_WORDS = 5
"""A sentence with fewer words counts in part."""


@dataclass(frozen=True, slots=True)
class Premise:
    """The subject and setting of a story."""

    hero: str
    place: str
    thing: str
    setting: tuple[str, ...]
    """One word of each family."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Words that the story must contain."""
        return self.hero, self.place, self.thing

    @property
    def contrary(self) -> tuple[str, ...]:
        """Words that contradict the setting."""
        return tuple(
            word
            for family, own in zip(FAMILIES.values(), self.setting, strict=True)
            for word in family
            if word != own
        )


def make_premise(rng: random.Random) -> Premise:
    """A random premise."""
    setting = tuple(rng.choice(family) for family in FAMILIES.values())
    return Premise(rng.choice(HEROES), rng.choice(PLACES), rng.choice(THINGS), setting)


def parts_of(premise: Premise, sentences: Sequence[str], num_asked: int) -> dict[str, float]:
    """Consistency, coverage and variety of a story with this many requested sentences."""
    words = [WORD.findall(sentence.lower()) for sentence in sentences]
    all_words = [word for some in words for word in some]
    consistent = [not set(some) & set(premise.contrary) for some in words if some]
    pairs = [pair for some in words for pair in pairwise(some)]
    whole = sum(min(1.0, len(some) / ENOUGH_WORDS) for some in words) / num_asked
    fresh = (
        (len(set(pairs)) / len(pairs) + len(set(all_words)) / len(all_words)) / 2 if pairs else 0.0
    )
    return {
        "consistency": min(1.0, sum(consistent) / num_asked),
        "coverage": len(set(premise.needed) & set(all_words)) / len(premise.needed),
        "variety": fresh * min(1.0, whole),
    }


def total_score(parts: Mapping[str, float]) -> float:
    """The total score; contradictions scale it down."""
    return parts["consistency"] * (parts["coverage"] + parts["variety"]) / 2
