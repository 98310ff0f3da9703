"""Scripted proposers and solvers: random, expert, and a mixture."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy

NUM_DRAFTS = 5


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """As proposer, random valid tasks; as solver, a legal guess."""
    if state.waits_for_proposal:
        return _reply(env, [env.domain.write(state.given, rng) for _ in _proposals(env)])
    return str(env.reply_of(env.domain.guess(state.current, rng)))


def play_expert(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """As proposer, accepted tasks of medium difficulty; as solver, the correct answer."""
    if state.waits_for_proposal:
        chosen: list[str] = []
        for _ in _proposals(env):
            chosen.append(_medium_task(env, state, chosen, rng))
        return _reply(env, chosen)
    return str(env.reply_of(state.current.answer))


def _medium_task(env: Any, state: Any, others: list[str], rng: random.Random) -> str:
    """The accepted draft of median difficulty; any draft if none is accepted."""
    drafts = [env.domain.write(state.given, rng) for _ in range(NUM_DRAFTS)]
    assessed = [env.assess(state, draft, others) for draft in drafts]
    tasks = [one.task for one in assessed if one.outcome == "accepted"]
    tasks.sort(key=lambda task: task.level)
    return str(tasks[len(tasks) // 2].text if tasks else drafts[0])


def _proposals(env: Any) -> range:
    return range(env.config.num_proposals)


def _reply(env: Any, texts: list[str]) -> str:
    return str(env.reply_of(";".join(texts)))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_expert, play_random, 0.5),
    "expert": play_expert,
}
