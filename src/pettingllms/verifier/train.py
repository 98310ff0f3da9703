"""Train a verifier: a head on a critic's model with binary cross-entropy, one optimizer step per
batch, with a decaying learning rate."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pettingllms.cluster.start import find_device, ray_running
from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.config.verifier import VerifierConfig
from pettingllms.errors import ConfigError, DataError
from pettingllms.learners.batches import JointAction, split
from pettingllms.policies.files import CRITIC_FILE
from pettingllms.seeds import derive_seed
from pettingllms.verifier.classifier import VerifierSpec, VerifierTokenizer
from pettingllms.verifier.labeled_answers import Answer, balanced

Call = Callable[..., Awaitable[Any]]
"""Calls a method of a critic, local or remote, by name."""
Progress = Callable[[int, dict[str, float]], None]
"""Called after each step with its number and metrics."""


def verifier_spec(config: RunConfig) -> VerifierSpec:
    """The specification of the verifier in a configuration."""
    settings = config.verifier or VerifierConfig()
    models = (p.model for p in config.policies.values() if isinstance(p, FullPolicy | LoraPolicy))
    model = settings.model or next(models, "")
    if not model:
        raise ConfigError("verifier", ["model: empty, and no trained policy has a model to use"])
    same = ("kind", "rank", "alpha", "max_tokens", "every_token")
    return VerifierSpec(model, **{name: getattr(settings, name) for name in same})


def train_verifier(
    config: RunConfig, answers: Sequence[Answer], progress: Progress, notify: Callable[[str], None]
) -> dict[str, bytes]:
    """Train on answers under Ray and return the critic's files."""
    spec = verifier_spec(config)
    joint_actions = tokenize_answers(
        answers, spec, (config.verifier or VerifierConfig()).balance, notify
    )
    with ray_running(config.cluster):
        from pettingllms.cluster.watched_run import run_watched

        return run_watched(_train(config, spec, joint_actions, progress), config.cluster, notify)


async def _train(
    config: RunConfig, spec: VerifierSpec, joint_actions: Sequence[JointAction], progress: Progress
) -> dict[str, bytes]:
    from pettingllms.cluster.learners import Learners
    from pettingllms.cluster.reservation import local_places

    device, _ = find_device(config.cluster)
    section = config.verifier or VerifierConfig()
    once = {"num_minibatches": 1, "num_epochs": 1}
    learner = config.learner.over(section.num_steps).model_copy(update=once)
    critic_spec = spec.critic(learner, config.seed, section.lr, device)
    places = local_places(learner.num_ranks, 0.0 if device == "cpu" else 1.0)
    critic = Learners(critic_spec, places)
    try:
        await critic.start(not config.cluster.address)
        return await fit(critic.call, joint_actions, section, config.seed, progress)
    finally:
        await critic.stop()


async def fit(
    call: Call,
    joint_actions: Sequence[JointAction],
    config: VerifierConfig,
    seed: int,
    progress: Progress,
) -> dict[str, bytes]:
    """Train for `num_steps` batches, each answer once per epoch; return the critic's files."""
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


def tokenize_answers(
    answers: Sequence[Answer],
    spec: VerifierSpec,
    balance: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> list[JointAction]:
    """Tokenize the answers that fit into `max_tokens`; both labels must occur.

    Dropping long answers can unbalance the labels, so the rest is balanced again if `balance`.
    """
    sides = {answer.correct for answer in answers}
    if len(sides) < 2:
        kinds = {True: "correct", False: "wrong"}
        held = f"only {kinds[sides.pop()]} ones" if sides else "none"
        raise DataError(f"a verifier needs correct and wrong answers, but there are {held}")
    tokenizer = VerifierTokenizer(spec)
    read = [(a, tokenizer.read(a.messages, a.text, a.correct)) for a in answers]
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
            f"no answers are left: those within {spec.max_tokens} tokens are not both correct "
            "and wrong; raise verifier.max_tokens"
        )
    notify(
        f"{len(read) - len(short)} answers are longer than {spec.max_tokens} tokens "
        f"(verifier.max_tokens) and are left out, and {len(short) - len(joint_actions)} more to "
        "keep the rest balanced"
    )
    return joint_actions
