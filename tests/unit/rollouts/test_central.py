"""What a critic of the whole team sees: everything, recorded on turns, shown to no role."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment, make_env
from pettingllms.learners.batches import joint_actions_of
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer, ScriptedSampler
from pettingllms.types import Episode, images_of, read_episodes, system, user, write_episodes


def play(env: Environment[Any, Any], centralized: bool) -> list[Episode]:
    players = {
        role: Player(
            "p",
            ScriptedSampler(env, "random"),
            ByteRenderer(),
            reads_state=True,
            centralized=centralized,
        )
        for role in env.roles
    }
    config = RolloutConfig(type="linear", num_samples=1)
    episodes: list[Episode] = []
    tasks = list(env.tasks("train"))[:2]
    asyncio.run(Worker(env, players, config, RewardConfig()).run(tasks, 0, episodes.append))
    return sorted(episodes, key=lambda episode: episode.id)


def test_turns_hold_what_the_team_saw_and_roles_are_shown_what_they_were() -> None:
    env = make_env("plan_path-v1")
    seen, plain = play(env, centralized=True), play(env, centralized=False)
    for one, two in zip(seen, plain, strict=True):
        for turn, same in zip(one.turns, two.turns, strict=True):
            assert same.centralized_ids is None
            assert turn.messages == same.messages
            assert (turn.prompt_ids == same.prompt_ids).all()
            assert turn.centralized_ids is not None
            text = ByteRenderer().decode(turn.centralized_ids)
            assert text.count(f"{turn.role} speaks now.") == 1
            assert all(f"{role} sees:" in text for role in env.roles)
            assert all(message.content in text for message in turn.messages)
            assert turn.centralized_ids.dtype == np.int32


class Talk:
    """Just enough of an environment."""

    roles = ("a", "b")

    def observe(self, state: str, role: str) -> list:
        return [system("rules"), system(f"you are {role}"), user(f"{state} for {role}")]


def test_shared_system_texts_stand_once() -> None:
    scene, asked = Environment.centralized_observation(Talk(), "card")  # type: ignore[arg-type]
    assert scene == system("rules\n\nyou are a\n\nyou are b")
    assert asked == user("a sees:\ncard for a\n\nb sees:\ncard for b")


def test_an_environment_whose_central_view_fails_fails_its_play() -> None:
    env = make_env("plan_path-v1")
    env.centralized_observation = lambda state: []  # type: ignore[method-assign]
    for episode in play(env, centralized=True):
        assert episode.failure is not None
        assert "centralized_observation raised" in episode.failure.reason


def test_a_critic_of_the_team_is_shown_the_images_of_every_role(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    episodes = play(make_env("visual_relay-v1"), centralized=True)
    for episode in episodes:
        looker, mover = episode.turns
        (image,) = images_of(looker.messages)
        assert not images_of(mover.messages)
        assert looker.centralized_images == mover.centralized_images == (image,)
    write_episodes(tmp_path / "episodes.jsonl", episodes)
    for one, back in zip(episodes, read_episodes(tmp_path / "episodes.jsonl"), strict=True):
        assert [t.centralized_images for t in one.turns] == [
            t.centralized_images for t in back.turns
        ]
    ((item,),) = (
        joint_action.items
        for joint_action in joint_actions_of([[episodes[0].turns[1]]], centralized=True)
    )
    assert item.images == episodes[0].turns[1].centralized_images
