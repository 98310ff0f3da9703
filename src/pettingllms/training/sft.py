"""Supervised fine-tuning (SFT) from episodes: a warm start, or rejection-sampling fine-tuning.

The learner is that of RL, with an advantage of 1 and no importance ratio. Turns that a policy of
this run sampled keep their ids. Replies of scripted players have no ids of the policy's tokenizer,
so they are tokenized here, once, with the model's chat template.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pettingllms.cluster.start import ray_running
from pettingllms.config import LossConfig, RunConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.config.sft import SftConfig
from pettingllms.envs import Environment, make_env_for
from pettingllms.errors import ConfigError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.multimodal_chat import renderer_of
from pettingllms.league import rotations
from pettingllms.learners.batches import Item, Unit, UnitT, split
from pettingllms.models import find_model
from pettingllms.rollouts import in_order
from pettingllms.runs.callbacks import Callback, running_callbacks
from pettingllms.runs.checkpoint import State
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import make_trackers
from pettingllms.seeds import derive_seed
from pettingllms.training.collect import scripted_worker
from pettingllms.training.initial_weights import initial_weights
from pettingllms.training.saving import Saver
from pettingllms.types import Episode, Turn, episode_files, images_of, read_episodes

__all__ = ["sft"]

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team

NO_LIMIT = 1 << 30
"""More bytes than any scripted player writes."""


def sft(config: RunConfig, folder: RunFolder, callback: Callback | None = None) -> None:
    """Train every policy that learns on the replies of its roles, and write a checkpoint."""
    with running_callbacks(callback, config.log.callbacks) as callbacks:
        _prepare_and_train(config, folder, callbacks)


def _prepare_and_train(config: RunConfig, folder: RunFolder, callback: Callback) -> None:
    callback.on_phase("collecting")
    items = items_by_policy(config, source_episodes(config))
    exploiters = config.league.exploiters if config.league else []
    for policy in config.trained_policies() - set(exploiters):
        if not items.get(policy):
            raise ConfigError(
                "sft",
                [f"'{policy}' has no turn to learn from: no episode has one of its roles"],
            )
    callback.on_phase("starting Ray")
    with ray_running(config.cluster):
        from pettingllms.cluster.watched_run import run_watched

        run_watched(
            _sft(_supervised(config), items, folder, callback), config.cluster, callback.on_message
        )


async def _sft(
    config: RunConfig, items: dict[str, list[Item]], folder: RunFolder, callback: Callback
) -> None:
    batches = {
        name: batches_of(some, _section(config).num_turns, config, name, "sft")
        for name, some in items.items()
    }

    async def prepare(_: "Team") -> dict[str, Iterator[list[Item]]]:
        return batches

    await train_batches(config, prepare, _section(config).num_steps, folder, callback)


async def train_batches(
    config: RunConfig,
    prepare: Callable[["Team"], Awaitable[Mapping[str, Iterator[Sequence[Unit]]]]],
    num_steps: int,
    folder: RunFolder,
    callback: Callback,
) -> None:
    """Train each policy on its prepared batches, and write a checkpoint.

    `prepare` is called once the learners have their initial weights, and may use them.
    """
    from pettingllms.cluster.team import Team

    callback.on_phase("starting learners")
    saved = initial_weights(config)
    team = await Team.start(config, callback.on_message, sampling=False)
    folder.rewind(0)
    trackers = make_trackers(config, folder.path, callback.on_message)
    try:
        await team.load_learners(saved)
        batches = await prepare(team)
        callback.on_phase("learning")
        for step in range(1, num_steps + 1):
            numbers: dict[str, float] = {}
            for policy, some in batches.items():
                measured = await team.learn_units(policy, next(some), step)
                if measured["skipped_updates"]:
                    callback.on_message(
                        f"step {step} of '{policy}' was skipped: its gradient is not finite"
                    )
                numbers |= {f"policies/{policy}/{name}": v for name, v in measured.items()}
            for tracker in trackers:
                tracker.log(step, numbers)
            callback.on_progress(step, num_steps)
        losses = {policy: numbers[f"policies/{policy}/loss"] for policy in batches}
        callback.on_message(
            ", ".join(f"loss of '{name}' {loss:.3f}" for name, loss in losses.items())
        )
        saver = Saver(config, folder, callback.on_message)
        state = State(step=num_steps, versions=dict.fromkeys(batches, 0))
        await saver.save(team, list(batches), state)
        await saver.finish()
    finally:
        for tracker in trackers:
            tracker.close()
        await team.stop()


def source_episodes(config: RunConfig) -> Iterable[Episode]:
    """The episodes to learn from: read from files, or sampled by a scripted player."""
    source = _section(config)
    if source.episodes and source.player:
        raise ConfigError("sft", ["player and episodes are both set; set one"])
    if source.episodes:
        return episodes_in(source.episodes, "sft.episodes")
    if not source.player:
        raise ConfigError("sft", ["no episodes to learn from; set sft.player or sft.episodes"])
    env = make_env_for(config.env)
    episodes = _demonstrations(config, env, source)
    if source.with_solo:
        episodes += _demonstrations(_solo_config(config), env.solo(), source)
    return episodes


def _demonstrations(
    config: RunConfig, env: Environment[Any, Any], source: SftConfig
) -> list[Episode]:
    """Episodes of the scripted player on the first training tasks."""
    no_limits = {
        "max_reply_tokens": NO_LIMIT,
        "max_episode_tokens": NO_LIMIT,
    }  # bytes, for scripted players
    rollout = config.rollout.linear(1).model_copy(update=no_limits)
    episodes: list[Episode] = []
    tasks = list(itertools.islice(env.tasks("train"), source.num_episodes))
    assignments = rotations(config.roles, tasks, 0) if config.rollout.rotate_roles else {}
    worker = scripted_worker(config, env, assignments, rollout, source.player)
    asyncio.run(worker.run(tasks, derive_seed(config.seed, "sft"), episodes.append))
    return in_order(episodes, tasks)


def _solo_config(config: RunConfig) -> RunConfig:
    """The config with the roles of the environment's solo form, all on the one policy."""
    policies = config.trained_policies()
    if len(policies) != 1:
        names = ", ".join(sorted(policies))
        raise ConfigError(
            "sft.with_solo",
            [f"needs exactly one policy that learns, but the config has {names}; remove it"],
        )
    (policy,) = policies
    roles = dict.fromkeys(make_env_for(config.env).solo().roles, policy)
    return config.model_copy(update={"roles": roles})


def episodes_in(files: Sequence[str], key: str) -> Iterator[Episode]:
    """The episodes of the files of a configuration key, read one after another."""
    if missing := [file for file in files if not episode_files(Path(file))]:
        advice = "episodes of a run are RUN/episodes/*.zip"
        raise ConfigError(key, [f"no file {file}; {advice}" for file in missing])
    return (episode for file in files for episode in read_episodes(Path(file)))


def items_by_policy(config: RunConfig, episodes: Iterable[Episode]) -> dict[str, list[Item]]:
    """Training items of each policy that learns, in the order of episodes and turns."""
    renderers = renderers_of(config)
    if _section(config).with_solo:
        roles = {**config.roles, **_solo_config(config).roles}
        config = config.model_copy(update={"roles": roles})
    items: dict[str, list[Item]] = {name: [] for name in renderers}
    for episode in episodes:
        for turn in episode.main_turns():
            policy = learner_of(config, episode, turn)
            if (
                policy not in renderers
                or turn.credit.failure is not None
                or turn.limit
                or not turn.text
            ):
                continue
            if _section(config).only_success and not episode.success.get(turn.role):
                continue
            items[policy].append(training_item(turn, policy, renderers[policy]))
    check_reply_lengths(config, items, "sft")
    return items


def learner_of(config: RunConfig, episode: Episode, turn: Turn) -> str | None:
    """The policy that learns from a reply, if any.

    If a policy that learns took part in the episode, only its replies are used, not those of
    snapshots or co-players. Otherwise the episode is a demonstration, and each reply is for the
    policy of its role.
    """
    learners = config.trained_policies()
    if any(other.policy in learners for other in episode.turns):
        return turn.policy if turn.policy in learners else None
    return config.roles.get(turn.role)


def renderers_of(config: RunConfig) -> dict[str, ChatRenderer]:
    """Renderers of all policies that learn in some role."""
    trained = config.trained_policies() & set(config.roles.values())
    found = {}
    for name in sorted(trained):
        policy = config.policies[name]
        assert isinstance(policy, FullPolicy | LoraPolicy)  # noqa: S101 - it learns
        found[name] = renderer_of(find_model(policy.model), policy.chat_template_kwargs)
    return found


def check_reply_lengths(
    config: RunConfig, items: Mapping[str, Sequence[Item]], source: str
) -> None:
    """Raise ConfigError for replies that are too long to be sampled."""
    limit = config.rollout.max_reply_tokens
    for policy, some in items.items():
        longest = max((len(item.response_ids) for item in some), default=0)
        if longest > limit:
            problem = (
                f"'{policy}' would learn replies of up to {longest} tokens, but "
                f"rollout.max_reply_tokens is {limit}; set it to {longest}"
            )
            raise ConfigError(source, [problem])


def training_item(turn: Turn, policy: str, renderer: ChatRenderer) -> Item:
    """The sampled ids if they are of this policy's tokenizer; otherwise the text is tokenized. A
    policy of the same name may have had another tokenizer, which its prompt shows."""
    prompt_ids, response_ids = turn.prompt_ids, turn.response_ids
    if turn.logprobs is None or turn.policy != policy or not _has_ids_of(renderer, turn):
        prompt_ids, response_ids = renderer.render(turn.messages), renderer.encode(turn.text)
        if turn.finish == "length":
            response_ids = response_ids[:-1]  # the reply was cut before its end token
    nothing = np.zeros(len(response_ids), np.float32)
    return Item(prompt_ids, response_ids, nothing, 1.0, images=images_of(turn.messages))


def _has_ids_of(renderer: ChatRenderer, turn: Turn) -> bool:
    """Whether a turn's ids are of this tokenizer. Prompts of external programs contain more than
    their messages, such as tools; then the decoded text must contain the messages."""
    if np.array_equal(renderer.render(turn.messages), turn.prompt_ids):
        return True
    prompt = renderer.decode(turn.prompt_ids)
    return renderer.decode(turn.response_ids) == turn.text and all(
        message.content.strip() in prompt for message in turn.messages
    )


def batches_of(
    units: Sequence[UnitT], size: int, config: RunConfig, policy: str, use: str
) -> Iterator[list[UnitT]]:
    """Endless batches; each epoch has every unit once, in an order given by the seed."""
    num_parts = max(1, len(units) // size)
    for epoch in itertools.count():
        yield from split(units, num_parts, derive_seed(config.seed, use, policy, epoch))


def _supervised(config: RunConfig) -> RunConfig:
    """The configuration of a run that learns by likelihood only."""
    section = _section(config)
    return supervised_config(config, loss_config("plain"), section.num_steps, section.lr)


def _section(config: RunConfig) -> SftConfig:
    return config.sft or SftConfig()


def supervised_config(
    config: RunConfig, loss: LossConfig, num_steps: int, lr: float | None
) -> RunConfig:
    """The configuration of a run with one optimizer step per batch and a learning rate that decays
    to the end. It has no critic, because there are no rewards."""
    once = {"num_minibatches": 1, "num_epochs": 1}
    learner = config.learner.over(num_steps).model_copy(update=once)
    policies = dict(config.policies)
    if lr is not None:
        for name in config.trained_policies():
            policies[name] = policies[name].model_copy(update={"lr": lr})
    update = {"loss": loss, "learner": learner, "policies": policies}
    return config.model_copy(update={**update, "critic": None})
