"""What a critic of the whole team sees: everything, recorded on turns, shown to no role."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment, make_env
from pettingllms.learners.batches import joints_of
from pettingllms.rollout import Seat, Worker
from pettingllms.rollout.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode, images_of, read_episodes, system, user, write_episodes


def play(env: Environment[Any, Any], central: bool) -> list[Episode]:
    seats = {
        role: Seat(
            "p", ScriptedSampler(env, "random"), ByteRenderer(), sees_state=True, central=central
        )
        for role in env.roles
    }
    config = RolloutConfig(type="linear", num_samples=1)
    episodes: list[Episode] = []
    tasks = list(env.tasks("train"))[:2]
    asyncio.run(Worker(env, seats, config, RewardConfig()).run(tasks, 0, episodes.append))
    return sorted(episodes, key=lambda episode: episode.id)


def test_turns_hold_what_the_team_saw_and_roles_are_shown_what_they_were() -> None:
    env = make_env("plan_path-v1")
    seen, plain = play(env, central=True), play(env, central=False)
    for one, two in zip(seen, plain, strict=True):
        for turn, same in zip(one.turns, two.turns, strict=True):
            assert same.central_ids is None
            assert turn.messages == same.messages
            assert (turn.prompt_ids == same.prompt_ids).all()
            assert turn.central_ids is not None
            text = ByteRenderer().decode(turn.central_ids)
            assert text.count(f"{turn.role} speaks now.") == 1
            assert all(f"{role} sees:" in text for role in env.roles)
            assert all(message.content in text for message in turn.messages)
            assert turn.central_ids.dtype == np.int32


class Talk:
    """Just enough of an environment."""

    roles = ("a", "b")

    def observe(self, state: str, role: str) -> list:
        return [system("rules"), system(f"you are {role}"), user(f"{state} for {role}")]


def test_shared_system_texts_stand_once() -> None:
    scene, asked = Environment.central(Talk(), "card")  # type: ignore[arg-type]
    assert scene == system("rules\n\nyou are a\n\nyou are b")
    assert asked == user("a sees:\ncard for a\n\nb sees:\ncard for b")


def test_an_environment_whose_central_view_fails_fails_its_play() -> None:
    env = make_env("plan_path-v1")
    env.central = lambda state: []  # type: ignore[method-assign]
    for episode in play(env, central=True):
        assert episode.failure is not None
        assert "the critic is shown" in episode.failure.reason


def test_a_critic_of_the_team_is_shown_the_images_of_every_role(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    episodes = play(make_env("visual_relay-v1"), central=True)
    for episode in episodes:
        looker, mover = episode.turns
        (image,) = images_of(looker.messages)
        assert not images_of(mover.messages)
        assert looker.central_images == mover.central_images == (image,)
    write_episodes(tmp_path / "episodes.jsonl", episodes)
    for one, back in zip(episodes, read_episodes(tmp_path / "episodes.jsonl"), strict=True):
        assert [t.central_images for t in one.turns] == [t.central_images for t in back.turns]
    ((item,),) = (joint.items for joint in joints_of([[episodes[0].turns[1]]], central=True))
    assert item.images == episodes[0].turns[1].central_images
