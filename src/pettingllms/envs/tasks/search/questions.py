"""Multi-hop questions about a world: an entity, a relation of it, a relation of the result."""

import random
from dataclasses import dataclass
from functools import lru_cache

from pettingllms.envs.tasks.search.world import RELATIONS, World, make_world
from pettingllms.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its correct answers. Roles see only the text."""

    text: str
    answers: tuple[str, ...]
    hops: tuple[tuple[str, str], ...] = ()
    """The entities along the hops, each with the question for its next hop."""
    world: int = 0
    """Seed of the world that contains the answer."""

    @property
    def gold(self) -> frozenset[str]:
        """Titles of the needed articles."""
        return frozenset(thing for thing, _ in self.hops)


@lru_cache(maxsize=4096)
def make_question(world_seed: int, seed: int, max_hops: int) -> Question:
    """The question of a seed: two or more hops from an entity that it names."""
    world, rng = make_world(world_seed), random.Random(derive_seed("search", seed))
    num_hops = rng.randint(2, max_hops)
    while True:
        kind = rng.choice(sorted(world.names))
        question = _walk(world, rng, rng.choice(world.names[kind]), kind, num_hops)
        if question is not None:
            return Question(*question, world=world_seed)


def _walk(
    world: World, rng: random.Random, thing: str, kind: str, num_hops: int
) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]] | None:
    phrase = thing
    hops: list[tuple[str, str]] = []
    for at in range(num_hops):
        last = at == num_hops - 1
        relations = [
            name
            for name, relation in RELATIONS.items()
            if relation.start == kind and (last or relation.end != "word")
        ]
        if not relations or thing in [name for name, _ in hops]:
            return None
        name = rng.choice(relations)
        relation = RELATIONS[name]
        hops.append((thing, f"What is {relation.phrase.format(x=thing)}?"))
        phrase, kind = relation.phrase.format(x=phrase), relation.end
        thing = world.facts[thing, name]
    if thing in [name for name, _ in hops]:
        return None
    return f"What is {phrase}?", (thing,), tuple(hops)
