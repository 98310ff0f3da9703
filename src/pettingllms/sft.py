"""Supervised training of policies from episodes: a warm start, or rejection-sampling fine-tuning.

Turns are learnt by the learner that reinforcement learning uses, with an advantage of one and no
ratio. What a policy of this run wrote is learnt by the ids that were sampled. What a script wrote
has never been tokenised for the policy, so it is here, once, with the model's own template.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pettingllms.cluster.start import ray_running
from pettingllms.collect import scripted_seats
from pettingllms.config import LossConfig, RunConfig
from pettingllms.envs import make_env_for
from pettingllms.errors import ConfigError
from pettingllms.evaluate import start_weights
from pettingllms.inference.chat import ChatRenderer
from pettingllms.learners.batches import Item, split
from pettingllms.models import find_model
from pettingllms.rollout import Worker
from pettingllms.runs.checkpoint import State
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import make_trackers
from pettingllms.seeds import derive_seed
from pettingllms.train import Watcher
from pettingllms.types import Episode, Turn, read_episodes

WHOLE = 1 << 30
"""As many bytes as any script writes."""


def sft(config: RunConfig, folder: RunFolder, watcher: Watcher) -> None:
    """Train every policy that learns on what its roles said, and leave a checkpoint."""
    watcher.phase("collecting")
    items = items_by_policy(config, source_episodes(config))
    for policy in config.trained_policies() - set(config.league.exploiters):
        if not items.get(policy):
            raise ConfigError(
                "sft",
                [f"'{policy}' has no turn to learn from: no episode has one of its roles in it"],
            )
    watcher.phase("starting Ray")
    with ray_running(config.cluster):
        asyncio.run(_sft(_supervised(config), items, folder, watcher))


async def _sft(
    config: RunConfig, items: dict[str, list[Item]], folder: RunFolder, watcher: Watcher
) -> None:
    from pettingllms.cluster.team import Team

    watcher.phase("starting learners")
    begun = start_weights(config)
    team = await Team.start(config, watcher.say, sampling=False)
    folder.rewind(0)
    trackers = make_trackers(config, folder.path, watcher.say)
    try:
        await team.load_learners(begun)
        watcher.phase("learning")
        batches = {name: _batches(some, config, name) for name, some in items.items()}
        for step in range(1, config.sft.num_steps + 1):
            numbers: dict[str, float] = {}
            for policy, some in batches.items():
                measured = await team.teach(policy, next(some), step)
                if measured["skipped_updates"]:
                    watcher.say(f"step {step} of '{policy}' was skipped: it was not finite")
                numbers |= {f"policies/{policy}/{name}": v for name, v in measured.items()}
            for tracker in trackers:
                tracker.log(step, numbers)
            watcher.progress(step, config.sft.num_steps)
        losses = {policy: numbers[f"policies/{policy}/loss"] for policy in batches}
        watcher.say(", ".join(f"loss of '{name}' {loss:.3f}" for name, loss in losses.items()))
        writer = folder.checkpoint(
            State(step=config.sft.num_steps, versions=dict.fromkeys(batches, 0))
        )
        if writer is not None:
            for policy in batches:
                writer.add(policy, await team.saved(policy))
            writer.finish(config.train.keep_checkpoints)
    finally:
        for tracker in trackers:
            tracker.close()
        await team.stop()


def source_episodes(config: RunConfig) -> list[Episode]:
    """The episodes to learn from: read from files, or played by a script."""
    source = config.sft
    if source.episodes and source.player:
        raise ConfigError("sft", ["player and episodes are both set; set one"])
    if source.episodes:
        return [episode for path in source.episodes for episode in read_episodes(Path(path))]
    if not source.player:
        raise ConfigError("sft", ["neither player nor episodes are set, so there is no teacher"])
    env = make_env_for(config.env)
    whole = {"max_reply_tokens": WHOLE, "max_episode_tokens": WHOLE}  # a script's are bytes
    rollout = config.rollout.model_copy(update={"type": "linear", "num_samples": 1, **whole})
    seats = scripted_seats(config, env, source.player)
    episodes: list[Episode] = []
    tasks = list(itertools.islice(env.tasks("train"), source.num_episodes))
    worker = Worker(env, seats, rollout, config.reward)
    asyncio.run(worker.run(tasks, derive_seed(config.seed, "sft"), episodes.append))
    return episodes


def items_by_policy(config: RunConfig, episodes: Sequence[Episode]) -> dict[str, list[Item]]:
    """What each policy that learns is taught, in the order of episodes and turns."""
    trained = config.trained_policies() & set(config.roles.values())
    renderers = {
        name: ChatRenderer(find_model(config.policies[name].model))  # type: ignore[union-attr]
        for name in sorted(trained)
    }
    items: dict[str, list[Item]] = {name: [] for name in sorted(trained)}
    for episode in episodes:
        for turn in episode.trunk_turns():
            policy = config.roles.get(turn.role)
            if policy not in trained or turn.failure is not None or not turn.text:
                continue
            if config.sft.only_success and not episode.success.get(turn.role):
                continue
            items[policy].append(_item(turn, policy, renderers[policy]))
    _refuse_longer(config, items)
    return items


def _refuse_longer(config: RunConfig, items: dict[str, list[Item]]) -> None:
    """Refuse to teach what could never be sampled."""
    limit = config.rollout.max_reply_tokens
    for policy, some in items.items():
        longest = max((len(item.response_ids) for item in some), default=0)
        if longest > limit:
            problem = (
                f"'{policy}' would be taught replies of up to {longest} tokens, and rollout."
                f"max_reply_tokens cuts what it says after {limit}; set it to {longest}"
            )
            raise ConfigError("sft", [problem])


def _item(turn: Turn, policy: str, renderer: ChatRenderer) -> Item:
    """The ids that were sampled, if this policy's model wrote them: one of the same name may have
    had another tokenizer, which its prompt shows."""
    prompt_ids, response_ids = renderer.render(turn.messages), turn.response_ids
    own = turn.logprobs is not None and turn.policy == policy
    if not own or not np.array_equal(prompt_ids, turn.prompt_ids):
        response_ids = renderer.encode(turn.text)
        if turn.finish == "length":
            response_ids = response_ids[:-1]  # it was cut, and nobody wrote an end
    return Item(prompt_ids, response_ids, np.zeros(len(response_ids), np.float32), 1.0)


def _batches(items: Sequence[Item], config: RunConfig, policy: str) -> Iterator[list[Item]]:
    """Batches without end; each item once in an epoch, in an order that the seed gives."""
    num_parts = max(1, len(items) // config.sft.num_turns)
    for epoch in itertools.count():
        yield from split(items, num_parts, derive_seed(config.seed, "sft", policy, epoch))


def _supervised(config: RunConfig) -> RunConfig:
    """The run whose learner learns by likelihood alone, one optimizer step a batch, at a rate that
    falls to the end. Critics have nothing to learn from: nothing is paid."""
    once = {"num_minibatches": 1, "num_epochs": 1, "decay_steps": config.sft.num_steps}
    learner = config.learner.model_copy(update=once)
    policies = dict(config.policies)
    if config.sft.lr is not None:
        for name in config.trained_policies():
            policies[name] = policies[name].model_copy(update={"lr": config.sft.lr})
    update = {"loss": LossConfig(type="plain"), "learner": learner, "policies": policies}
    return config.model_copy(update={**update, "critic": None})
