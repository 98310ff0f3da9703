import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import linear, overwrite, removals, rewards, siblings
from toys import Relay, roll

from pettingllms.algos import make_algorithm
from pettingllms.errors import RecordError
from pettingllms.types import (
    Episode,
    Failed,
    Turn,
    Usage,
    episode_from_json,
    episode_line,
    episode_to_json,
    read_episodes,
    write_episodes,
)


def test_episodes_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    episodes = [
        *roll(Relay(), num_tasks=2),
        *roll(Relay(), num_tasks=2, type="tree", continuation="episode"),
        *roll(Relay(), num_tasks=2, type="replay", replay="resampled"),
        *roll(Relay(), num_tasks=2, type="replay", replay="silent"),
        removals("t", 0, ("a", "b"), 1.0, {"a": 2.0, "b": Failed("lost", "environment")}),
        linear(
            "t", 0, ("a", rewards(team=Failed("no judge", "judge"))), failure=Failed("x", "limit")
        ),
        siblings("t", "a", [1.0, Failed("lost", "sampler")]),
    ]
    path = tmp_path / "episodes.jsonl"
    assert write_episodes(path, episodes) == len(episodes)
    again = list(read_episodes(path))
    assert [*map(episode_line, again)] == [*map(episode_line, episodes)]
    for before, after in zip(episodes, again, strict=True):
        for one, two in zip(before.turns, after.turns, strict=True):
            assert one.prompt_ids.dtype == two.prompt_ids.dtype == np.int32
            assert (one.response_ids == two.response_ids).all()
            if one.logprobs is not None:
                assert one.logprobs.tobytes() == two.logprobs.tobytes()
            assert plain(one) == plain(two)
        for one, two in zip(before.steps, after.steps, strict=True):
            assert plain(one) == plain(two)
        assert plain(before) == plain(after)


def plain(record) -> dict:
    """Every field that compares by value."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, Episode):
        del values["turns"]
    if isinstance(record, Turn):
        values |= {"credit": plain(record.credit), "links": plain(record.links)}
    skipped = ("prompt_ids", "response_ids", "logprobs", "steps")
    return {name: value for name, value in values.items() if name not in skipped}


def test_what_was_read_back_can_be_scored_by_another_algorithm(tmp_path: Path) -> None:
    episodes = roll(Relay(), num_tasks=3, num_samples=4)
    make_algorithm("rloo").assign(episodes)
    expected = [turn.credit.advantage for e in episodes for turn in e.turns]
    make_algorithm("grpo").assign(episodes)
    write_episodes(tmp_path / "e.jsonl", episodes)
    again = list(read_episodes(tmp_path / "e.jsonl"))
    make_algorithm("rloo").assign(again)
    assert [turn.credit.advantage for e in again for turn in e.turns] == expected


@given(
    ids=st.lists(st.integers(0, 2**31 - 1), max_size=20),
    logprobs=st.lists(st.floats(-50, 0, width=32), max_size=20),
    text=st.text(alphabet=st.characters(exclude_categories=["Cs"])),
)
def test_any_ids_log_probs_and_text_survive(ids, logprobs, text) -> None:
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    (turn,) = episode.turns
    overwrite(turn, response_ids=np.array(ids, dtype=np.int32))
    overwrite(turn, logprobs=np.array(logprobs, dtype=np.float32))
    overwrite(turn, text=text)
    line = episode_line(episode)
    assert line.count("\n") == 1
    back = episode_from_json(json.loads(line)).turns[0]
    assert back.response_ids.tolist() == ids
    assert back.logprobs is not None
    assert back.logprobs.tobytes() == turn.logprobs.tobytes()
    assert back.text == text


def test_what_a_critic_said_survives_with_the_places_it_was_not_trained_at() -> None:
    (turn,) = (episode := linear("t", 0, ("a", rewards(team=1.0)))).turns
    turn.credit.values = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    turn.credit.returns = np.array([1.5, np.nan, np.nan], dtype=np.float32)
    turn.credit.advantages = np.array([-1, 2], dtype=np.float32)
    overwrite(turn, centralized_ids=np.array([5, 6], dtype=np.int32))
    turn.credit.counterfactual_value = 0.25
    (back,) = episode_from_json(json.loads(episode_line(episode))).turns
    pairs = [(turn.centralized_ids, back.centralized_ids)]
    names = ("values", "returns", "advantages")
    pairs += [(getattr(turn.credit, name), getattr(back.credit, name)) for name in names]
    for one, two in pairs:
        assert (one.tobytes(), one.dtype) == (two.tobytes(), two.dtype)
    assert back.credit.counterfactual_value == turn.credit.counterfactual_value
    plain_line = episode_line(linear("t", 0, ("a", rewards(team=1.0))))
    assert "values" not in plain_line


def test_answers_and_what_a_server_counted_survive() -> None:
    (turn,) = (episode := linear("t", 0, ("a", rewards(team=1.0)))).turns
    overwrite(turn, usage=Usage(prompt=40, reply=3))
    episode.answers = {"a": "1/2"}
    back = episode_from_json(json.loads(episode_line(episode)))
    assert back.answers == {"a": "1/2"}
    assert (back.turns[0].num_prompt_tokens, back.turns[0].num_tokens) == (40, 3)
    plain_line = episode_line(linear("t", 0, ("a", rewards(team=1.0))))
    assert "usage" not in plain_line
    assert "answers" not in plain_line


def test_a_file_that_was_cut_short_says_where(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    line = episode_line(linear("t", 0, ("a", rewards(team=1.0))))
    path.write_text(line + line[: len(line) // 2])
    reader = read_episodes(path)
    next(reader)
    with pytest.raises(RecordError, match="line 2: not an episode .* truncated"):
        next(reader)


def test_another_format_is_refused(tmp_path: Path) -> None:
    data = episode_to_json(linear("t", 0, ("a", rewards(team=1.0))))
    path = tmp_path / "e.jsonl"
    path.write_text(json.dumps({**data, "format": 99}) + "\n")
    with pytest.raises(RecordError, match=r"format 99, this version reads \(1, 2\)"):
        list(read_episodes(path))


def test_what_tokens_stand_for_and_what_the_learner_made_of_them_survive() -> None:
    episode = linear("t", 0, ("a", rewards(team=1.0)))
    turn = episode.turns[0]
    overwrite(turn, ends=np.array([0, 1], dtype=np.int32))
    turn.credit.learner_logprobs = np.array([-0.1, -np.inf], dtype=np.float32)
    again = episode_from_json(json.loads(episode_line(episode))).turns[0]
    assert again.ends.tolist() == [0, 1]
    assert again.ends.dtype == np.int32
    assert again.credit.learner_logprobs[0] == turn.credit.learner_logprobs[0]
    assert np.isnan(again.credit.learner_logprobs[1]), "what is not finite is not written"


def test_a_file_of_something_else_is_not_taken_for_an_old_format(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    with pytest.raises(RecordError, match="line 1: not an episode; expected a file of"):
        list(read_episodes(path))
