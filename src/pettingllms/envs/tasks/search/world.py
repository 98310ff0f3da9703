"""A fictional world: facts generated from a seed, and articles that state them.

No model has been trained on it, so answers must come from searches. Training and testing use
different worlds: only the skill of searching transfers.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Kind = str
STARTS = ("Al", "Bre", "Cor", "Dun", "El", "Fra", "Gor", "Hal", "Is", "Jor", "Kel", "Lo", "Mar")
MIDDLES = ("an", "e", "i", "o", "u", "ar", "en", "il", "or", "us")
ENDS = ("da", "fen", "gar", "lin", "mond", "nia", "ra", "sk", "ton", "vel", "wick", "zo")
JOBS = ("baker", "botanist", "carpenter", "engineer", "painter", "physician", "singer", "teacher")
GOODS = ("bicycles", "bricks", "clocks", "glass", "lamps", "paper", "ropes", "umbrellas")
COINS = ("crown", "florin", "mark", "penny", "shilling", "thaler")
COUNTS: Mapping[Kind, int] = {"country": 8, "city": 40, "river": 24, "person": 110, "company": 40}


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation from one entity to another, or to a word."""

    start: Kind
    end: Kind
    """A kind of entity, or `word`."""
    phrase: str
    """Phrase for the second entity, in terms of the first."""
    sentence: str
    """Sentence that states the relation in the first entity's article."""


RELATIONS: Mapping[str, Relation] = {
    "born": Relation("person", "city", "the city where {x} was born", "{x} was born in {y}."),
    "employer": Relation(
        "person", "company", "the company that {x} works for", "{x} works for {y}."
    ),
    "job": Relation("person", "word", "the profession of {x}", "By profession {x} is a {y}."),
    "river": Relation(
        "city", "river", "the river that flows through {x}", "The river {y} flows through {x}."
    ),
    "country": Relation("city", "country", "the country in which {x} lies", "{x} lies in {y}."),
    "mayor": Relation("city", "person", "the mayor of {x}", "The mayor of {x} is {y}."),
    "founder": Relation("company", "person", "the founder of {x}", "{x} was founded by {y}."),
    "seat": Relation(
        "company", "city", "the city where {x} has its seat", "{x} has its seat in {y}."
    ),
    "goods": Relation("company", "word", "the goods that {x} makes", "{x} makes {y}."),
    "mouth": Relation(
        "river", "city", "the city where {x} reaches the sea", "{x} reaches the sea at {y}."
    ),
    "length": Relation(
        "river", "word", "the length of {x} in kilometres", "{x} has a length of {y} kilometres."
    ),
    "capital": Relation("country", "city", "the capital of {x}", "The capital of {x} is {y}."),
    "coin": Relation("country", "word", "the currency of {x}", "The currency of {x} is the {y}."),
}
WORDS: Mapping[str, Callable[[random.Random], str]] = {
    "job": lambda rng: rng.choice(JOBS),
    "goods": lambda rng: rng.choice(GOODS),
    "length": lambda rng: str(rng.randint(40, 900)),
    "coin": lambda rng: rng.choice(COINS),
}


@dataclass(frozen=True, slots=True)
class Article:
    """A search result."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class World:
    """All facts, and the articles about them."""

    names: Mapping[Kind, tuple[str, ...]]
    facts: Mapping[tuple[str, str], str]
    """By entity and relation."""
    articles: tuple[Article, ...]


@lru_cache(maxsize=8)
def make_world(seed: int) -> World:
    """The world of a seed."""
    rng = random.Random(seed)
    names = _names(rng)
    facts = {
        (thing, name): WORDS[name](rng) if name in WORDS else rng.choice(names[relation.end])
        for name, relation in RELATIONS.items()
        for thing in names[relation.start]
    }
    capitals = rng.sample(names["city"], len(names["country"]))
    for country, city in zip(names["country"], capitals, strict=True):
        facts[country, "capital"], facts[city, "country"] = city, country
    articles = [
        Article(thing, _text(thing, kind, facts, rng))
        for kind, things in names.items()
        for thing in things
    ]
    return World(names, facts, tuple(articles))


def _text(thing: str, kind: Kind, facts: Mapping[tuple[str, str], str], rng: random.Random) -> str:
    sentences = [
        relation.sentence.format(x=thing, y=facts[thing, name])
        for name, relation in RELATIONS.items()
        if relation.start == kind
    ]
    return " ".join([f"{thing} is a {kind}.", *rng.sample(sentences, len(sentences))])


def _names(rng: random.Random) -> Mapping[Kind, tuple[str, ...]]:
    words = [start + middle + end for start in STARTS for middle in MIDDLES for end in ENDS]
    rng.shuffle(words)
    names: dict[Kind, tuple[str, ...]] = {}
    for kind, count in COUNTS.items():
        own = [words.pop() for _ in range(count)]
        if kind == "person":
            own = [f"{word} {words.pop()}" for word in own]
        names[kind] = tuple(f"{word}works" if kind == "company" else word for word in own)
    return names
