"""The team: engines that sample, learners that train, and weight sync between them."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pettingllms.cluster.canary import make_canary
from pettingllms.cluster.checks import check_mismatch, check_versions, check_weights_fit
from pettingllms.cluster.critics import Critics
from pettingllms.cluster.engines import Engines, Published
from pettingllms.cluster.learners import Learners, run_all, saved_policy
from pettingllms.cluster.placement import (
    engine_specs,
    gpu_shares,
    learner_spec,
    require_image_support,
    usable_cores,
)
from pettingllms.cluster.samplers import PolicySamplers
from pettingllms.cluster.snapshots import SnapshotSamplers
from pettingllms.cluster.start import find_device
from pettingllms.cluster.weight_sync import Publisher
from pettingllms.cluster.workflows import Programs
from pettingllms.config import RolloutConfig, RunConfig
from pettingllms.envs import Environment, make_env_at, make_test_env
from pettingllms.envs.check_start import check_start
from pettingllms.envs.workflow import Workflow
from pettingllms.errors import CheckpointError
from pettingllms.inference.choice_logprobs import Choice, reply_logprobs
from pettingllms.inference.multimodal_chat import renderer_of
from pettingllms.judges import JudgeModel
from pettingllms.league import Assignment
from pettingllms.learners.batches import Item, Unit, item_of, joint_actions_of, turns_of
from pettingllms.learners.serialization import Units
from pettingllms.models import find_model
from pettingllms.policies import ModelGroup, check_lora_dtype, check_resources, plan_models
from pettingllms.policies.files import FOR_LEARNERS, Files, Saved, read_content
from pettingllms.rollouts import Player, Worker, in_order
from pettingllms.types import Episode, LogProbs, Task, Turn

NO_ASSIGNMENTS: Mapping[str, Assignment] = {}


class Team:
    """All engines, learners and players of a run. Create one with `await Team.start(...)`."""

    def __init__(self, config: RunConfig, notify: Callable[[str], None]) -> None:
        self.config = config
        self.env: Environment[Any, Any] = make_env_at(config, 1)
        """Environment of training."""
        self.test_env = make_test_env(config)
        """Environment of evaluation, the same in every step."""
        self._models: Mapping[str, Path] = {}  # folders, by group
        self.versions: dict[str, int] = {}
        """Version of each policy that learns."""
        self.weight_hashes: dict[str, str] = {}
        """Weight hash of each such policy, and of each snapshot."""
        self.concurrent = False
        """Whether learners run concurrently, because each has its own GPUs."""
        self._notify = notify
        self._groups = plan_models(config)
        self.critics = Critics(config)
        self._engines: dict[str, Engines] = {}
        self._learners: dict[str, Learners] = {}
        self._publishers: dict[str, Publisher] = {}
        self._samplers = PolicySamplers(config, self.weight_hashes)
        self._programs: Programs | None = None  # only for workflows
        self.snapshots = SnapshotSamplers(
            self._group, self._engines, self._learners, self._publishers, self.weight_hashes
        )
        """Frozen snapshots of policies."""

    @classmethod
    async def start(
        cls,
        config: RunConfig,
        notify: Callable[[str], None],
        learning: bool = True,
        sampling: bool = True,
    ) -> "Team":
        """Start all engines and learners, or only one kind. Ray must be running."""
        team = cls(config, notify)
        if learning and sampling:
            check_start(team.env, forks=config.rollout.type != "linear")
        models = {group.name: find_model(group.model) for group in team._groups}
        if learning:
            models |= {plan.name: find_model(plan.model) for plan in team.critics.plans}
            for group in team._groups:
                team.critics.check_same_tokenizer(group.trained, models[group.name], models)
        team._models = models
        require_image_support(config, team.env, team._groups, models)
        team._start_processes(models, learning, sampling)
        starts = [
            *(learners.start(not config.cluster.address) for learners in team._all_learners()),
            *(engines.start() for engines in team._engines.values()),
        ]
        for notice in filter(None, await asyncio.gather(*starts)):
            notify(notice)
        if sampling:
            team._add_samplers(models)
            if isinstance(team.env, Workflow):
                trained = config.trained_policies()
                players = {
                    r: team.player(team.env, p, None, trained) for r, p in config.roles.items()
                }
                team._programs = await Programs.start(players, notify)
        return team

    async def stop(self) -> None:
        """Stop all processes of this team."""
        if self._programs is not None:
            await self._programs.stop()
        for engines in self._engines.values():
            await engines.stop()
        for learners in self._all_learners():
            await learners.stop()
        await self._samplers.close()

    async def load(self, versions: Mapping[str, int], saved: Saved) -> None:
        """Load saved weights and versions, and publish the weights of every policy that learns."""
        await self.load_learners(saved)
        for policy, group in self._trained():
            self.versions[policy] = versions.get(policy, 0)
            await self._publish(policy, group)
        await self.check_together()
        await self.critics.load(saved)

    async def check_together(self) -> None:
        """Raise StaleWeightsError if engines confuse the policies of a batch."""
        for publisher in self._publishers.values():
            await publisher.check_together()

    async def load_learners(self, saved: Saved) -> None:
        """Load weights into learners only."""
        for policy, group in self._trained():
            if policy in saved:
                check_weights_fit(policy, saved[policy], self._models.get(group.name))
                await self._learners[group.name].call("load", policy, dict(saved[policy]))

    async def load_engines(self, saved: Saved) -> None:
        """Load the weights of a checkpoint into engines only."""
        for policy, group in self._trained():
            if policy not in saved:
                raise CheckpointError(
                    f"the checkpoint has no policy '{policy}', it has {', '.join(saved)}; evaluate "
                    "it with the configuration of its run"
                )
            check_weights_fit(policy, saved[policy], self._models.get(group.name))
            own = saved[policy].items()
            files = {n: read_content(c) for n, c in own if n not in FOR_LEARNERS}
            self.weight_hashes[policy] = hashlib.sha256(b"".join(files.values())).hexdigest()
            new = Published(group.publish_method, 0, files)
            await self._engines[group.name].publish(policy, new)

    async def play(
        self,
        tasks: Sequence[Task],
        seed: int,
        rollout: RolloutConfig | None = None,
        temperature: float | None = None,
        deliver: Callable[[int], None] = lambda _: None,
        learning: frozenset[str] | None = None,
        env: Environment[Any, Any] | None = None,
        assignments: Mapping[str, Assignment] = NO_ASSIGNMENTS,
        first: int = 0,
    ) -> list[Episode]:
        """Sample episodes of the tasks, in their order. `deliver` gets the number of finished ones.

        Policies in `learning` (default: all that ever learn) have siblings in a tree. `assignments`
        are the players of a task, by its id, where they differ from [roles]. `first` is the number
        of a task's first episode.
        """
        episodes: list[Episode] = []

        def end(episode: Episode) -> None:
            episodes.append(episode)
            deliver(len(episodes))

        config = rollout or self.config.rollout
        env = env or self.env
        trained = self.config.trained_policies() if learning is None else learning
        names = {
            *self.config.roles.values(),
            *(p for some in assignments.values() for p in some.values()),
        }
        players = {name: self.player(env, name, temperature, trained) for name in names}
        own, *others = (
            {role: players[name] for role, name in assignment.items()}
            for assignment in (self.config.roles, *assignments.values())
        )
        by_task = dict(zip(assignments, others, strict=True))
        programs = self._programs.play(config) if self._programs else None
        worker = Worker(env, own, config, self.config.reward, by_task, programs)
        await worker.run(tasks, seed, end, first)
        return in_order(episodes, tasks)

    def judge_model(self, name: str) -> JudgeModel:
        """A policy of this run as the model of a judge."""
        return self._samplers.judge(name, self.reply_logprobs)

    def player(
        self,
        env: Environment[Any, Any],
        name: str,
        temperature: float | None,
        trained: frozenset[str],
    ) -> Player:
        """The player of a policy, of a snapshot of one, or of a scripted player."""
        source = self.snapshots.sources.get(name, name)
        centralized = self.critics.centralized and name in trained
        return self._samplers.player(env, name, source, temperature, name in trained, centralized)

    async def value(self, joint_actions: Sequence[Sequence[Turn]]) -> None:
        """Let critics write values on turns; a mixing critic mixes those of a joint action."""
        await self.critics.value(joint_actions)
        if not self._has_heads:
            return
        await asyncio.gather(*(engines.sleep() for engines in self._engines.values()))
        for policy, group in self._trained():
            turns = [
                turn
                for joint_action in joint_actions
                for turn in joint_action
                if turn.policy == policy
            ]
            if turns:
                items = Units(one.items[0] for one in joint_actions_of([[t] for t in turns], False))
                found = await self._learners[group.name].call("values", policy, items)
                for turn, values in zip(turns, found, strict=True):
                    turn.credit.values = values
        await asyncio.gather(*(engines.wake() for engines in self._engines.values()))

    async def learn_all(
        self,
        episodes: Sequence[Episode],
        joint_actions: Sequence[Sequence[Turn]],
        step: int,
        num_tokens: int = 0,
    ) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Update policies and critics; return metrics by policy and by critic.

        `num_tokens`: tokens sampled before this step, for schedules by tokens."""
        learners = (partial(self.learn, episodes), partial(self.critics.learn, joint_actions))
        policies, critics = await run_all(
            (learn(step, num_tokens) for learn in learners), self.concurrent
        )
        return policies, critics

    async def learn(
        self, episodes: Sequence[Episode], step: int, num_tokens: int = 0
    ) -> dict[str, dict[str, float]]:
        """Update each policy with its own turns; return metrics by policy."""
        check_versions(episodes, self.versions)
        await asyncio.gather(*(engines.sleep() for engines in self._engines.values()))
        learning = (self._learn(group, episodes, step, num_tokens) for group in self._groups)
        results = await run_all(learning, self.concurrent)
        await asyncio.gather(*(engines.wake() for engines in self._engines.values()))
        return {policy: found for measured in results for policy, found in measured.items()}

    async def _learn(
        self, group: ModelGroup, episodes: Sequence[Episode], step: int, num_tokens: int
    ) -> dict[str, dict[str, float]]:
        """Update the policies of one model, one after another."""
        measured: dict[str, dict[str, float]] = {}
        for policy in group.trained:
            options = self.config.learner
            skip = options.skip_zero or self.config.rollout.max_resamples > 0
            mask = options.mask_truncated
            turns = turns_of(episodes, policy, skip, self._has_heads, mask)
            if turns:
                learners, keep = self._learners[group.name], self.config.log.episodes
                items = Units(item_of(turn) for turn in turns)
                bound = self.config.mismatch_bound()
                measured[policy] = await learners.call(
                    "train", policy, items, step, keep, num_tokens, bound
                )
                # Past the bound the learner has skipped its update.
                check_mismatch(policy, measured[policy]["mismatch"], bound)
                if keep:
                    found = await learners.call("take_logprobs")
                    for turn, logprobs in zip(turns, found, strict=True):
                        turn.credit.learner_logprobs = logprobs
        return measured

    async def learn_units(self, policy: str, units: Sequence[Unit], step: int) -> dict[str, float]:
        """Update one policy with replies that need not be sampled by this run."""
        learners = self._learners[self._group(policy).name]
        measured: dict[str, float] = await learners.call("train", policy, Units(units), step)
        return measured

    async def logprobs(self, policy: str, items: Sequence[Item]) -> list[LogProbs]:
        """Log-probs of replies under the learner's current weights of a policy."""
        learners = self._learners[self._group(policy).name]
        found: list[LogProbs] = await learners.call("logprobs", policy, Units(items))
        return found

    async def skipped(self, policy: str) -> list[Item]:
        """Replies whose gradients were not finite, since the last call."""
        learners = self._learners[self._group(policy).name]
        taken: list[Item] = await learners.call("take_skipped", policy)
        return taken

    async def publish(self, policies: Sequence[str]) -> dict[str, float]:
        """Send new weights of policies to the samplers; return the canary's mismatch of each."""
        mismatches = {}
        for policy, group in self._trained():
            if policy in policies:
                self.versions[policy] += 1
                mismatches[policy] = await self._publish(policy, group)
        for group in self._groups:
            if published := mismatches.keys() & group.trained:
                widest = await self._publishers[group.name].check_together()
                mismatches |= {policy: max(mismatches[policy], widest) for policy in published}
        return mismatches

    async def reply_logprobs(
        self, policy: str, choices: Sequence[Choice], temperature: float = 1.0
    ) -> list[list[float]]:
        """Log-probabilities of given replies under a policy with an engine."""
        engines = self._engines[self._group(policy).name]
        score = partial(engines.score_many, policy, temperature=temperature)
        renderer: Any = self._samplers.renderers[policy]  # policies with an engine have a tokenizer
        return await reply_logprobs(score, renderer, choices)

    def names(self) -> list[str]:
        """Names of all that learns: policies, and critics that are separate models."""
        return [*self.versions, *self.critics.learners]

    async def saved(self, policy: str, folder: Path) -> Files:
        """Weights and optimizer state of a policy or critic, as files.

        On one machine, learners write them to the folder, so that no process holds them."""
        shared = None if self.config.cluster.address else folder
        if policy in self.critics.learners:
            return await self.critics.saved(policy, shared)
        return await saved_policy(self._learners[self._group(policy).name], policy, shared)

    @property
    def _has_heads(self) -> bool:
        """Whether policies have value heads, which learn with them."""
        return self.config.critic is not None and not self.critics.plans

    def _all_learners(self) -> list[Learners]:
        return [*self._learners.values(), *self.critics.learners.values()]

    def _group(self, policy: str) -> ModelGroup:
        return next(group for group in self._groups if policy in group.policies)

    def _trained(self) -> list[tuple[str, ModelGroup]]:
        return [(policy, group) for group in self._groups for policy in group.trained]

    async def _publish(self, policy: str, group: ModelGroup) -> float:
        publisher = self._publishers[group.name]
        mismatch = await publisher.publish(policy, self.versions[policy])
        self.weight_hashes[policy] = publisher.weight_hashes[policy]
        return mismatch

    def _start_processes(self, models: Mapping[str, Path], learning: bool, sampling: bool) -> None:
        device, num_gpus = find_device(self.config.cluster)
        config = self.config = self.config.for_device(device)
        if device != "cpu":
            check_lora_dtype(config, self._groups)
            check_resources(config, self._groups, num_gpus)
        engine_gpus, learner_gpus = gpu_shares(config, device)
        self.concurrent = learner_gpus > 0
        num_threads = max(1, usable_cores() // config.learner.num_ranks)
        for at, group in enumerate(self._groups):
            model = models[group.name]
            if sampling:
                specs = engine_specs(config, group, model, device, at, len(self._groups))
                self._engines[group.name] = Engines(
                    specs, engine_gpus, config.cluster.max_restarts, self._notify
                )
            if learning and group.trained:
                spec = learner_spec(config, group, model, device)
                self._learners[group.name] = Learners(spec, learner_gpus, num_threads)
        if learning:
            self.critics.start(models, device, learner_gpus, num_threads)

    def _add_samplers(self, models: Mapping[str, Path]) -> None:
        """Create a sampler per policy, and a publisher with a canary per model."""
        for group in self._groups:
            model, engines = models[group.name], self._engines[group.name]
            renderer = renderer_of(model)
            self._samplers.add_model(group.policies, engines, renderer, model)
            if group.name in self._learners:
                self._publishers[group.name] = Publisher(
                    self._learners[group.name],
                    engines,
                    make_canary(self.env, renderer, self.config.inference.max_model_len),
                    self.config.mismatch_bound(),
                    group.publish_method,
                    tuple(group.frozen),
                )
        self._samplers.add_servers()
