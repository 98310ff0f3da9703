"""Training a verifier: a head on a critic's model, by binary cross-entropy, one optimizer step a
batch, at a rate that falls to the end."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pettingllms.cluster.placement import usable_cores
from pettingllms.cluster.start import find_device, ray_running
from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.config.verifier import VerifierConfig
from pettingllms.errors import ConfigError, DataError
from pettingllms.learners.batches import JointAction, split
from pettingllms.learners.files import CRITIC_FILE
from pettingllms.seeds import derive_seed
from pettingllms.verifier.classifier import Make, Reader
from pettingllms.verifier.labeled_answers import Answer, balanced

Call = Callable[..., Awaitable[Any]]
"""A method of a critic by its name, wherever the critic is."""
Progress = Callable[[int, dict[str, float]], None]
"""Is told which step was done, and what was measured in it."""


def make_of(config: RunConfig) -> Make:
    """What the verifier of a configuration is made of."""
    settings = config.verifier
    models = (p.model for p in config.policies.values() if isinstance(p, FullPolicy | LoraPolicy))
    model = settings.model or next(models, "")
    if not model:
        raise ConfigError("verifier", ["model: is empty, and no policy learns whose model it was"])
    same = ("kind", "rank", "alpha", "max_tokens", "every_token")
    return Make(model, **{name: getattr(settings, name) for name in same})


def train_verifier(
    config: RunConfig, answers: Sequence[Answer], progress: Progress, notify: Callable[[str], None]
) -> dict[str, bytes]:
    """Train on answers, with Ray as every learner; the critic's files."""
    make = make_of(config)
    joint_actions = readable(answers, make, config.verifier.balance, notify)
    with ray_running(config.cluster):
        return asyncio.run(_train(config, make, joint_actions, progress))


async def _train(
    config: RunConfig, make: Make, joint_actions: Sequence[JointAction], progress: Progress
) -> dict[str, bytes]:
    from pettingllms.cluster.learners import Learners

    device, _ = find_device(config.cluster)
    schedule = {"decay_steps": config.verifier.num_steps, "decay_tokens": 0}
    once = {"num_minibatches": 1, "num_epochs": 1, **schedule}
    learner = config.learner.model_copy(update=once)
    spec = make.spec(learner, config.seed, config.verifier.lr, device)
    num_gpus = 0.0 if device == "cpu" else 1.0
    critic = Learners(spec, num_gpus, max(1, usable_cores() // config.learner.num_ranks))
    try:
        await critic.start(not config.cluster.address)
        return await fit(critic.call, joint_actions, config.verifier, config.seed, progress)
    finally:
        await critic.stop()


async def fit(
    call: Call,
    joint_actions: Sequence[JointAction],
    config: VerifierConfig,
    seed: int,
    progress: Progress,
) -> dict[str, bytes]:
    """Batch after batch, each answer once in an epoch; the critic's files."""
    num_parts = max(1, len(joint_actions) // config.num_answers)
    epochs = (
        split(joint_actions, num_parts, derive_seed(seed, "verifier", epoch))
        for epoch in itertools.count()
    )
    batches = itertools.chain.from_iterable(epochs)
    for step, batch in enumerate(itertools.islice(batches, config.num_steps), start=1):
        progress(step, await call("train", batch, step))
    files: dict[str, bytes] = await call("saved")
    return {CRITIC_FILE: files[CRITIC_FILE]}


def readable(
    answers: Sequence[Answer],
    make: Make,
    balance: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> list[JointAction]:
    """The answers that a verifier can learn from, as ids; some right and some wrong.

    If wrong answers are the longer ones, more of them are too long; balanced again, length says
    nothing about a question.
    """
    sides = {answer.right for answer in answers}
    if len(sides) < 2:
        kinds = {True: "right", False: "wrong"}
        held = f"only {kinds[sides.pop()]} ones" if sides else "none"
        raise DataError(f"a verifier learns from right and wrong answers, and there are {held}")
    reader = Reader(make)
    read = [(a, reader.read(a.messages, a.text, a.right)) for a in answers]
    short = [(answer, joint_action) for answer, joint_action in read if joint_action is not None]
    if len(short) == len(read):
        return [joint_action for _, joint_action in short]
    kept = [answer for answer, _ in short]
    if balance:
        kept = balanced(kept, len(kept), 0)
    there = set(kept)
    joint_actions = [joint_action for answer, joint_action in short if answer in there]
    if not joint_actions:
        raise DataError(
            f"no answers are left: those of {make.max_tokens} tokens and less are not both right "
            "and wrong; raise verifier.max_tokens"
        )
    notify(
        f"{len(read) - len(short)} answers are longer than {make.max_tokens} tokens "
        f"(verifier.max_tokens) and are left out, and {len(short) - len(joint_actions)} more to "
        "keep the "
        "rest balanced"
    )
    return joint_actions
