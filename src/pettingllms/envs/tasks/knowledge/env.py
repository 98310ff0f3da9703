"""Knowledge: a finder searches an index, a writer writes a report with citations.

Rules check exactly whether a cited article was found and supports the line, and whether each line
states one requested fact. The team reward uses these rules under every judge. Whether the report
reads well is left to an LLM judge.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.envs.tasks.knowledge import players
from pettingllms.envs.tasks.knowledge.topics import (
    Fact,
    Line,
    Topic,
    make_topic,
    parts_of,
    read_report,
)
from pettingllms.envs.tasks.search.index import require_bm25s, search_world
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in
from pettingllms.envs.toolkit.rule_rewards import rule_reward
from pettingllms.envs.toolkit.talk import checked_words
from pettingllms.envs.toolkit.tool_calls import Look, Parameter, Tool, ToolCall, one_call
from pettingllms.envs.toolkit.tool_texts import (
    ToolConfig,
    call_or_answer,
    describe,
    exchange,
    shown,
)
from pettingllms.seeds import derive_seed
from pettingllms.types import TEAM, Message, Reward, Rewards, Scored, Submission, Task, system, user

FINDER, WRITER = "finder", "writer"
ROLES = (FINDER, WRITER)
TOOLS = (Tool("search", "The best articles for a query.", (Parameter("query", "A few words."),)),)
CRITERIA = (
    "Look at whether the report tells what was asked for and nothing else, plainly and in full. "
    "Its citations are checked elsewhere."
)


class KnowledgeConfig(ToolConfig):
    """Options of `knowledge-v1`."""

    num_tasks: int = Field(default=1024, ge=1)
    """Topics per split, each generated from its task's seed."""
    num_facts: int = Field(default=3, ge=1, le=6)
    """Number of facts that a report must state."""
    world: int = 0
    """Seed of the two worlds, one per split."""
    top_k: int = Field(default=2, ge=1, le=10)
    """Number of articles that a search returns."""
    max_calls: int = Field(default=4, ge=1)
    """Maximum number of searches and invalid replies before the writer acts."""
    max_lines: int = Field(default=8, ge=1, le=40)
    """Maximum number of lines of a report."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply."""


@dataclass(frozen=True, slots=True)
class Study:
    """A topic, the articles found, and the report if there is one."""

    topic: Topic
    turn: str = FINDER
    looks: tuple[Look, ...] = ()
    articles: tuple[tuple[str, str], ...] = ()
    """Title and text of the articles found, each once."""
    num_calls: int = 0
    trouble: str = ""
    advice: str = ""
    """The finder's message to the writer."""
    report: tuple[Line, ...] = ()
    over: bool = False


class Knowledge(Environment[Study, KnowledgeConfig]):
    """Cooperative and sequential. Solo, one role searches and writes."""

    id = "knowledge-v1"
    Config = KnowledgeConfig
    players = players.PLAYERS
    late_rewards = True
    limit_level = "team"
    blocking = True
    judged = True
    rule_parts = ("coverage", "citations", "relevance")

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def solo(self) -> Environment[Any, Any]:
        return SoloAllRoles(self)

    def tasks(self, split: Split) -> Sequence[Task]:
        require_bm25s()
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Study:
        world = derive_seed("world", self.config.world, task.id.partition("-")[0])
        return Study(make_topic(world, task.seed, self.config.num_facts))

    def acting(self, state: Study) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Study, role: str) -> Sequence[Message]:
        if self.config.terse:
            return [user(_tersely(state, role, self.config.max_calls))]
        style = self.config.tool_calls
        if role == WRITER:
            found = "\n".join(f"[{title}] {shown(text)}" for title, text in state.articles)
            advice = f"\nThe finder says: {state.advice}" if state.advice else ""
            asked = f"{state.topic.text}\n\nArticles:\n{found or 'none were found.'}{advice}"
            return [system(_part(role, self.config)), user(asked)]
        instructions = f"{_part(role, self.config)}\n\n{describe(TOOLS, style)}"
        messages = [system(instructions), user(state.topic.text)]
        for look in state.looks:
            messages += exchange(look.call, look.result, style)
        left = self.config.max_calls - state.num_calls
        trouble = f"The last reply came to nothing: {state.trouble}.\n" if state.trouble else ""
        ask = f"{trouble}Searches left: {left}. Search, or answer to hand over."
        return [*messages[:-1], user(f"{messages[-1].content}\n\n{ask}")]

    def step(self, state: Study, replies: Mapping[str, str]) -> StepResult[Study]:
        role, reply = state.turn, replies[state.turn]
        try:
            if role == WRITER:
                return self._write(state, answer_in(reply, self.config.terse))
            call = one_call(reply, TOOLS)
            if call is not None:
                return self._look(state, call)
            words = checked_words(answer_in(reply, self.config.terse))
        except BadReply as refusal:
            return self._reject(state, str(refusal))
        after = replace(state, turn=WRITER, advice=words, trouble="")
        return StepResult(after, Rewards({role: Scored(0.0)}), {"illegal": 0.0})

    def submission(self, state: Study) -> Submission:
        """The report for a judge."""
        text = "\n".join(f"{line.words} [{line.title}]" for line in state.report)
        facts = {
            "asked": [[f.subject, f.relation, f.value] for f in state.topic.facts],
            "articles": dict(state.articles),
        }
        return Submission(state.topic.text, text, CRITERIA, facts)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        asked = [Fact(*fact) for fact in submission.facts["asked"]]
        parts = parts_of(asked, submission.facts["articles"], _lines_of(submission.answer))
        return rule_reward(parts, part, sum(parts.values()) / len(parts))

    def success(self, state: Study, role: str) -> bool:
        """Whether the report states all requested facts and nothing else, and every citation is
        supported."""
        parts = parts_of(state.topic.facts, dict(state.articles), state.report)
        return all(part == 1 for part in parts.values())

    def redeal(self, state: Study, role: str, rng: random.Random) -> Study:
        """Other values of the requested facts."""
        facts = tuple(replace(fact, value=str(rng.random())) for fact in state.topic.facts)
        return replace(state, topic=replace(state.topic, facts=facts))

    def silence(self, state: Study, role: str) -> str:
        """The finder hands over without a search; the writer's empty reply is invalid."""
        return self.reply_of("Nothing to add.") if role == FINDER else ""

    def reply_of(self, typed: str) -> str:
        return call_or_answer(typed, self.config.terse)

    def hint(self, state: Study, role: str) -> str:
        if role == WRITER:
            return "lines that end with their article, like: Ada was born in Alanda. [Ada]"
        return '{"name": "search", "arguments": {"query": "..."}}, or a word to the writer'

    def _look(self, state: Study, call: ToolCall) -> StepResult[Study]:
        found = search_world(state.topic.world, call["query"], self.config.top_k)
        text = "\n".join(f"{article.title}: {article.text}" for article in found)
        known = dict(state.articles) | {article.title: article.text for article in found}
        num_calls = state.num_calls + 1
        after = replace(
            state,
            turn=WRITER if num_calls >= self.config.max_calls else FINDER,
            looks=(*state.looks, Look(call, shown(text) or "Nothing was found.")),
            articles=tuple(known.items()),
            num_calls=num_calls,
            trouble="",
        )
        return StepResult(after, Rewards({FINDER: Scored(0.0)}), {"illegal": 0.0})

    def _write(self, state: Study, text: str) -> StepResult[Study]:
        report = read_report(text, self.config.max_lines)
        return self._ended(replace(state, report=report, over=True), Scored(0.0), 0.0)

    def _reject(self, state: Study, why: str) -> StepResult[Study]:
        penalty = Scored(self.config.illegal_reward)
        if state.turn == WRITER:
            return self._ended(replace(state, over=True), penalty, 1.0)
        num_calls = state.num_calls + 1
        turn = WRITER if num_calls >= self.config.max_calls else FINDER
        after = replace(state, turn=turn, num_calls=num_calls, trouble=why)
        return StepResult(after, Rewards({FINDER: penalty}), {"illegal": 1.0})

    def _ended(self, state: Study, process: Scored, illegal: float) -> StepResult[Study]:
        """Team reward: facts that are stated and cited correctly, scaled by supported and
        relevant lines."""
        parts = parts_of(state.topic.facts, dict(state.articles), state.report)
        rewards = Rewards({WRITER: process}, team=Scored(math.prod(parts.values())))
        metrics = {"illegal": illegal, "coverage": parts["coverage"]}
        metrics |= {"cited": parts["citations"], "relevant": parts["relevance"]}
        return StepResult(state, rewards, metrics, {TEAM: self.submission(state)})


def _lines_of(answer: str) -> tuple[Line, ...]:
    """The lines of a submitted report, or none if it cannot be parsed: a judge may score any
    text."""
    try:
        return read_report(answer, max_lines=1000)
    except BadReply:
        return ()


def _tersely(state: Study, role: str, max_calls: int) -> str:
    lines = [f"{role} {max_calls - state.num_calls}", state.topic.text]
    lines += [f"[{title}] {text}" for title, text in state.articles]
    return "\n".join([*lines, state.advice if role == WRITER else state.trouble]).strip()


def _part(role: str, config: KnowledgeConfig) -> str:
    world = "A report is written from articles of an encyclopedia that nobody knows by heart."
    if role == FINDER:
        return (
            f"You are the finder. {world} You search for the articles that it needs, one query at "
            "a time, and read what they lead to. The writer sees every article that you found, and "
            f"nothing else; hand over with a word to the writer. {HOW_TO_ANSWER}"
        )
    return (
        f"You are the writer. {world} You write it from the articles that the finder found: one "
        "fact a line, in plain words and usual signs, and at the end of the line in square "
        "brackets the article that tells it, by its exact title. A citation that does not hold "
        "costs you, and so does a line that tells more than one fact, or one that nobody asked "
        f"for. At most {config.max_lines} lines. {HOW_TO_ANSWER}"
    )
