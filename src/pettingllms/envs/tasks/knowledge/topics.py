"""Topics of reports, generated from a world; parsing of reports and checks of their citations."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pettingllms.envs.tasks.search.grading import normal
from pettingllms.envs.tasks.search.world import RELATIONS, make_world
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.talk import checked_words
from pettingllms.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of one article: its subject, a relation of it, and the value."""

    subject: str
    relation: str
    value: str

    @property
    def sentence(self) -> str:
        """The sentence that states the fact in the article."""
        return RELATIONS[self.relation].sentence.format(x=self.subject, y=self.value)


@dataclass(frozen=True, slots=True)
class Topic:
    """The facts that a report must state. Roles see only the text."""

    text: str
    facts: tuple[Fact, ...]
    world: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a report: its text and the article that it cites."""

    words: str
    title: str


@lru_cache(maxsize=4096)
def make_topic(world_seed: int, seed: int, num_facts: int) -> Topic:
    """The topic of a seed: facts that lead from one article to others."""
    world, rng = make_world(world_seed), random.Random(derive_seed("knowledge", seed))
    kind = rng.choice(sorted(world.names))
    thing = rng.choice(world.names[kind])
    phrase, known = thing, {thing}
    asked: list[str] = []
    facts: list[Fact] = []
    while len(facts) < num_facts:
        used = {(fact.subject, fact.relation) for fact in facts}
        relations = [
            name
            for name, relation in RELATIONS.items()
            if relation.start == kind and (thing, name) not in used
        ]
        name = rng.choice(relations)
        relation = RELATIONS[name]
        fact = Fact(thing, name, world.facts[thing, name])
        facts.append(fact)
        asked.append(relation.phrase.format(x=phrase))
        leads_on = relation.end != "word" and fact.value not in known
        if leads_on and (rng.random() < 0.5 or len(relations) == 1):
            thing, kind, phrase = fact.value, relation.end, asked[-1]
            known.add(thing)
        elif len(relations) == 1:
            return make_topic(world_seed, derive_seed(seed, "again"), num_facts)
    return Topic(f"Tell of {facts[0].subject}: {'; '.join(asked)}.", tuple(facts), world_seed)


def read_report(text: str, max_lines: int) -> tuple[Line, ...]:
    """The lines of a report; BadReply if one cites no article or has forbidden symbols."""
    found = []
    for line in (one.strip() for one in text.split("\n") if one.strip()):
        words, _, cited = line.removesuffix(".").rpartition("[")
        title = cited.removesuffix("]")
        if not words.strip() or not title or title == cited:
            raise BadReply("a line ends with the article that tells it, like [Alanda]")
        found.append(Line(checked_words(words), checked_words(title)))
    if not 1 <= len(found) <= max_lines:
        raise BadReply(f"{len(found)} lines; give 1 to {max_lines}")
    return tuple(found)


def parts_of(
    asked: Sequence[Fact], articles: Mapping[str, str], lines: Sequence[Line]
) -> dict[str, float]:
    """Shares of requested facts stated with a correct citation, of supported citations, and of
    relevant lines. `articles` are those that were found, by title. A line with more than one
    fact counts as none: otherwise copying all articles would be the best report."""
    plain = [line for line in lines if _num_facts(line, articles) <= 1]
    stated = [fact for fact in asked if any(_states(line, fact, articles) for line in plain)]
    supported = [line for line in lines if _is_supported(line, articles)]
    relevant = [line for line in plain if any(_concerns(line, fact) for fact in asked)]
    number = max(1, len(lines))
    return {
        "coverage": len(stated) / len(asked),
        "citations": len(supported) / number,
        "relevance": len(relevant) / number,
    }


def _num_facts(line: Line, articles: Mapping[str, str]) -> int:
    """Number of facts of the cited article that a line states."""
    values = _values(line.title, articles.get(line.title, ""))
    return sum(_contains(line, value) for value in values)


def _values(title: str, text: str) -> set[str]:
    """The values that an article states about its subject."""
    found = set()
    for relation in RELATIONS.values():
        before, after = relation.sentence.split("{y}")
        rest = text.partition(before.format(x=title))[2]
        value, end, _ = rest.partition(after.format(x=title))
        if end:
            found.add(value)
    return found


def _states(line: Line, fact: Fact, articles: Collection[str]) -> bool:
    """Whether a line states a fact's value and cites its article, and the article was found."""
    return line.title == fact.subject and line.title in articles and _contains(line, fact.value)


def _concerns(line: Line, fact: Fact) -> bool:
    """Whether a line states a fact's value, and names its subject or cites its article."""
    about = line.title == fact.subject or _contains(line, fact.subject)
    return about and _contains(line, fact.value)


def _is_supported(line: Line, articles: Mapping[str, str]) -> bool:
    """Whether the article was found and contains every name and number of the line, or the whole
    line if it has none."""
    text = f" {normal(articles.get(line.title, ''))} "
    named = [word for word in line.words.split()[1:] if word[:1].isupper() or word[:1].isdigit()]
    values = [normal(word) for word in named] or [normal(line.words)]
    return bool(text.strip()) and all(f" {value} " in text for value in values if value)


def _contains(line: Line, value: str) -> bool:
    return f" {normal(value)} " in f" {normal(line.words)} "
