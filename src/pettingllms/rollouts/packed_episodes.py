"""Episodes in three parts for the way from a rollout worker: summaries, tokens and texts.

`pack` divides a batch of episodes; `unpack` puts the summaries together with a reference to the
other two parts. The driver reads only the summaries, whose size does not grow with the number of
tokens. The tokens are a few long arrays, in which siblings share their prompt.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pettingllms.types import Credit, Episode, Failed, Ids, Task, TreeLinks, Turn
from pettingllms.types.columns import column, cut
from pettingllms.types.stored_turns import (
    Content,
    StoredTurn,
    Text,
    TokenRow,
    Tokens,
    TurnSummary,
    digest,
    summary_of,
)

NONE = -1
"""Instead of an index, for None."""


class Summaries(NamedTuple):
    """Episodes without the content of their turns, and without their tasks."""

    episodes: list[tuple[Any, ...]]
    """Fields of each episode except its task and its turns."""
    num_turns: list[int]
    turns: list[tuple[Any, ...]]
    """Light fields of all turns, in order."""
    links: np.ndarray[Any, Any]
    numbers: list[TurnSummary]


class Packed(NamedTuple):
    """A batch of episodes in parts."""

    summaries: Summaries
    tokens: Tokens
    texts: list[Text]


def pack(episodes: Sequence[Episode], measured: Collection[str]) -> Packed:
    """Divide episodes into parts. `measured`: policies whose replies have diversity metrics."""
    turns = [turn for episode in episodes for turn in episode.turns]
    numbers = [summary_of(turn, turn.policy in measured) for turn in turns]
    summaries = Summaries(
        [_episode_fields(episode) for episode in episodes],
        [len(episode.turns) for episode in episodes],
        [_light_fields(turn) for turn in turns],
        np.array([_links(turn.links) for turn in turns], dtype=np.int32).reshape(-1, 4),
        numbers,
    )
    texts = [Text(turn.messages, turn.text, turn.centralized_images) for turn in turns]
    return Packed(summaries, _tokens(turns), texts)


def unpack(summaries: Summaries, content: Content, tasks: Mapping[str, Task]) -> Iterator[Episode]:
    """The episodes, with turns that load their content on access. `tasks` are those of the batch,
    by id."""
    turns = iter(_stored_turns(summaries, content))
    for fields, number in zip(summaries.episodes, summaries.num_turns, strict=True):
        id_, env, task, seed, *rest = fields
        own = [next(turns) for _ in range(number)]
        yield Episode(id_, env, tasks[task], seed, own, *rest)


def _stored_turns(summaries: Summaries, content: Content) -> Iterator[Turn]:
    rows = zip(summaries.turns, summaries.links.tolist(), summaries.numbers, strict=True)
    for row, (light, links, numbers) in enumerate(rows):
        role, policy, version, finish, usage, guided, limit, later, failure = light
        credit = Credit(failure)
        placed = TreeLinks(*(None if one == NONE else one for one in links))
        yield StoredTurn(
            content, row, numbers, role, policy, version, finish, usage, guided, limit, later,
            credit, placed,
        )  # fmt: skip


def _episode_fields(episode: Episode) -> tuple[Any, ...]:
    """In the order of the constructor, with the task's id, and without turns."""
    return (
        episode.id,
        episode.env,
        episode.task.id,
        episode.seed,
        episode.steps,
        episode.last,
        episode.success,
        episode.best_of,
        episode.first_success,
        episode.answers,
        episode.failure,
        episode.num_extra_tokens,
        episode.dropped_tokens,
        episode.without,
    )


def _light_fields(turn: Turn) -> tuple[Any, ...]:
    credit = turn.credit
    assert credit.advantage is None and credit.values is None  # noqa: S101, PT018 - not yet
    failure: Failed | None = credit.failure
    return (
        turn.role,
        turn.policy,
        turn.policy_version,
        turn.finish,
        turn.usage,
        turn.guided,
        turn.limit,
        turn.later_versions,
        failure,
    )


def _links(links: TreeLinks) -> tuple[int, int, int, int]:
    step, last, branch, extends = (
        NONE if one is None else one
        for one in (links.step, links.last, links.branch, links.extends)
    )
    return step, last, branch, extends


def _tokens(turns: Sequence[Turn]) -> Tokens:
    prompts: dict[bytes, Ids] = {}
    places: dict[bytes, int] = {}

    def place(key: bytes, ids: Ids) -> int:
        prompts.setdefault(key, ids)
        return places.setdefault(key, len(places))

    prompt_of = [place(digest(turn.prompt_ids.tobytes()), turn.prompt_ids) for turn in turns]
    centralized_of = [
        NONE if ids is None else place(digest(ids.tobytes()), ids)
        for ids in (turn.centralized_ids for turn in turns)
    ]
    return Tokens(
        column(list(prompts.values())),
        np.array(prompt_of, dtype=np.int32),
        np.array(centralized_of, dtype=np.int32),
        column([turn.response_ids for turn in turns]),
        column([turn.logprobs for turn in turns]),
        column([turn.ends for turn in turns]),
    )


def token_rows(tokens: Tokens) -> list[TokenRow]:
    """The arrays of each turn, as read-only views."""
    prompts = cut(tokens.prompts)
    rows = zip(
        tokens.prompt_of.tolist(),
        cut(tokens.replies),
        cut(tokens.logprobs),
        cut(tokens.ends),
        tokens.centralized_of.tolist(),
        strict=True,
    )
    return [
        TokenRow(prompts[prompt], ids, logprobs, ends, None if at == NONE else prompts[at])
        for prompt, ids, logprobs, ends, at in rows
    ]
