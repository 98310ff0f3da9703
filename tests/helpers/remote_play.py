"""Play an environment and its served form in step, and compare all that a rollout would see."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pettingllms.envs import Environment
from pettingllms.envs.contract import NONSENSE
from pettingllms.envs.openenv.wire import finite
from pettingllms.types import Submission

SURROGATE = "\ud800"


@dataclass
class Compared:
    """What was compared; a comparison of nothing proves nothing."""

    episodes: int = 0
    steps: int = 0
    simultaneous: int = 0
    images: int = 0
    tables: int = 0
    rewards: int = 0
    submissions: int = 0
    hidden: int = 0
    """Observations of roles that differed from those of another role."""
    speakers: Counter[str] = field(default_factory=Counter)


def replies_of(
    env: Environment[Any, Any], state: Any, roles: tuple[str, ...], at: int, seed: int
) -> dict[str, str]:
    """Scripted replies: all players in turn, and malformed text now and then."""
    names = list(env.players)
    found = {}
    for number, role in enumerate(roles):
        rng = random.Random(f"{seed} {at} {role}")
        if rng.random() < 0.08:
            found[role] = rng.choice([one for one in NONSENSE if SURROGATE not in one])
        else:
            player = env.player(names[(seed + at + number) % len(names)])
            found[role] = player(env, state, role, rng)
    return found


def compare_play(
    local: Environment[Any, Any],
    remote: Environment[Any, Any],
    num_episodes: int,
    max_steps: int = 200,
) -> Compared:
    """Assert that both give the same at every step; return what was compared."""
    found = Compared()
    assert tuple(remote.roles) == tuple(local.roles)
    assert tuple(remote.image_roles) == tuple(local.image_roles)
    for name in ("late_rewards", "can_fork", "judged", "limit_level", "runs_programs"):
        assert getattr(remote, name) == getattr(local, name), name
    assert remote.limit_rewards(remote.roles) == local.limit_rewards(local.roles)
    assert set(remote.players) == set(local.players)
    for at in range(num_episodes):
        split = "test" if at % 3 == 2 else "train"
        tasks, far = local.tasks(split), remote.tasks(split)  # type: ignore[arg-type]
        assert len(tasks) == len(far)
        number = (at * 7) % len(tasks)
        compare_episode(local, remote, tasks[number], far[number], at, max_steps, found)
    return found


def compare_episode(
    local: Environment[Any, Any],
    remote: Environment[Any, Any],
    task: Any,
    far_task: Any,
    seed: int,
    max_steps: int,
    found: Compared,
) -> None:
    here, there = local.reset(task, seed), remote.reset(far_task, seed)
    for at in range(max_steps):
        roles = tuple(local.acting(here))
        assert tuple(remote.acting(there)) == roles
        if not roles:
            break
        compare_views(local, remote, here, there, roles, found)
        replies = replies_of(local, here, roles, at, seed)
        near, far = local.step(here, replies), remote.step(there, replies)
        assert far.rewards == near.rewards
        assert dict(far.metrics) == finite(near.metrics)
        compare_submissions(local, remote, near.submissions, far.submissions)
        found.steps += 1
        found.simultaneous += len(roles) > 1
        found.rewards += bool(near.rewards.agent or near.rewards.process or near.rewards.team)
        found.submissions += len(near.submissions)
        here, there = near.state, far.state
    else:
        raise AssertionError(f"no end after {max_steps} steps")
    for role in local.roles:
        assert remote.success(there, role) == bool(local.success(here, role))
        assert remote.answer(there, role) == local.answer(here, role)
    found.episodes += 1


def compare_views(
    local: Environment[Any, Any],
    remote: Environment[Any, Any],
    here: Any,
    there: Any,
    roles: tuple[str, ...],
    found: Compared,
) -> None:
    views = {role: tuple(local.observe(here, role)) for role in roles}
    for role, view in views.items():
        assert tuple(remote.observe(there, role)) == view
        assert remote.silence(there, role) == local.silence(here, role)
        found.images += sum(len(message.images) for message in view)
        found.tables += sum(len(message.parts) - len(message.images) for message in view)
        found.speakers.update(message.speaker for message in view)
    found.hidden += len(set(views.values())) > 1


def compare_submissions(
    local: Environment[Any, Any],
    remote: Environment[Any, Any],
    near: Any,
    far: Any,
) -> None:
    assert set(far) == set(near)
    for role, one in near.items():
        other: Submission = far[role]
        assert (other.question, other.answer, other.criteria) == (
            one.question,
            one.answer,
            one.criteria,
        )
        for part in ("", *local.rule_parts):
            assert remote.rule(other, part) == local.rule(one, part)
