"""Episodes that were packed, sent and unpacked are the same episodes, to the last bit."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from toys import Duel, Relay, play_with

from pettingllms.learners.batches import item_of, joint_actions_of, turns_of
from pettingllms.learners.deferred import Deferred, units_of
from pettingllms.learners.serialization import ARRAYS
from pettingllms.rollouts import Player
from pettingllms.rollouts.packed_episodes import Packed, pack, token_rows, unpack
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.runs.metrics import diversity
from pettingllms.types import Episode, Sample, SampleRequest, episode_line
from pettingllms.types.stored_turns import StoredTurn, Text, TokenRow


class Chance:
    """Replies with random bytes and log-probs."""

    async def sample(self, request: SampleRequest) -> list[Sample]:
        rng = np.random.default_rng(request.seed)
        sizes = rng.integers(1, 40, request.num_samples)
        return [
            Sample(rng.integers(48, 58, n), -rng.random(n, np.float32), 3, "stop") for n in sizes
        ]


class Held:
    """Content in this process; counts what was loaded."""

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self.num_loads = 0

    def tokens(self, row: int) -> TokenRow:
        self.num_loads += 1
        return token_rows(self._packed.tokens)[row]

    def text(self, row: int) -> Text:
        self.num_loads += 1
        return self._packed.texts[row]


def sampled(env: Any, **options: Any) -> list[Episode]:
    players = {role: Player("p", Chance(), ByteRenderer()) for role in env.roles}
    return play_with(env, players, **options)


def sent(episodes: Sequence[Episode]) -> tuple[list[Episode], Held]:
    packed: Packed = pickle.loads(pickle.dumps(pack(episodes, {"p"})))  # noqa: S301 - our own
    held = Held(packed)
    tasks = {episode.task.id: episode.task for episode in episodes}
    return list(unpack(packed.summaries, held, tasks)), held


@pytest.mark.parametrize("type_", ["linear", "tree", "replay"])
def test_nothing_is_lost_on_the_way(type_: str) -> None:
    extra = {"replay": "resampled"} if type_ == "replay" else {}
    for env in (Relay(), Duel()):
        if type_ == "replay" and isinstance(env, Duel):
            continue
        episodes = sampled(env, type=type_, num_tasks=3, num_samples=3, **extra)
        found, held = sent(episodes)
        assert held.num_loads == 0
        assert all(isinstance(turn, StoredTurn) for one in found for turn in one.turns)
        assert [*map(episode_line, found)] == [*map(episode_line, episodes)]
        assert [one.task for one in found] == [one.task for one in episodes]


def test_metrics_and_lengths_load_nothing() -> None:
    episodes = sampled(Relay(), num_tasks=3, num_samples=3)
    found, held = sent(episodes)
    for one, other in zip(_turns(found), _turns(episodes), strict=True):
        assert one.num_tokens == other.num_tokens
        assert one.num_prompt_tokens == other.num_prompt_tokens
        assert one.total_logprob() == other.total_logprob()
        assert one.has_logprobs
        assert not one.images
    assert diversity(_turns(found)) == diversity(_turns(episodes))
    assert held.num_loads == 0
    assert _turns(found)[0].text == _turns(episodes)[0].text
    assert held.num_loads == 1


def test_siblings_share_one_prompt() -> None:
    (episode,) = sampled(Duel(), type="tree", num_tasks=1, num_samples=4)
    prompts = {turn.prompt_ids.tobytes() for turn in episode.turns}
    packed = pack([episode], set())
    assert len(packed.tokens.prompts.lengths) == len(prompts) < len(episode.turns)


def test_ranks_build_the_same_batch() -> None:
    episodes = sampled(Relay(), num_tasks=3, num_samples=3)
    found, held = sent(episodes)
    for at, (one, other) in enumerate(zip(_turns(found), _turns(episodes), strict=True)):
        one.credit.advantage = other.credit.advantage = at / 7
    whole = [item_of(turn) for turn in turns_of(episodes, "p", False, False)]
    batch = units_of(turns_of(found, "p", False, False))
    assert isinstance(batch, Deferred)
    assert held.num_loads == 0
    built = batch.built()
    for one, other in zip(built, whole, strict=True):
        assert one.advantage == other.advantage
        for name in ARRAYS:
            assert _same(getattr(one, name), getattr(other, name))


def test_a_pickled_turn_stays_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    found, held = sent(sampled(Relay(), num_tasks=1, num_samples=1))
    monkeypatch.setattr(Held, "__reduce__", lambda self: (_nowhere, ()))
    turn = found[0].turns[0]
    turn.credit.advantage = 0.5
    again = pickle.loads(pickle.dumps(turn))  # noqa: S301 - our own
    assert again.credit.advantage == 0.5
    assert again.num_tokens == turn.num_tokens
    assert held.num_loads == 0
    with pytest.raises(AttributeError):
        _ = again.prompt_ids


def test_a_centralized_prompt_is_kept() -> None:
    (episode,) = sampled(Relay(), num_tasks=1, num_samples=1)
    ids = np.arange(5, dtype=np.int32)
    episode.turns[0] = replace(episode.turns[0], centralized_ids=ids)
    (found,), _ = sent([episode])
    (joint,) = joint_actions_of([[found.turns[0]]], True)
    assert _same(joint.items[0].prompt_ids, ids)
    assert found.turns[1].centralized_ids is None


def _nowhere() -> None:
    return None


def _turns(episodes: Sequence[Episode]) -> list[Any]:
    return [turn for episode in episodes for turn in episode.turns]


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()
