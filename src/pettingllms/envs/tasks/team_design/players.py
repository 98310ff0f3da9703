"""Scripted players: designers of known structures, and executors with known error probability."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.team_design.expected import noisy_accuracy
from pettingllms.envs.tasks.team_design.graph import TeamGraph
from pettingllms.envs.tasks.team_design.structures import (
    chain,
    random_graph,
    readers_and_combiner,
    single,
)

Design = Callable[[int], TeamGraph]
DESIGNER = "designer"
KNOWN: tuple[Design, ...] = (single, chain, readers_and_combiner)


def correct_reply(prompt: str, numbers: Sequence[int], base: int) -> int:
    """What a prompt asks for: the most frequent number, or the remainder of the sum."""
    if prompt == "vote":
        return Counter(numbers).most_common(1)[0][0] if numbers else 0
    return sum(numbers) % base


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random valid graph, and random digits."""
    if role == DESIGNER:
        return str(env.written(random_graph(env.limits, rng)))
    return str(env.reply_of(str(rng.randrange(env.config.base))))


def play_noisy(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random graph half of the time, else a known structure; replies that err more often the
    more numbers they have."""
    if role == DESIGNER:
        design = rng.choice(KNOWN)(len(state.parts))
        fits = len(design.executors) <= env.config.max_executors and rng.random() < 0.5
        return str(env.written(design if fits else random_graph(env.limits, rng)))
    return _executed(env, state, role, rng, noisy_accuracy)


def play_teacher(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The graphs of `noisy`, carried out without errors."""
    if role == DESIGNER:
        return play_noisy(env, state, role, rng)
    return _executed(env, state, role, rng, _always)


def play_known(
    design: Design,
    accuracy: Callable[[int], float],
    env: Any,
    state: Any,
    role: str,
    rng: random.Random,
) -> str:
    """The graph of a known structure, carried out with some accuracy."""
    if role == DESIGNER:
        return str(env.written(design(len(state.parts))))
    return _executed(env, state, role, rng, accuracy)


def _executed(
    env: Any, state: Any, role: str, rng: random.Random, accuracy: Callable[[int], float]
) -> str:
    executor = state.graph.executor(role)
    numbers = [one for one in state.numbers_for(executor) if one is not None]
    correct, base = correct_reply(executor.prompt, numbers, env.config.base), env.config.base
    if rng.random() < accuracy(len(numbers)):
        return str(env.reply_of(str(correct)))
    return str(env.reply_of(str((correct + rng.randrange(1, base)) % base)))


def _always(_: int) -> float:
    return 1.0


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": play_noisy,
    "teacher": play_teacher,
    "single": partial(play_known, single, noisy_accuracy),
    "chain": partial(play_known, chain, noisy_accuracy),
    "combiner": partial(play_known, readers_and_combiner, noisy_accuracy),
    "solver": partial(play_known, readers_and_combiner, _always),
}
