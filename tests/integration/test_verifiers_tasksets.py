"""Tasksets of verifiers as environments here: rewards equal verifiers' own scoring."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from verifiers_cases import (
    HashedReply,
    needs_verifiers,
    play_here,
    reward_of,
    tasksets_on_path,
    vf_eval,
)

from pettingllms.algos.credit import role_reward
from pettingllms.config import RewardConfig
from pettingllms.envs import make_env
from pettingllms.errors import LibraryError
from pettingllms.runtime.json_child import CANCEL_SECONDS
from pettingllms.types import Scored

pytestmark = needs_verifiers
NUM_TASKS = 8
CASES = {
    "reverse": ("vf-reverse", {"taskset": {"num_words": 2}}, ["agent"]),
    "endless": ("vf-sums", {}, ["agent"]),
    "multi-turn": ("vf-guess", {"max_guesses": 4}, ["player"]),
    "opposed roles": ("vf-debate", {"rounds": 3}, ["pro", "con"]),
    "roles in turn": ("vf-relay", {}, ["sender", "receiver"]),
    "user-sim": ("vf-sums", {"id": "user-sim", "user": {"max_turns": 3}}, ["assistant", "user"]),
    "best-of-n": ("vf-sums", {"id": "best-of-n", "n": 3}, ["agent"]),
}


@pytest.fixture(autouse=True)
def _tasksets() -> Iterator[None]:
    with tasksets_on_path():
        yield


def flags(settings: dict[str, Any], prefix: str = "--env") -> list[str]:
    """Settings as options of `vf-eval`."""
    found: list[str] = []
    for key, value in settings.items():
        name = f"{prefix}.{key}".replace("_", "-")
        found += flags(value, name) if isinstance(value, dict) else [name, str(value)]
    return found


@pytest.mark.parametrize("case", CASES)
def test_rewards_equal_verifiers_own_scoring(case: str, tmp_path: Path) -> None:
    name, settings, roles = CASES[case]
    env = make_env(f"verifiers:{name}", settings=settings, num_tasks=NUM_TASKS)
    try:
        assert list(env.roles) == roles
        tasks = sorted([*env.tasks("train"), *env.tasks("test")], key=lambda t: t.data["index"])
        episodes = play_here(env, tasks, HashedReply(case == "best-of-n"))
    finally:
        env.close()
    local = [
        word
        for role in roles
        for key, value in (("harness.id", "chat_harness"), ("runtime.type", "subprocess"))
        for word in (f"--env.{role}.{key}", value)
    ]
    found = vf_eval(
        tmp_path, name, HashedReply(case == "best-of-n"), *flags(settings), *local,
        "--select.limit", str(NUM_TASKS),
    )  # fmt: skip
    assert len(found) == len(episodes) >= 4
    seen = set()
    for episode, theirs in zip(episodes, found, strict=True):
        assert theirs["ok"], theirs["errors"]
        assert episode.failure is None, episode.failure
        for role in roles:
            rewards = [reward_of(t) for t in theirs["traces"] if t["agent"]["name"] == role]
            expected = sum(rewards) / len(rewards)
            ours = role_reward(episode, role, RewardConfig())
            assert isinstance(ours, Scored)
            assert ours.value == pytest.approx(expected, abs=1e-12)
            seen.add(round(expected, 9))
            sampled = [
                node["message"]["content"]
                for trace in theirs["traces"]
                if trace["agent"]["name"] == role
                for node in trace["nodes"]
                if node.get("sampled")
            ]
            assert [turn.text for turn in episode.turns if turn.role == role] == sampled
    assert len(seen) > 1, "the rewards do not vary"


def test_test_settings_choose_another_split() -> None:
    env = make_env("verifiers:vf-reverse", test_settings={"taskset": {"split": "test"}})
    try:
        train, test = env.tasks("train"), env.tasks("test")
        assert (len(train), len(test)) == (12, 12)
        assert not {t.data["key"] for t in train} & {t.data["key"] for t in test}
        (episode,) = play_here(env, test[:1], HashedReply())
        assert episode.failure is None
        assert "100" in str(episode.turns[0].messages[-1].content)
    finally:
        env.close()


def test_a_broken_taskset_fails_its_own_episodes_with_a_reason() -> None:
    env = make_env("verifiers:vf-broken", seconds=15.0)
    try:
        tasks = {t.data["name"]: t for s in ("train", "test") for t in env.tasks(s)}
        reasons = {}
        for name in ("raises", "infinite", "prints", "exits", "fine", "hangs", "fine"):
            if reasons.get("hangs"):
                time.sleep(CANCEL_SECONDS + 1)  # until the stuck process is killed
            start = time.monotonic()
            (episode,) = play_here(env, [tasks[name]], HashedReply())
            reasons[name] = episode.failure.reason if episode.failure else ""
            assert time.monotonic() - start < 60
        assert "the scorer broke" in reasons["raises"]
        assert "Out of range" in reasons["infinite"] or "not JSON compliant" in reasons["infinite"]
        assert "ended with code 7" in reasons["exits"]
        assert "did not end within 15 s" in reasons["hangs"]
        assert reasons["prints"] == reasons["fine"] == ""
    finally:
        env.close()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nothing-like-this", {}, "not found"),
        ("vf-sums", {"taskset": {"wrong": 1}}, "wrong"),
        ("vf-sums", {"agent": {"harness": {"id": "bash"}}}, "outside a sandbox"),
        (
            "vf-sums",
            {"agent": {"client": {"type": "eval", "base_url": "http://x"}}},
            "have a client",
        ),
    ],
)
def test_settings_that_cannot_work_are_one_clear_error(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(LibraryError, match=message) as caught:
        make_env(f"verifiers:{name}", settings=settings)
    assert "\n" not in str(caught.value)
