"""From episodes to micro-batches: nothing lost, nothing twice, nothing too large."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import linear, overwrite, rewards

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import (
    Item,
    group_by_prompt,
    item_of,
    micro_batches,
    split,
    turns_of,
)
from pettingllms.types import Episode

lengths = st.lists(st.integers(1, 50), max_size=40)
EMPTY = np.empty(0, dtype=np.int32)


def item(num_prompt: int, num_response: int, advantage: float = 1.0) -> Item:
    ids = np.arange(num_prompt + num_response, dtype=np.int32)
    logprobs = np.full(num_response, -1, dtype=np.float32)
    return Item(ids[:num_prompt], ids[num_prompt:], logprobs, advantage)


def items(sizes: Iterable[int]) -> list[Item]:
    return [item(size - 1, 1) for size in sizes]


def names(found: Iterable[Item]) -> Counter[int]:
    return Counter(map(id, found))


def played(number: int, *roles: str) -> Episode:
    episode = linear("t", number, *((role, rewards()) for role in roles))
    for at, turn in enumerate(episode.turns):
        turn.credit.advantage = 10 * number + at
        overwrite(turn, logprobs=np.array([-1, -2], dtype=np.float32))
    return episode


def items_of(
    episodes: Sequence[Episode], policy: str, skip_zero: bool = False, has_head: bool = False
) -> list[Item]:
    return [item_of(turn) for turn in turns_of(episodes, policy, skip_zero, has_head)]


def test_items_are_the_turns_of_a_policy_in_order() -> None:
    episodes = [played(1, "a", "b", "a"), played(0, "b"), played(2, "a")]
    episodes[0].turns[0].credit.advantage = None
    (found, last) = items_of(episodes, "policy_a")
    assert (found.advantage, last.advantage) == (12, 20)
    turn = episodes[0].turns[2]
    assert found.prompt_ids is turn.prompt_ids
    assert found.response_ids is turn.response_ids
    assert found.logprobs is turn.logprobs
    assert found.num_tokens == 4
    assert [x.advantage for x in items_of(episodes, "policy_b")] == [11, 0]
    assert items_of(episodes, "policy_c") == []


def test_items_carry_what_a_critic_said_and_should_have_said() -> None:
    episode = played(0, "a")
    (turn,) = episode.turns
    turn.credit.values, turn.credit.returns = np.zeros(3, np.float32), np.ones(3, np.float32)
    turn.credit.advantages = np.array([1, 2], np.float32)
    (found,) = items_of([episode], "policy_a")
    assert found.values is turn.credit.values
    assert found.targets is turn.credit.returns
    assert found.advantages is turn.credit.advantages
    turn.credit.values = None
    with pytest.raises(LearnerError, match="role 'a' has value targets but no values"):
        items_of([episode], "policy_a")


def test_an_advantage_of_zero_is_an_advantage() -> None:
    assert len(items_of([played(0, "a")], "policy_a")) == 1


def test_an_advantage_of_zero_can_be_skipped_unless_a_head_learns_from_it() -> None:
    episode = played(0, "a", "a", "a")
    for turn, advantage in zip(episode.turns, (0.0, 0.0, -1.0), strict=True):
        turn.credit.advantage = advantage
    assert [found.advantage for found in items_of([episode], "policy_a", skip_zero=True)] == [-1.0]
    episode.turns[1].credit.values = episode.turns[1].credit.returns = np.ones(3, dtype=np.float32)
    assert len(items_of([episode], "policy_a", skip_zero=True, has_head=True)) == 2
    assert len(items_of([episode], "policy_a", skip_zero=True)) == 1, (
        "its critic reads it elsewhere"
    )
    assert len(items_of([episode], "policy_a")) == 3


def test_tokens_that_cancel_out_are_not_skipped() -> None:
    episode = played(0, "a")
    episode.turns[0].credit.advantages = np.array([0.7, -0.7, 0.0], dtype=np.float32)
    assert len(items_of([episode], "policy_a", skip_zero=True)) == 1


def test_a_reply_without_a_token_is_left_out() -> None:
    episode = played(0, "a", "a")
    overwrite(episode.turns[0], response_ids=EMPTY)
    overwrite(episode.turns[0], logprobs=None)
    assert [x.advantage for x in items_of([episode], "policy_a")] == [1]


def test_a_reply_without_logprobs_is_refused_by_name() -> None:
    episode = played(3, "a", "b")
    overwrite(episode.turns[1], logprobs=None)
    assert len(items_of([episode], "policy_a")) == 1
    with pytest.raises(LearnerError, match=r"role 'b' in episode 't/3'.*policy 'policy_b'"):
        items_of([episode], "policy_b")
    episode.turns[1].credit.advantage = None
    assert items_of([episode], "policy_b") == []


@given(sizes=lengths, num_parts=st.integers(1, 9), seed=st.integers(0, 2**63 - 1))
def test_minibatches_share_the_items_evenly(sizes: list[int], num_parts: int, seed: int) -> None:
    whole = items(sizes)
    parts = split(whole, num_parts, seed)
    assert len(parts) == min(num_parts, len(whole))
    assert names(x for part in parts for x in part) == names(whole)
    counts = [len(part) for part in parts]
    assert not counts or (min(counts) > 0 and max(counts) - min(counts) <= 1)
    again = split(whole, num_parts, seed)
    assert [list(map(id, part)) for part in again] == [list(map(id, part)) for part in parts]


def test_minibatches_are_shuffled_by_their_seed() -> None:
    whole = items([3] * 30)
    orders = [[id(x) for part in split(whole, 3, seed) for x in part] for seed in (0, 1)]
    assert orders[0] != orders[1]
    assert [id(x) for x in whole] not in orders


def padded(batch: Sequence[Item]) -> int:
    return len(batch) * max((x.num_tokens for x in batch), default=0)


@given(sizes=lengths, max_tokens=st.integers(1, 120), num_ranks=st.integers(1, 5))
def test_micro_batches(sizes: list[int], max_tokens: int, num_ranks: int) -> None:
    whole = items(sizes)
    ranks = micro_batches(whole, max_tokens, num_ranks)
    assert len(ranks) == num_ranks
    assert len({len(passes) for passes in ranks}) == 1
    assert names(x for passes in ranks for batch in passes for x in batch) == names(whole)
    assert all(
        padded(batch) <= max_tokens or len(batch) == 1 for passes in ranks for batch in passes
    )
    passes_of_all = list(zip(*ranks, strict=True))
    assert all(all(batches) for batches in passes_of_all[:-1])
    assert all(any(batches) for batches in passes_of_all)
    for batches in passes_of_all:
        assert max(map(len, batches)) - min(map(len, batches)) <= 1
    again = micro_batches(whole, max_tokens, num_ranks)
    assert [[list(map(id, b)) for b in p] for p in again] == [
        [list(map(id, b)) for b in p] for p in ranks
    ]


@given(sizes=lengths, max_tokens=st.integers(1, 120), num_ranks=st.integers(1, 5))
def test_no_rank_has_a_longer_reply_than_another_had_earlier(
    sizes: list[int], max_tokens: int, num_ranks: int
) -> None:
    ranks = micro_batches(items(sizes), max_tokens, num_ranks)
    passes = [[x.num_tokens for b in batches for x in b] for batches in zip(*ranks, strict=True)]
    for before, after in pairwise(passes):
        assert min(before) >= max(after)


def test_micro_batches_by_hand() -> None:
    whole = items([2, 9, 5, 3, 4, 1, 30])
    ranks = micro_batches(whole, max_tokens=10, num_ranks=2)
    found = [[[x.num_tokens for x in batch] for batch in passes] for passes in ranks]
    assert found == [[[30], [5, 3], [1]], [[9], [4, 2], []]]


def test_prompt_and_response_count_together() -> None:
    ranks = micro_batches([item(7, 1), item(1, 7)], max_tokens=16, num_ranks=1)
    assert [len(batch) for batch in ranks[0]] == [2]
    ranks = micro_batches([item(7, 1), item(1, 8)], max_tokens=16, num_ranks=1)
    assert [len(batch) for batch in ranks[0]] == [1, 1]


@given(sizes=lengths, num_prompts=st.integers(1, 4), max_tokens=st.integers(1, 120))
def test_replies_to_one_prompt_are_neighbours(
    sizes: list[int], num_prompts: int, max_tokens: int
) -> None:
    prompts = [np.full(1 + at % 2, at, dtype=np.int32) for at in range(num_prompts)]
    whole = [
        replace(item(0, size), prompt_ids=prompts[at % num_prompts])
        for at, size in enumerate(sizes)
    ]
    passes = group_by_prompt(whole, max_tokens)
    assert names(x for batch in passes for x in batch) == names(whole)
    assert all(padded(batch) <= max_tokens or len(batch) == 1 for batch in passes)
    for before, after in pairwise(passes):
        assert padded([*before, after[0]]) > max_tokens, "one more would have had room"
    in_order = [int(x.prompt_ids[0]) for batch in passes for x in batch]
    assert len(list(groupby(in_order))) == len(set(in_order))
    assert not passes or passes[0][0].prompt_ids[0] in {
        x.prompt_ids[0] for x in whole if x.num_tokens == max(y.num_tokens for y in whole)
    }


def test_nothing_to_learn_is_no_pass() -> None:
    assert group_by_prompt([], 8) == []
    assert micro_batches([], 8, 3) == [[], [], []]
    assert split([], 4, seed=0) == []
