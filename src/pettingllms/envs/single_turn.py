"""`single_turn`: a dataset of prompts and a reward function as an environment with one role.

Each row is one task. The role replies once to the row's prompt, and the function scores the reply.
"""

import inspect
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pettingllms.config import EnvConfig
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.errors import DataError, describe, nearest
from pettingllms.types import Failed, Message, Reward, Rewards, Scored, Task, system, user

__all__ = ["single_turn"]

ROLE = "assistant"
PROMPTS = ("prompt", "question")
"""Columns that may hold the prompt, in order of preference."""
REFERENCES = ("completion", "answer", "solution")
"""Columns that the scripted player `reference` replies with, in order of preference."""
HELD_OUT = 10
"""Without a test dataset, one in this many distinct rows is held out for evaluation."""

Row = Mapping[str, Any]
RewardFn = Callable[..., float | Reward]
Dataset = Iterable[Row] | Mapping[str, Iterable[Row]]


def single_turn(
    dataset: Dataset,
    reward_fn: RewardFn,
    *,
    test_dataset: Iterable[Row] | None = None,
    prompt_column: str = "",
    system_prompt: str = "",
    success_reward: float = 1.0,
    limit_reward: float = 0.0,
    id: str = "single_turn-v1",  # noqa: A002
) -> "SingleTurn":
    """An environment from a dataset and a reward function.

    `dataset` is a list of dicts, a Hugging Face dataset, or a dict of splits (`train` and `test`).
    The column `prompt` or `question` (or `prompt_column`) is text, or a list of chat messages. The
    call is `reward_fn(reply, **columns)`, with the columns that the function names, and returns a
    number. If it raises, the turn is excluded from training. Without `test_dataset`, a tenth of
    the rows is held out for evaluation. An episode succeeds if its reward is at least
    `success_reward`.
    """
    if isinstance(dataset, Mapping):
        dataset, test_dataset = _splits(dataset, test_dataset)
    rows = _plain_rows(dataset, "dataset")
    if test_dataset is None:
        train, test = _hold_out(rows)
    else:
        train, test = rows, _plain_rows(test_dataset, "test_dataset")
    column = prompt_column or _prompt_column(train[0])
    env = SingleTurn({"train": train, "test": test}, reward_fn, column, system_prompt)
    env.id, env.limit_reward, env.success_reward = id, limit_reward, success_reward
    env.config = EnvConfig(id=id)
    return env


@dataclass(frozen=True, slots=True)
class Exchange:
    """A row by its number, the reply, and its reward."""

    split: Split
    row: int
    reply: str | None = None
    reward: Reward | None = None


class SingleTurn(Environment[Exchange, EnvConfig]):
    """One prompt, one reply, one reward. Make one with `single_turn`."""

    id = "single_turn-v1"
    success_reward = 1.0

    def __init__(
        self,
        rows: Mapping[Split, Sequence[Row]],
        reward_fn: RewardFn,
        prompt_column: str,
        system_prompt: str = "",
    ) -> None:
        super().__init__()
        self._rows, self._reward_fn = rows, reward_fn
        self._prompt_column, self._system_prompt = prompt_column, system_prompt
        columns = list(rows["train"][0])
        self._columns = _accepted(reward_fn, columns)
        for split, some in rows.items():
            _check_columns(split, some, [prompt_column, *self._columns])
        self._tasks = {
            split: [Task(f"{split}-{at}", dict(row)) for at, row in enumerate(some)]
            for split, some in rows.items()
        }
        reference = next((name for name in REFERENCES if name in columns), None)
        self.players = {"random": _reply_at_random}
        if reference is not None:
            self.players["reference"] = partial(_reply_with, rows, reference)

    @property
    def roles(self) -> tuple[str, ...]:
        return (ROLE,)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def reset(self, task: Task, seed: int) -> Exchange:
        split, _, number = task.id.partition("-")
        return Exchange("train" if split == "train" else "test", int(number))

    def acting(self, state: Exchange) -> tuple[str, ...]:
        return () if state.reply is not None else (ROLE,)

    def observe(self, state: Exchange, role: str) -> Sequence[Message]:
        prompt = self._rows[state.split][state.row][self._prompt_column]
        shown = [user(prompt)] if isinstance(prompt, str) else [_message(one) for one in prompt]
        return [system(self._system_prompt), *shown] if self._system_prompt else shown

    def step(self, state: Exchange, replies: Mapping[str, str]) -> StepResult[Exchange]:
        reward = self._score(replies[ROLE], self._rows[state.split][state.row])
        after = Exchange(state.split, state.row, replies[ROLE], reward)
        return StepResult(after, Rewards(agent={ROLE: reward}))

    def success(self, state: Exchange, role: str) -> bool:
        return isinstance(state.reward, Scored) and state.reward.value >= self.success_reward

    def solo(self) -> "SingleTurn":
        return self

    def _score(self, reply: str, row: Row) -> Reward:
        """A reward function is user code, so whatever it raises is recorded as a failure."""
        try:
            value = self._reward_fn(reply, **{name: row[name] for name in self._columns})
            if isinstance(value, Scored | Failed):
                return value
            return Scored(float(value))
        except Exception as error:  # noqa: BLE001
            return Failed(f"the reward function raised {describe(error)}", "environment")


def _splits(
    splits: Mapping[str, Iterable[Row]], test: Iterable[Row] | None
) -> tuple[Iterable[Row], Iterable[Row] | None]:
    if "train" not in splits:
        raise DataError(f"dataset: got the splits {', '.join(splits)}; one must be 'train'")
    return splits["train"], splits.get("test") if test is None else test


def _plain_rows(dataset: Iterable[Row], name: str) -> list[Row]:
    """The rows as plain JSON data, which episodes can record."""
    rows: list[Row] = []
    for at, row in enumerate(dataset):
        if not isinstance(row, Mapping):
            raise DataError(f"{name}, row {at}: got {row!r:.60}; expected a dict of columns")
        try:
            rows.append(json.loads(json.dumps(dict(row), default=_plain)))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{name}, row {at}: {error}; rows may hold text, numbers, lists and dicts. Remove "
                "or convert other columns"
            ) from error
    if not rows:
        raise DataError(f"{name}: got no rows; at least one is needed")
    return rows


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as those of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} cannot be recorded as JSON")


def _hold_out(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Training and test rows; equal rows are never in both."""
    keys = [json.dumps(row, sort_keys=True) for row in rows]
    distinct = list(dict.fromkeys(keys))
    num_held_out = max(len(distinct) // HELD_OUT, int(len(distinct) > 1))
    held_out = set(distinct[len(distinct) - num_held_out :])
    train = [row for key, row in zip(keys, rows, strict=True) if key not in held_out]
    test = [row for key, row in zip(keys, rows, strict=True) if key in held_out]
    return train, test


def _prompt_column(row: Row) -> str:
    found = next((name for name in PROMPTS if name in row), None)
    if found is None:
        raise DataError(
            f"dataset: no column 'prompt' or 'question' among {', '.join(row)}; name the column "
            "with prompt_column"
        )
    return found


def _accepted(reward_fn: RewardFn, columns: Sequence[str]) -> list[str]:
    """The columns that a reward function takes besides the reply."""
    reply, *parameters = inspect.signature(reward_fn).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return [name for name in columns if name != reply.name]
    for one in parameters:
        if one.name not in columns and one.default is one.empty:
            raise DataError(
                f"the reward function needs '{one.name}', which is no column of the dataset; "
                f"{nearest(one.name, columns)}"
            )
    return [one.name for one in parameters if one.name in columns]


def _check_columns(split: str, rows: Sequence[Row], needed: Sequence[str]) -> None:
    for at, row in enumerate(rows):
        if missing := [name for name in needed if name not in row]:
            raise DataError(f"{split} row {at}: column {', '.join(missing)} is missing")


def _message(message: Mapping[str, str]) -> Message:
    return Message(message["role"], message["content"])  # type: ignore[arg-type]


def _reply_at_random(env: object, state: object, role: str, rng: random.Random) -> str:
    return str(rng.randrange(100))


def _reply_with(
    rows: Mapping[Split, Sequence[Row]],
    column: str,
    env: object,
    state: Exchange,
    role: str,
    rng: random.Random,
) -> str:
    return str(rows[state.split][state.row][column])
