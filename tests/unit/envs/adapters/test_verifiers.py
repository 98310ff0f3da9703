"""Tasksets of verifiers with a stand-in for their process: roles, tasks, rewards, errors."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_verifiers
import pytest
from pydantic import ValidationError
from verifiers_cases import play_here

from pettingllms.algos.credit import role_reward
from pettingllms.config import RewardConfig
from pettingllms.config.user_code import named_code
from pettingllms.envs import make_env
from pettingllms.envs.adapters import verifiers
from pettingllms.envs.adapters.verifiers import merged
from pettingllms.errors import LibraryError
from pettingllms.runtime import json_child
from pettingllms.types import Scored

NUM_RESULTS = len(fake_verifiers.wrong_traces())
NUM_LINES = len(fake_verifiers.wrong_lines(1))


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verifiers, "CHILD", Path(fake_verifiers.__file__))
    monkeypatch.setenv("PETTINGLLMS_VERIFIERS", sys.executable)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(json_child.JsonChild.__init__, "__defaults__", (None, 2**20))


@pytest.fixture
def made() -> Iterator[Any]:
    """Makes environments and stops their processes."""
    kept: list[Any] = []

    def make(name: str, **options: Any) -> Any:
        kept.append(make_env(f"verifiers:{name}", **options))
        return kept[-1]

    yield make
    for env in kept:
        env.close()
    verifiers.service_of.cache_clear()


def say(chat: Any) -> str:
    return f"about {chat[-1]['content']}"


def test_roles_are_the_agents_without_a_client(made: Any) -> None:
    assert made("fine").roles == ("asker", "solver")


def test_a_tenth_of_the_tasks_is_held_out(made: Any) -> None:
    env = made("fine")
    train, test = env.tasks("train"), env.tasks("test")
    assert [task.data["index"] for task in test] == [9, 19]
    assert len(train) == 18
    assert not {task.id for task in train} & {task.id for task in test}


def test_environments_of_one_config_share_a_process(made: Any) -> None:
    one, other, changed = made("fine"), made("fine"), made("fine", num_tasks=5)
    assert one._service is other._service
    assert one._service is not changed._service


def test_rewards_and_turns_of_every_role(made: Any) -> None:
    env = made("fine", success_reward=19.0)
    episodes = play_here(env, env.tasks("train")[:3], say)
    for episode in episodes:
        assert [turn.role for turn in episode.turns] == ["asker", "solver"]
        reward = Scored(float(len(episode.turns[1].text)))
        for role in env.roles:
            assert role_reward(episode, role, RewardConfig()) == reward
            assert episode.success[role] == (reward.value >= 19)


def test_a_copy_has_the_same_tasks(made: Any) -> None:
    env = made("fine")
    copy = pickle.loads(pickle.dumps(env))  # noqa: S301 - our own bytes
    assert copy.tasks("train") == env.tasks("train")
    copy.close()


def test_a_process_that_died_starts_again(made: Any) -> None:
    env = made("fine")
    play_here(env, env.tasks("train")[:1], say)
    child = env._service.running()
    child._process.kill()
    child._process.wait()
    child._readers[1].join()
    (episode,) = play_here(env, env.tasks("train")[:1], say)
    assert episode.failure is None


@pytest.mark.parametrize("which", range(NUM_RESULTS))
def test_wrong_results_fail_the_episode_with_one_line(made: Any, which: int) -> None:
    env = made(f"results-{which}")
    (episode,) = play_here(env, env.tasks("train")[:1], say)
    assert episode.failure is not None
    assert episode.failure.owner == "environment"
    assert "\n" not in episode.failure.reason
    assert "malformed" in episode.failure.reason or which in (18, 21)
    if which == 18:
        assert "no reward" in episode.failure.reason
    if which == 21:
        assert "out of luck" in episode.failure.reason


@pytest.mark.parametrize("which", range(NUM_LINES))
def test_wrong_lines_fail_the_episode_with_one_line(made: Any, which: int) -> None:
    env = made(f"lines-{which}")
    (episode,) = play_here(env, env.tasks("train")[:1], say)
    assert episode.failure is not None
    assert "the verifiers process of 'verifiers:lines-" in episode.failure.reason
    assert len(episode.failure.reason.splitlines()) == 1
    assert len(episode.failure.reason) < 1500
    if which in (18, 21):
        assert "not JSON" in episode.failure.reason or "last words" in episode.failure.reason


@pytest.mark.parametrize("which", range(9))
def test_wrong_descriptions_are_one_clear_error(which: int) -> None:
    with pytest.raises(LibraryError) as caught:
        make_env(f"verifiers:opens-{which}")
    assert "verifiers:opens" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_process_that_dies_shows_its_last_words() -> None:
    with pytest.raises(LibraryError, match=r"ended with code 9 \(stderr: no module named; nothing"):
        make_env("verifiers:dies")


def test_loading_has_a_deadline() -> None:
    with pytest.raises(LibraryError, match="did not answer 'open' within 0.5 s"):
        make_env("verifiers:never", load_timeout=0.5)


def test_an_episode_over_time_is_cancelled(made: Any, tmp_path: Path) -> None:
    env = made("silent", seconds=0.5)
    (episode,) = play_here(env, env.tasks("train")[:1], say)
    assert episode.failure is not None
    assert "did not end within 0.5 s" in episode.failure.reason


@pytest.mark.parametrize("name", ["", "a/b", "../x", "x.py:Class", "os;1", "a b"])
def test_names_are_those_of_installed_tasksets(name: str) -> None:
    with pytest.raises(LibraryError, match="installed taskset"):
        make_env(f"verifiers:{name}") if name else verifiers.VerifiersTaskset(
            verifiers.VerifiersConfig(id="verifiers:")
        )


def test_settings_cannot_name_code() -> None:
    settings = {"taskset": {"task": {"rewards": {"mine": {"fn": "run/evil.py:reward"}}}}}
    with pytest.raises(ValidationError, match="code cannot be named here"):
        make_env("verifiers:fine", settings=settings)


def test_a_received_run_that_names_a_taskset_needs_trust() -> None:
    assert named_code({"env": {"id": "verifiers:fine"}}) == ["verifiers:fine"]
    assert named_code({"env": {"id": "openspiel:chess"}}) == []


@pytest.mark.parametrize("value", ["", "/nowhere"])
def test_a_missing_environment_names_the_script(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETTINGLLMS_VERIFIERS", value)
    with pytest.raises(LibraryError, match="scripts/verifiers.sh FOLDER"):
        make_env("verifiers:fine")


def test_test_settings_are_merged_over_settings() -> None:
    base = {"taskset": {"a": 1, "b": 2}, "n": 3}
    assert merged(base, {"taskset": {"b": 5}}) == {"taskset": {"a": 1, "b": 5}, "n": 3}
    assert base["taskset"]["b"] == 2
