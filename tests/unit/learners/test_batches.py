"""From episodes to micro-batches: nothing lost, nothing twice, nothing too large."""

import tracemalloc
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import linear, overwrite, rewards

from pettingllms.errors import LearnerError
from pettingllms.learners import forest as forests
from pettingllms.learners.batches import (
    Item,
    item_of,
    split,
    turns_of,
)
from pettingllms.learners.packing import pack_rows, pack_trees
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


def test_replies_cut_at_the_token_limit_are_masked_if_asked() -> None:
    """They stay in baselines: masking comes after credit. The context length is another matter."""
    (episode,) = [played(1, "a", "a", "a")]
    _, cut, out_of_context = episode.turns
    overwrite(cut, finish="length")
    overwrite(out_of_context, finish="length", limit="context")
    kept = turns_of([episode], "policy_a", False, False, mask_truncated=True)
    assert kept == [episode.turns[0], out_of_context]
    assert len(turns_of([episode], "policy_a", False, False)) == 3
    cut.credit.returns = np.zeros(3, np.float32)
    assert cut not in turns_of([episode], "policy_a", False, True, mask_truncated=True)


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
def test_pack_rows(sizes: list[int], max_tokens: int, num_ranks: int) -> None:
    whole = items(sizes)
    ranks = pack_rows(whole, max_tokens, num_ranks)
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
    again = pack_rows(whole, max_tokens, num_ranks)
    assert [[list(map(id, b)) for b in p] for p in again] == [
        [list(map(id, b)) for b in p] for p in ranks
    ]


@given(sizes=lengths, max_tokens=st.integers(1, 120), num_ranks=st.integers(1, 5))
def test_no_rank_has_a_longer_reply_than_another_had_earlier(
    sizes: list[int], max_tokens: int, num_ranks: int
) -> None:
    ranks = pack_rows(items(sizes), max_tokens, num_ranks)
    passes = [[x.num_tokens for b in batches for x in b] for batches in zip(*ranks, strict=True)]
    for before, after in pairwise(passes):
        assert min(before) >= max(after)


def test_micro_batches_by_hand() -> None:
    whole = items([2, 9, 5, 3, 4, 1, 30])
    ranks = pack_rows(whole, max_tokens=10, num_ranks=2)
    found = [[[x.num_tokens for x in batch] for batch in passes] for passes in ranks]
    assert found == [[[30], [5, 3], [1]], [[9], [4, 2], []]]


def test_prompt_and_response_count_together() -> None:
    ranks = pack_rows([item(7, 1), item(1, 7)], max_tokens=16, num_ranks=1)
    assert [len(batch) for batch in ranks[0]] == [2]
    ranks = pack_rows([item(7, 1), item(1, 8)], max_tokens=16, num_ranks=1)
    assert [len(batch) for batch in ranks[0]] == [1, 1]


def keys(one: Item) -> np.ndarray:
    return np.concatenate([one.prompt_ids, one.response_ids]).astype(np.int64)


def distinct(batch: Sequence[Item]) -> int:
    """Tokens of a pass, counted as distinct prefixes."""
    return len({tuple(keys(x)[: end + 1]) for x in batch for end in range(x.num_tokens)})


def forest(rng: np.random.Generator, num_prompts: int, num_items: int) -> list[Item]:
    """Replies of different lengths to a few prompts that begin alike."""
    prompts = [np.append(np.arange(5), rng.integers(9, 99, 20)) for _ in range(num_prompts)]
    replies = [rng.integers(9, 99, rng.integers(1, 9)) for _ in range(num_items)]
    chosen = rng.integers(num_prompts, size=num_items)
    none = np.zeros(0, np.float32)
    return [Item(prompts[at], reply, none, 0.0) for at, reply in zip(chosen, replies, strict=True)]


@given(
    seed=st.integers(0, 999),
    num_prompts=st.integers(1, 6),
    num_items=st.integers(0, 30),
    max_tokens=st.integers(1, 200),
    num_ranks=st.integers(1, 4),
)
def test_pack_trees(
    seed: int, num_prompts: int, num_items: int, max_tokens: int, num_ranks: int
) -> None:
    whole = forest(np.random.default_rng(seed), num_prompts, num_items)
    ranks = pack_trees(whole, max_tokens, num_ranks, keys)
    assert len(ranks) == num_ranks
    assert len({len(passes) for passes in ranks}) == 1
    assert names(x for passes in ranks for batch in passes for x in batch) == names(whole)
    for batch in (batch for passes in ranks for batch in passes):
        assert distinct(batch) <= max_tokens or len(batch) == 1
    for before, after in pairwise(zip(*ranks, strict=True)):
        assert min(map(distinct, before)) >= max(map(distinct, after))


@given(
    texts=st.lists(st.lists(st.integers(-2, 1), max_size=9), max_size=12),
    min_part=st.integers(1, 4),
    max_sorted=st.integers(1, 20),
)
def test_sequences_are_ordered_as_if_compared_whole(
    texts: list[list[int]], min_part: int, max_sorted: int
) -> None:
    sequences = [np.array(text, np.int64) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forests, "MIN_PART", min_part)
        patch.setattr(forests, "MAX_SORTED", max_sorted)
        found = list(forests.ordered(len(texts), sequences.__getitem__))
    assert [at for at, _ in found] == sorted(range(len(texts)), key=texts.__getitem__)
    for (before, _), (at, shared) in pairwise(found):
        assert texts[at][:shared] == texts[before][:shared]
        assert texts[at][shared : shared + 1] != texts[before][shared : shared + 1] or (
            shared == len(texts[at]) == len(texts[before])
        )


def test_packing_needs_memory_for_parts_of_sequences() -> None:
    """The keys of all tokens and their sorted bytes would take 16 bytes per token."""
    rng, none = np.random.default_rng(0), np.zeros(0, np.float32)
    prompts = [rng.integers(0, 99, 4000) for _ in range(50)]
    whole = [Item(p, rng.integers(0, 99, 200), none, 0.0) for p in prompts for _ in range(20)]
    tracemalloc.start()
    pack_trees(whole, 8192, 8, keys)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * forests.KEY_BYTES * forests.MAX_SORTED
    assert peak < sum(x.num_tokens for x in whole) * 16 / 2


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_ranks_read_about_the_same_number_of_tokens(num_ranks: int) -> None:
    whole = forest(np.random.default_rng(0), 40, 400)
    for max_tokens in (300, 8192):
        ranks = pack_trees(whole, max_tokens, num_ranks, keys)
        totals = [sum(map(distinct, passes)) for passes in ranks]
        assert max(totals) < 1.2 * np.mean(totals)
        assert sum(totals) < 1.25 * distinct(whole)


def test_a_pass_is_cut_between_prompts_rather_than_within_one() -> None:
    """Six prompts of 25 tokens with four replies each; three fit into a pass."""
    rng = np.random.default_rng(0)
    none = np.zeros(0, np.float32)
    prompts = [np.full(25, 100 + at) for at in range(6)]
    whole = [Item(p, rng.integers(9, 99, 5), none, 0.0) for p in prompts for _ in range(4)]
    (passes,) = pack_trees(whole, 150, 1, keys)
    assert [len(batch) for batch in passes] == [12, 12]


def test_nothing_to_learn_is_no_pass() -> None:
    assert pack_rows([], 8, 3) == [[], [], []]
    assert pack_trees([], 8, 3, keys) == [[], [], []]
    assert split([], 4, seed=0) == []
