"""Multi-hop questions: a decomposer splits the question, a searcher searches and answers.

The decomposer replies once and sees no article. The searcher sees the parts, queries the index once
per reply, and gives a short answer, which is compared with the reference answer.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import Field

from pettingllms.datasets.seeded import NUM_MADE, SeededTasks
from pettingllms.datasets.short_answers import ShortAnswer, read_short_answers
from pettingllms.datasets.splits import read_splits
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.search import players
from pettingllms.envs.tasks.search.grading import f1, is_exact, normal
from pettingllms.envs.tasks.search.index import require_bm25s, search_service, search_world
from pettingllms.envs.tasks.search.questions import Question, make_question
from pettingllms.envs.tasks.search.world import Article
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in
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
from pettingllms.types import Message, Rewards, Scored, Task, system, user

DECOMPOSER, SEARCHER, SOLVER = "decomposer", "searcher", "solver"
TOOLS = (Tool("search", "The best articles for a query.", (Parameter("query", "A few words."),)),)
MAX_PARTS = 4


class SearchConfig(ToolConfig):
    """Options of `search-v1`."""

    num_tasks: int | None = Field(default=None, ge=1)
    """Maximum number of questions per split. Unset: all of a file, or 1024 generated ones, each
    from its task's seed."""
    max_hops: int = Field(default=3, ge=2, le=4)
    """Maximum number of articles that a question needs; the minimum is two."""
    world: int = 0
    """Seed of the two generated worlds, one per split."""
    data: str = ""
    """Source of the questions: `hotpotqa`, `hf:OWNER/NAME`, or a file of rows with `question` and
    `answer` or `golden_answers`. Empty: questions are generated about the worlds."""
    test_data: str = ""
    """Source of the test questions, in the same form. Empty: one in five questions of `data`."""
    service: str = ""
    """HTTP address of a search service. It receives `query` and `top_k` as JSON and returns
    `results` with `title` and `text`. Empty: the local index of the world, without network
    access."""
    top_k: int = Field(default=2, ge=1, le=10)
    """Number of articles that a search returns."""
    max_calls: int = Field(default=4, ge=1)
    """Maximum number of searches before the searcher must answer."""
    max_tries: int = Field(default=2, ge=1)
    """Maximum number of invalid replies once no searches are left."""
    look_reward: float = 0.2
    """Process reward for finding all articles that the answer needs, split over the searches.
    The decomposer earns the same for what its parts would find as queries."""
    call_cost: float = 0.02
    """Cost of a search, as negative agent reward of its role."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply."""


@dataclass(frozen=True, slots=True)
class Quest:
    """A question, its parts, the articles found so far, and the answer if there is one."""

    question: Question
    turn: str
    parts: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()
    seen: frozenset[str] = frozenset()
    """Titles of articles that were found."""
    num_calls: int = 0
    num_tries: int = 0
    trouble: str = ""
    """Why the last reply was invalid."""
    answer: str = ""
    over: bool = False


class Search(Environment[Quest, SearchConfig]):
    """Sequential and cooperative. Solo, the one role `solver` searches and answers."""

    id = "search-v1"
    Config = SearchConfig
    players = players.PLAYERS
    late_rewards = True
    limit_level = "team"
    blocking = True

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLVER,) if self.config.solo else (DECOMPOSER, SEARCHER)

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        if not self.config.service:
            require_bm25s()
        if not self._reads(split):
            return SeededTasks(split, self.config.num_tasks or NUM_MADE)
        own = self._rows(split)[: self.config.num_tasks]
        return [Task(f"{split}-{row.at}", {"row": at}) for at, row in enumerate(own)]

    def reset(self, task: Task, seed: int) -> Quest:
        return Quest(self._question(task), self.roles[0])

    def acting(self, state: Quest) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Quest, role: str) -> Sequence[Message]:
        if self.config.terse:
            return [user(self._tersely(state, role))]
        question = f"Question: {state.question.text}"
        if role == DECOMPOSER:
            return [system(_part(role)), user(f"{question}\n\n{self._situation(state, role)}")]
        style = self.config.tool_calls
        if state.parts:
            parts = "\n".join(f"- {part}" for part in state.parts)
            question = f"{question}\nThe decomposer splits it so:\n{parts}"
        messages = [system(f"{_part(role)}\n\n{describe(TOOLS, style)}"), user(question)]
        for look in state.looks:
            messages += exchange(look.call, look.result, style)
        last = f"{messages[-1].content}\n\n{self._situation(state, role)}"
        return [*messages[:-1], user(last)]

    def step(self, state: Quest, replies: Mapping[str, str]) -> StepResult[Quest]:
        role, reply = state.turn, replies[state.turn]
        try:
            call = None if role == DECOMPOSER else one_call(reply, TOOLS)
            if call is not None:
                return self._look(state, call)
            answer = answer_in(reply, self.config.terse)
            if role == DECOMPOSER:
                return self._split_up(state, answer)
            return self._answer(state, checked_words(answer))
        except BadReply as refusal:
            return self._reject(state, str(refusal))

    def success(self, state: Quest, role: str) -> bool:
        return is_exact(state.answer, state.question.answers)

    def answer(self, state: Quest, role: str) -> str | None:
        return normal(state.answer) or None

    def silence(self, state: Quest, role: str) -> str:
        """The decomposer passes the question on unchanged; the searcher's empty reply is
        invalid."""
        return self.reply_of("Answer the question.") if role == DECOMPOSER else ""

    def redeal(self, state: Quest, role: str, rng: random.Random) -> Quest:
        """Another correct answer with other hops."""
        other = replace(state.question, answers=(str(rng.random()),), hops=())
        return replace(state, question=other)

    def reply_of(self, typed: str) -> str:
        return call_or_answer(typed, self.config.terse)

    def hint(self, state: Quest, role: str) -> str:
        if role == DECOMPOSER:
            return "the parts of the question"
        return '{"name": "search", "arguments": {"query": "..."}}, or an answer'

    def _reads(self, split: Split) -> bool:
        return bool(self.config.data or (split == "test" and self.config.test_data))

    def _rows(self, split: Split) -> tuple[ShortAnswer, ...]:
        return _read(self.config.data, self.config.test_data)[split == "test"]

    def _row(self, task: Task) -> ShortAnswer:
        split: Split = "test" if task.id.startswith("test-") else "train"
        return self._rows(split)[int(task.data["row"])]

    def _question(self, task: Task) -> Question:
        if "row" in task.data:
            row = self._row(task)
            return Question(row.question, row.answers, world=self.config.world)
        split = task.id.partition("-")[0]
        world = derive_seed("world", self.config.world, split)
        return make_question(world, task.seed, self.config.max_hops)

    def _search(self, state: Quest, query: str) -> tuple[Article, ...]:
        if self.config.service:
            return search_service(self.config.service, query, self.config.top_k)
        return search_world(state.question.world, query, self.config.top_k)

    def _split_up(self, state: Quest, answer: str) -> StepResult[Quest]:
        parts = tuple(checked_words(line) for line in answer.split("\n") if line.strip())
        if len(parts) > MAX_PARTS:
            raise BadReply(f"{len(parts)} parts; {MAX_PARTS} at most, one in a line")
        found: set[str] = set()
        if state.question.gold:
            found = {article.title for part in parts for article in self._search(state, part)}
        gained = self.config.look_reward * _share(state.question, found)
        after = replace(state, turn=SEARCHER, parts=parts, trouble="")
        return StepResult(after, Rewards({DECOMPOSER: Scored(gained)}), {"illegal": 0.0})

    def _look(self, state: Quest, call: ToolCall) -> StepResult[Quest]:
        if state.num_calls >= self.config.max_calls:
            raise BadReply("no searches are left; give your answer")
        articles = self._search(state, call["query"])
        text = "\n".join(f"{article.title}: {article.text}" for article in articles)
        after = replace(
            state,
            looks=(*state.looks, Look(call, shown(text) or "Nothing was found.")),
            seen=state.seen | {article.title for article in articles},
            num_calls=state.num_calls + 1,
            trouble="",
        )
        coverage = _share(state.question, after.seen)
        gained = self.config.look_reward * (coverage - _share(state.question, state.seen))
        rewards = Rewards(
            {state.turn: Scored(gained)}, {state.turn: Scored(-self.config.call_cost)}
        )
        return StepResult(after, rewards, {"illegal": 0.0, "coverage": coverage})

    def _answer(self, state: Quest, answer: str) -> StepResult[Quest]:
        after = replace(state, answer=answer, over=True, trouble="")
        score, exact = f1(answer, state.question.answers), self.success(after, state.turn)
        rewards = Rewards({state.turn: Scored(score)}, team=Scored(float(exact)))
        return StepResult(after, rewards, {"illegal": 0.0, "f1": score})

    def _reject(self, state: Quest, why: str) -> StepResult[Quest]:
        """Score an invalid reply and count it against the limits."""
        after = replace(state, trouble=why)
        if state.turn == DECOMPOSER:
            after = replace(after, turn=SEARCHER)
        elif state.num_calls < self.config.max_calls:
            after = replace(after, num_calls=state.num_calls + 1)
        else:
            num_tries = state.num_tries + 1
            after = replace(after, num_tries=num_tries, over=num_tries >= self.config.max_tries)
        process = {state.turn: Scored(self.config.illegal_reward)}
        team = Scored(0.0) if after.over else None
        return StepResult(after, Rewards(process, team=team), {"illegal": 1.0})

    def _situation(self, state: Quest, role: str) -> str:
        if state.over:
            return f"The answer that was given: {shown(state.answer) or 'none'}."
        if role == DECOMPOSER:
            return f"Answer with its parts, at most {MAX_PARTS}, one in a line."
        own = state.trouble and (state.looks or state.num_calls or not state.parts)
        lines = [f"The last reply came to nothing: {state.trouble}."] if own else []
        left = self.config.max_calls - state.num_calls
        ask = f"Searches left: {left}. Search, or answer." if left else "Answer now."
        return "\n".join([*lines, ask])

    def _tersely(self, state: Quest, role: str) -> str:
        left = self.config.max_calls - state.num_calls
        lines = [f"{role} {left}", state.question.text]
        if role != DECOMPOSER:
            lines += [*state.parts, *(look.result for look in state.looks)]
        return "\n".join([*lines, state.trouble]).strip()


@lru_cache(maxsize=8)
def _read(data: str, test_data: str) -> tuple[tuple[ShortAnswer, ...], tuple[ShortAnswer, ...]]:
    """One question in five is for testing; the same text is never in both splits."""
    return read_splits(
        data,
        test_data,
        read_short_answers,
        lambda row: derive_seed(normal(row.question)) % 5 == 0,
    )


def _share(question: Question, found: frozenset[str] | set[str]) -> float:
    """Share of the needed articles that were found."""
    return len(question.gold & found) / len(question.gold) if question.gold else 0.0


def _part(role: str) -> str:
    world = "The question takes several articles of an encyclopedia that nobody knows by heart."
    short = "An answer is a name, a number or a few words, nothing more."
    if role == DECOMPOSER:
        return (
            f"You are the decomposer. {world} You split it into simple questions, each of which "
            "one article answers, in the order in which they must be searched; the searcher, who "
            "sees them, searches and answers. 'What is the river that flows through the city where "
            "Ada was born?' has two parts: 'Where was Ada born?' and 'Which river flows through "
            f"that city?' {HOW_TO_ANSWER}"
        )
    who = "You are the searcher." if role == SEARCHER else "You search and answer."
    how = "You search, read, and search again for what you learned."
    return f"{who} {world} {how} {short} {HOW_TO_ANSWER}"
