"""Sessions of a served environment, without OpenEnv."""

import json
import random
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.openenv.served import Served
from pettingllms.envs.openenv.sessions import MAX_STATES, PlaySession
from pettingllms.errors import ConfigError, PettingError, WireError


@pytest.mark.parametrize("name", ["kuhn_poker-v1", "leduc_poker-v1", "hanabi-v1", "werewolf-v1"])
def test_no_byte_of_an_answer_depends_on_what_is_hidden(name: str) -> None:
    env = make_env(name)
    task = env.tasks("train")[0]
    role = env.acting(env.reset(task, 0))[0]
    answers, states = set(), set()
    for deal in range(12):
        dealt = env.redeal(env.reset(task, 0), role, random.Random(deal))
        states.add(repr(dealt))
        session = PlaySession(Served(env))
        session.reset({"task": 0, "seed": 0, "role": role})
        episode = session._episode
        assert episode is not None
        episode.states[0].state = dealt
        answers.add(json.dumps(session._answer(episode, 0, [], ())))
    assert len(states) > 1
    assert len(answers) == 1


def test_a_session_keeps_its_last_states_only() -> None:
    session = PlaySession(Served(make_env("tic_tac_toe-v1")))
    session.reset({"seed": 1, "role": "*"})
    for _ in range(MAX_STATES):
        session.step({"text": "<answer>5</answer>", "state": 0})
    with pytest.raises(WireError, match="no state 0: the session keeps its last"):
        session.step({"text": "<answer>1</answer>", "state": 0})
    assert session.step({"text": "<answer>1</answer>", "state": MAX_STATES})["state"] == 257


def test_a_fork_does_not_change_its_state() -> None:
    session = PlaySession(Served(make_env("tic_tac_toe-v1")))
    session.reset({"seed": 1, "role": "*"})
    first = session.step({"text": "<answer>1</answer>", "state": 0})
    session.step({"text": "<answer>9</answer>", "state": 0})
    again = session.step({"text": "<answer>1</answer>", "state": 0})
    assert first["observations"] == again["observations"]


def test_without_forks_only_the_latest_state_can_be_stepped() -> None:
    env = make_env("tic_tac_toe-v1")
    env.can_fork = False
    session = PlaySession(Served(env))
    session.reset({"seed": 1, "role": "*"})
    session.step({"text": "<answer>1</answer>"})
    with pytest.raises(WireError, match="cannot fork"):
        session.step({"text": "<answer>2</answer>", "state": 0})


def test_an_environment_that_raises_leaves_the_episode_where_it_was() -> None:
    class Breaks(type(make_env("tic_tac_toe-v1"))):  # type: ignore[misc]
        def step(self, state: Any, replies: Any) -> Any:
            if "boom" in str(replies):
                raise RuntimeError("\ud800 boom")
            return super().step(state, replies)

    session = PlaySession(Served(Breaks()))
    session.reset({"seed": 1, "role": "*"})
    with pytest.raises(PettingError, match=r"raised RuntimeError: \? boom; the episode is where"):
        session.step({"text": "boom"})
    assert session.step({"text": "<answer>1</answer>"})["state"] == 1


def test_a_closed_session_says_so() -> None:
    session = PlaySession(Served(make_env("tic_tac_toe-v1")))
    session.reset({})
    session.close()
    for act in (session.reset, session.step):
        with pytest.raises(WireError, match="idle for too long"):
            act({})


def test_the_state_message_has_nothing_of_the_state() -> None:
    session = PlaySession(Served(make_env("kuhn_poker-v1")))
    before = json.dumps(session.describe()["pettingllms"])
    session.reset({"seed": 1})
    assert json.dumps(session.describe()["pettingllms"]) == before
    assert set(session.describe()) == {"episode_id", "step_count", "pettingllms"}


def test_workflows_are_refused() -> None:
    from talks import Talk  # type: ignore[import-not-found]

    with pytest.raises(ConfigError, match="workflow"):
        Served(Talk())
