"""The JSON of the OpenEnv extension: what is written is read back equal, and nothing else is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import plain

from pettingllms.envs.openenv import fields, wire
from pettingllms.errors import WireError
from pettingllms.types import (
    Failed,
    Message,
    Rewards,
    Scored,
    Submission,
    Table,
    assistant,
    system,
    user,
)

ROLES = ("one", "other")
REWARDS = st.one_of(
    st.floats(-1e9, 1e9).map(Scored),
    st.builds(Failed, st.text(st.characters(codec="utf-8")), st.sampled_from(wire.OWNERS)),
)
MESSAGES = st.lists(
    st.builds(Message, st.sampled_from(wire.SPEAKERS), st.text(st.characters(codec="utf-8"))),
    min_size=1,
    max_size=4,
).map(tuple)


def through_json(value: Any) -> fields.Field:
    return fields.Field("it", json.loads(json.dumps(value, allow_nan=False)))


@given(MESSAGES)
def test_messages_are_read_back_equal(messages: tuple[Message, ...]) -> None:
    given = through_json(wire.messages_to_json(messages))
    assert wire.messages_from_json(given) == messages


def test_images_and_tables_are_read_back_equal() -> None:
    table = Table(("name", "n"), (("a|b", 1), (None, 2.5), ("", True)))
    messages = (system("rules"), user("look", plain(), table), assistant("yes"))
    shown = wire.messages_to_json(messages)
    assert wire.messages_from_json(through_json(shown)) == messages
    assert shown[1]["content"] == f"{table.text}\n\nlook"


@given(
    st.dictionaries(st.sampled_from(ROLES), REWARDS),
    st.dictionaries(st.sampled_from(ROLES), REWARDS),
    st.one_of(st.none(), REWARDS),
)
def test_rewards_are_read_back_equal(process: Any, agent: Any, team: Any) -> None:
    rewards = Rewards(process, agent, team)
    assert wire.rewards_from_json(through_json(wire.rewards_to_json(rewards)), ROLES) == rewards


def test_hidden_facts_of_a_submission_stay_on_the_server() -> None:
    submission = Submission("2+2?", "5", "sums", {"answer": "secret"})
    shown = wire.submission_to_json(submission, {"": Scored(0.5), "part": Failed("x", "judge")})
    assert "secret" not in json.dumps(shown)
    found = wire.submissions_from_json(through_json({"one": shown}), ROLES)["one"]
    assert (found.question, found.answer, found.criteria) == ("2+2?", "5", "sums")
    assert found.facts[wire.VERDICTS] == {"": 0.5, "part": {"failed": "x", "owner": "judge"}}


def test_a_description_is_read_back_equal() -> None:
    info = wire.ServerInfo("a-v1", ROLES, ("one",), ("random",), {"train": 3, "test": 1},
                           False, -2.0, "team", True, True, ("part",), True, True)  # fmt: skip
    assert wire.info_from_json(through_json(wire.info_to_json(info))) == info


@pytest.mark.parametrize("metric", [2.0**48, -(2.0**53)])
def test_metrics_may_exceed_rewards(metric: float) -> None:
    """`propose-v1` reports tasks by a digest of 48 bits."""
    given = {
        "acting": [],
        "success": dict.fromkeys(ROLES, True),
        "state": 1,
        "metrics": {"task": metric},
        "rewards": wire.rewards_to_json(Rewards()),
    }
    data = {"observation": given, "done": True}
    assert wire.outcome_from_json(through_json(data), ROLES).metrics == {"task": metric}
    given["metrics"] = {"task": 1e300}
    with pytest.raises(WireError, match="metrics.task"):
        wire.outcome_from_json(through_json(data), ROLES)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
))  # fmt: skip
def test_any_value_is_read_or_refused_with_its_path(value: Any) -> None:
    for read in (
        wire.messages_from_json,
        wire.info_from_json,
        lambda field: wire.rewards_from_json(field, ROLES),
        lambda field: wire.submissions_from_json(field, ROLES),
        lambda field: wire.outcome_from_json(field, ROLES),
    ):
        said = ""
        try:
            read(fields.Field("it", value))
        except WireError as error:
            said = str(error)
        assert said.startswith("it") or not said
        assert len(said) < 1000


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 99_999, '{"a": NaN}', "9" * 9999, b"\xff"])
def test_no_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(WireError, match="expected"):
        fields.read_object(text, "the message")


def test_lone_surrogates_never_reach_a_message() -> None:
    assert fields.Field("it", "a\ud800b💥").text() == "a?b💥"
    assert wire.messages_to_json([user("\udfff")])[0]["content"] == "?"
