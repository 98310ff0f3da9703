"""Text-to-SQL: an explorer inspects a database, a writer writes the query.

The explorer calls tools and hands over the results, with an optional note. The writer sees only
these, so its query can be only as good as the exploration. If SQLite rejects a query, the writer
may try again. The first query that runs is the team's answer.

The answer is correct if its result equals the reference query's, on this database and on a twin
with other rows (test-suite accuracy; Zhong et al., 2020). Spelling out the rows that were seen
therefore earns nothing.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import Field

from pettingllms.datasets.seeded import NUM_MADE, SeededTasks, halved_seed
from pettingllms.datasets.splits import read_splits
from pettingllms.datasets.text_to_sql import SqlRow, read_questions
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.sql import players
from pettingllms.envs.tasks.sql.database import (
    GRADED_ROWS,
    Result,
    checked_query,
    describe_table,
    expected_result,
    run_query,
    tables_of,
)
from pettingllms.envs.tasks.sql.grading import share_right
from pettingllms.envs.tasks.sql.questions import Question, make_question
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
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Rewards, Scored, Task, system, user

EXPLORER, WRITER, SOLVER = "explorer", "writer", "solver"
TOOLS = (
    Tool("list_tables", "Names of the tables."),
    Tool("describe_table", "A table's columns and first rows.", (Parameter("table", "Its name."),)),
    Tool("run_query", "Run a small query.", (Parameter("sql", "A SELECT."),), fence="sql"),
)


class SqlConfig(ToolConfig):
    """Options of `sql-v1`."""

    num_tasks: int | None = Field(default=None, ge=1)
    """Maximum number of questions per split. Unset: all of a file, or 1024 generated ones, each
    from its task's seed."""
    max_level: int = Field(default=3, ge=1, le=3)
    """1: one table. 2: also joins and groups. 3: also both combined, and missing rows."""
    data: str = ""
    """Source of the questions: `spider`, or a JSON file in the format of Spider or BIRD: a list of
    objects with `question`, `query` (or `SQL`) and `db_id`, next to
    `database/DB_ID/DB_ID.sqlite`. Empty: questions are generated."""
    test_data: str = ""
    """Source of the test questions, in the same form. Empty: one in five questions of `data`."""
    max_calls: int = Field(default=4, ge=1)
    """Maximum number of explorer replies before the writer must write."""
    max_tries: int = Field(default=2, ge=1)
    """Maximum number of queries that the writer may write until one runs."""
    look_reward: float = 0.2
    """Process reward for seeing all tables that the answer needs, split over the calls."""
    call_cost: float = 0.02
    """Cost of a call, as negative agent reward of its role."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply, and of a query that SQLite rejects."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question, the results so far, and the query if there is one."""

    question: Question
    turn: str
    looks: tuple[Look, ...] = ()
    seen: frozenset[str] = frozenset()
    """Tables that a call has read."""
    num_calls: int = 0
    notes: str = ""
    query: str = ""
    num_tries: int = 0
    trouble: str = ""
    """Why the last reply failed."""
    score: float = 0.0
    over: bool = False


class Sql(Environment[Inquiry, SqlConfig]):
    """Sequential and cooperative. Solo, the one role `solver` explores and writes."""

    id = "sql-v1"
    Config = SqlConfig
    players = players.PLAYERS
    late_rewards = True
    limit_level = "team"
    blocking = True
    runs_programs = True

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLVER,) if self.config.solo else (EXPLORER, WRITER)

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        if not self._reads(split):
            return SeededTasks(split, self.config.num_tasks or NUM_MADE, halved_seed)
        own = self._rows(split)[: self.config.num_tasks]
        return [Task(f"{split}-{row.at}", {"row": at}) for at, row in enumerate(own)]

    def reset(self, task: Task, seed: int) -> Inquiry:
        return Inquiry(self._question(task), self.roles[0])

    def acting(self, state: Inquiry) -> tuple[str, ...]:
        return () if state.over else (state.turn,)

    def observe(self, state: Inquiry, role: str) -> Sequence[Message]:
        if self.config.terse:
            return [user(self._tersely(state, role))]
        style = self.config.tool_calls
        question = f"Question: {state.question.text}"
        if role == WRITER:
            parts = [question, self._found(state), self._situation(state, role)]
            return [system(self._part(role)), user("\n\n".join(parts))]
        messages = [system(f"{self._part(role)}\n\n{describe(TOOLS, style)}"), user(question)]
        for look in state.looks:
            messages += exchange(look.call, look.result, style)
        last = f"{messages[-1].content}\n\n{self._situation(state, role)}"
        return [*messages[:-1], user(last)]

    def step(self, state: Inquiry, replies: Mapping[str, str]) -> StepResult[Inquiry]:
        role, reply = state.turn, replies[state.turn]
        try:
            call = None if role == WRITER else one_call(reply, TOOLS)
            if call is not None:
                return self._look(state, call)
            answer = answer_in(reply, self.config.terse)
            if role == EXPLORER:
                return self._hand_over(state, checked_words(answer))
            return self._write(state, checked_query(answer))
        except BadReply as refusal:
            return self._reject(state, str(refusal))

    def success(self, state: Inquiry, role: str) -> bool:
        return state.score == 1.0

    def silence(self, state: Inquiry, role: str) -> str:
        """The explorer hands over its results; the writer's empty reply is invalid."""
        return self.reply_of("No note.") if role == EXPLORER else ""

    def redeal(self, state: Inquiry, role: str, rng: random.Random) -> Inquiry:
        """Another reference query, twin and score."""
        other = replace(state.question, sql=f"SELECT {rng.random()}", twin=None)
        return replace(state, question=other, score=rng.random())

    def reply_of(self, typed: str) -> str:
        return call_or_answer(typed, self.config.terse)

    def hint(self, state: Inquiry, role: str) -> str:
        call = '{"name": "describe_table", "arguments": {"table": "..."}}'
        return {EXPLORER: f"{call}, or a note for the writer", WRITER: "a SELECT"}.get(
            role, f"{call}, or a SELECT"
        )

    def _reads(self, split: Split) -> bool:
        return bool(self.config.data or (split == "test" and self.config.test_data))

    def _rows(self, split: Split) -> tuple[SqlRow, ...]:
        return _read(self.config.data, self.config.test_data)[split == "test"]

    def _row(self, task: Task) -> SqlRow:
        split: Split = "test" if task.id.startswith("test-") else "train"
        return self._rows(split)[int(task.data["row"])]

    def _question(self, task: Task) -> Question:
        if "row" not in task.data:
            return make_question(task.seed, self.config.max_level)
        row = self._row(task)
        source = self.config.data if task.id.startswith("train-") else self.config.test_data
        source = source or self.config.data
        question = Question(row.question, row.query, row.ordered, row.database())
        if not expected_result(question.database, question.sql).rows:
            raise DataError(
                f"{source}, {row.id}: the reference query gives no "
                "rows, so any query that gives none would be right; leave the question out"
            )
        return question

    def _look(self, state: Inquiry, call: ToolCall) -> StepResult[Inquiry]:
        if state.num_calls >= self.config.max_calls:
            raise BadReply("no calls are left; give your answer")
        result, tables = _answer_call(state.question.database, call)
        looks = (*state.looks, Look(call, shown(result)))
        after = replace(self._used(state), looks=looks, seen=state.seen | tables, trouble="")
        gained = self.config.look_reward * (_coverage(after) - _coverage(state))
        rewards = Rewards(
            {state.turn: Scored(gained)}, {state.turn: Scored(-self.config.call_cost)}
        )
        return StepResult(after, rewards, {"illegal": 0.0, "coverage": _coverage(after)})

    def _hand_over(self, state: Inquiry, notes: str) -> StepResult[Inquiry]:
        after = replace(state, turn=WRITER, notes=notes, trouble="")
        return StepResult(after, Rewards({EXPLORER: Scored(0.0)}), {"illegal": 0.0})

    def _write(self, state: Inquiry, query: str) -> StepResult[Inquiry]:
        result = run_query(state.question.database, query, GRADED_ROWS)
        if result.error is not None:
            return self._reject(replace(state, query=query), shown(result.error, 200), legal=True)
        score = _score(state.question, query, result)
        after = replace(state, query=query, score=score, over=True, trouble="")
        rewards = Rewards({state.turn: Scored(score)}, team=Scored(float(score == 1.0)))
        return StepResult(after, rewards, {"illegal": 0.0, "score": score, "runs": 1.0})

    def _reject(self, state: Inquiry, why: str, legal: bool = False) -> StepResult[Inquiry]:
        """Score a failed reply and count it against the limits."""
        looking = state.turn != WRITER and state.num_calls < self.config.max_calls and not legal
        after = self._used(state) if looking else replace(state, num_tries=state.num_tries + 1)
        trouble = why if after.turn == state.turn else ""
        after = replace(after, trouble=trouble, over=after.num_tries >= self.config.max_tries)
        process = {state.turn: Scored(self.config.illegal_reward)}
        team = Scored(0.0) if after.over else None
        return StepResult(after, Rewards(process, team=team), {"illegal": float(not legal)})

    def _used(self, state: Inquiry) -> Inquiry:
        """Count one call; after the explorer's last call, the writer acts."""
        num_calls = state.num_calls + 1
        done = state.turn == EXPLORER and num_calls >= self.config.max_calls
        return replace(state, num_calls=num_calls, turn=WRITER if done else state.turn)

    def _part(self, role: str) -> str:
        goal = "A question about a SQLite database is to be answered by one query."
        if role == EXPLORER:
            return (
                f"You are the explorer. {goal} You look at the database with tools; the writer, "
                "who sees what you saw and nothing else, writes the query. When it has all it "
                f"needs, end with a note to it of at most 160 letters. {HOW_TO_ANSWER}"
            )
        columns = "The columns must be those that the question asks for, in that order."
        if role == WRITER:
            return (
                f"You are the writer. {goal} The explorer has looked at the database; you write "
                f"the query. {columns} {HOW_TO_ANSWER}"
            )
        return (
            f"You answer a question about a SQLite database. {goal} You may look at the database "
            f"with tools first; your answer is the query. {columns} {HOW_TO_ANSWER}"
        )

    def _found(self, state: Inquiry) -> str:
        lines = [f"{_line(look.call)}\n{look.result}" for look in state.looks]
        note = (
            f"The explorer's note: {state.notes}" if state.notes else "The explorer left no note."
        )
        return "\n\n".join([*(lines or ["The explorer looked at nothing."]), note])

    def _situation(self, state: Inquiry, role: str) -> str:
        lines = (
            [f"Your last query: {shown(state.query)}"] if state.query and role != EXPLORER else []
        )
        if state.trouble and role == state.turn:
            lines.append(f"Your reply came to nothing: {state.trouble}.")
        if state.over:
            return "\n".join([*lines, "The play is over."])
        left = self.config.max_calls - state.num_calls
        if role == WRITER:
            return "\n".join([*lines, "Answer with the query."])
        what = "your note" if role == EXPLORER else "the query"
        calls = f"Calls left: {left}. Call a tool, or answer with {what}."
        return "\n".join([*lines, calls if left > 0 else f"No calls are left. Answer with {what}."])

    def _tersely(self, state: Inquiry, role: str) -> str:
        left = self.config.max_calls - state.num_calls
        lines = [f"{role} {left}", state.question.text, *(look.result for look in state.looks)]
        return "\n".join([*lines, *([state.notes] if state.notes else []), state.trouble]).strip()


@lru_cache(maxsize=8)
def _read(data: str, test_data: str) -> tuple[tuple[SqlRow, ...], tuple[SqlRow, ...]]:
    """One question in five is for testing; the same text is never in both splits."""
    return read_splits(data, test_data, read_questions, lambda row: derive_seed(row.key()) % 5 == 0)


def _line(call: ToolCall) -> str:
    return f"{call.name}({', '.join(shown(str(value)) for _, value in call.arguments)})"


def _answer_call(database: bytes, call: ToolCall) -> tuple[str, frozenset[str]]:
    """The result of a tool, and the tables that it showed."""
    if call.name == "list_tables":
        return ", ".join(name for name, _ in tables_of(database)), frozenset()
    if call.name == "describe_table":
        table, text = describe_table(database, call["table"])
        return text, frozenset({table})
    result = run_query(database, checked_query(call["sql"]))
    return result.text(), result.tables if result.rows else frozenset()


def _coverage(state: Inquiry) -> float:
    """Share of the tables of the reference query that have been seen."""
    needed = expected_result(state.question.database, state.question.sql).tables
    return len(needed & state.seen) / len(needed) if needed else 0.0


def _score(question: Question, query: str, result: Result) -> float:
    """Score of a query against the reference, on the database or its twin, whichever is lower:
    rows seen in one do not help on the other."""
    score = share_right(result, expected_result(question.database, question.sql), question.ordered)
    if not score or question.twin is None:
        return score
    on_twin = run_query(question.twin, query, GRADED_ROWS)
    wanted = expected_result(question.twin, question.sql)
    return min(score, share_right(on_twin, wanted, question.ordered))
