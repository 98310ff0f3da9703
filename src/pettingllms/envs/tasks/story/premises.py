"""What a story begins with, and a rule that reads it: who, where, what, when.

The words that a story must not hold are known: other seasons than its own, other hours, other
weather. So consistency can be counted, and so can what makes a text a story and no filling: the
things it was given, and words that are not said over and over.
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
"""A sentence of fewer words is half a sentence."""


@dataclass(frozen=True, slots=True)
class Premise:
    """What a story is about, and when."""

    hero: str
    place: str
    thing: str
    setting: tuple[str, ...]
    """One word of each family."""

    @property
    def needed(self) -> tuple[str, ...]:
        """What the story must tell of."""
        return self.hero, self.place, self.thing

    @property
    def contrary(self) -> tuple[str, ...]:
        """What would contradict its setting."""
        return tuple(
            word
            for family, own in zip(FAMILIES.values(), self.setting, strict=True)
            for word in family
            if word != own
        )


def make_premise(rng: random.Random) -> Premise:
    """Any premise."""
    setting = tuple(rng.choice(family) for family in FAMILIES.values())
    return Premise(rng.choice(HEROES), rng.choice(PLACES), rng.choice(THINGS), setting)


def parts_of(premise: Premise, sentences: Sequence[str], num_asked: int) -> dict[str, float]:
    """How consistent, how complete and how varied a story of so many sentences is."""
    words = [WORD.findall(sentence.lower()) for sentence in sentences]
    said = [word for some in words for word in some]
    consistent = [not set(some) & set(premise.contrary) for some in words if some]
    pairs = [pair for some in words for pair in pairwise(some)]
    whole = sum(min(1.0, len(some) / ENOUGH_WORDS) for some in words) / num_asked
    fresh = (len(set(pairs)) / len(pairs) + len(set(said)) / len(said)) / 2 if pairs else 0.0
    return {
        "consistency": min(1.0, sum(consistent) / num_asked),
        "coverage": len(set(premise.needed) & set(said)) / len(premise.needed),
        "variety": fresh * min(1.0, whole),
    }


def worth(parts: Mapping[str, float]) -> float:
    """One number: a story that contradicts itself is worth no more than what does not."""
    return parts["consistency"] * (parts["coverage"] + parts["variety"]) / 2
