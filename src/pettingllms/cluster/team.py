"""The team: engines that sample, learners that train, and weight sync between them."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pettingllms.cluster.canary import make_canary
from pettingllms.cluster.checks import check_versions, check_weights_fit, require_weights
from pettingllms.cluster.critics import Critics
from pettingllms.cluster.engine_files import engine_files
from pettingllms.cluster.engines import Engines, Published
from pettingllms.cluster.learners import Learners, finish_all, run_all, watched
from pettingllms.cluster.node_check import check_nodes
from pettingllms.cluster.placement import engine_specs, learner_spec, require_image_support
from pettingllms.cluster.playing import NO_ASSIGNMENTS, TEST, EnvCallers, Play, level_of, play_here
from pettingllms.cluster.policy_update import trained_turns, update_policy, value_turns
from pettingllms.cluster.reservation import Reservation, reserve
from pettingllms.cluster.rollout_pool import RolloutPool, make_pool
from pettingllms.cluster.samplers import PolicySamplers
from pettingllms.cluster.snapshots import SnapshotSamplers
from pettingllms.cluster.start import find_device
from pettingllms.cluster.start_order import start_all
from pettingllms.cluster.use import TeamUse, team_use
from pettingllms.cluster.weight_sync import Publisher, publisher_of
from pettingllms.cluster.workflows import Programs, driver_programs, start_router, stopped_on_error
from pettingllms.config import RolloutConfig, RunConfig
from pettingllms.envs import Environment, make_env_at, make_test_env
from pettingllms.envs.check_start import check_start
from pettingllms.envs.workflow import Workflow
from pettingllms.gateway.router import Router
from pettingllms.inference.choice_logprobs import Choice, reply_logprobs
from pettingllms.inference.multimodal_chat import renderers_by_policy
from pettingllms.judges import JudgeModel
from pettingllms.league import Assignment
from pettingllms.learners.batches import Item, Unit
from pettingllms.learners.serialization import Units
from pettingllms.models import find_model
from pettingllms.policies import ModelGroup, check_lora_dtype, plan_models
from pettingllms.policies.files import Saved
from pettingllms.rollouts import Player
from pettingllms.types import Episode, LogProbs, Task, Turn
from pettingllms.types.sampling import Truncation

T = TypeVar("T")


class Team:
    """All engines, learners and players of a run. Create one with `await Team.start(...)`."""

    def __init__(self, config: RunConfig, notify: Callable[[str], None]) -> None:
        self.config = config
        self.env: Environment[Any, Any] = make_env_at(config, 1)  # of training
        self.test_env = make_test_env(config)  # of evaluation, the same in every step
        self._models: Mapping[str, Path] = {}  # folders, by group
        self.versions: dict[str, int] = {}
        """Version of each policy that learns."""
        self.weight_hashes: dict[str, str] = {}
        """Weight hash of each such policy, and of each snapshot."""
        self.concurrent = False
        """Whether learners run concurrently, because each has its own GPUs."""
        self._notify = notify
        self._groups = plan_models(config)
        self._reserved = Reservation()
        self.critics = Critics(config)
        self._engines: dict[str, Engines] = {}
        self._learners: dict[str, Learners] = {}
        self._publishers: dict[str, Publisher] = {}
        self._samplers = PolicySamplers(config, self.weight_hashes)
        self._programs: Programs | None = None  # only for workflows that the driver plays
        self._router: Router | None = None  # in front of the gateways of workflows
        self._pool: RolloutPool | None = None  # None: the driver plays
        self._env_callers = EnvCallers(config.rollout)
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
        team = cls(config if learning else config.without_merging(), notify)
        if learning and sampling:
            check_start(team.env, forks=config.rollout.type != "linear")
        models = {group.name: find_model(group.model) for group in team._groups}
        if learning:
            models |= team.critics.find_models(team._groups, models)
        team._models = models
        require_image_support(config, team.env, team._groups, models)
        await check_nodes(config, models)
        if sampling:
            team._router = start_router(config, team.env)
        with stopped_on_error(team._router):
            team._start_processes(models, learning, sampling)
            engines = team._engines.values()
            learners = watched(team._all_learners(), config.cluster, notify)
            shares = config.cluster.placement == "colocated"
            starting = [start_all(engines, learners, not config.cluster.address, shares)]
            if team._pool is not None:
                starting.append(team._pool.start())
            for notice in itertools.chain.from_iterable(await asyncio.gather(*starting)):
                notify(notice)
            if sampling:
                team._add_samplers(models)
                if isinstance(team.env, Workflow) and team._pool is None:
                    usual = team._samplers.usual_players(team.env)
                    team._programs = await driver_programs(usual, notify, team._router)
        return team

    async def stop(self) -> None:
        """Stop all processes of this team."""
        if self._programs is not None:
            await self._programs.stop()
        if self._pool is not None:
            await self._pool.stop()
        self._env_callers.close()
        for engines in self._engines.values():
            await engines.stop()
        for learners in self._all_learners():
            await learners.stop()
        if self._router is not None:
            self._router.stop()
        await self._samplers.close()
        self._reserved.release()

    async def stop_lost_learners(self) -> None:
        """Stop all ranks of learners of which one died or hangs."""
        for learners in (one for one in self._all_learners() if one.has_lost_rank):
            await learners.stop()

    async def restart_learners(self, everyone: bool = False) -> None:
        """Start learners that were stopped, or all again, with the weights of their models."""
        self._reserved.check()
        stopped = [one for one in self._all_learners() if everyone or not one.actors]
        for one in stopped:
            await one.stop()
        every = self._engines.values()
        if self.config.cluster.placement == "colocated":
            await asyncio.gather(*(one.sleep() for one in every))
        await asyncio.gather(*(one.restart() for one in stopped))
        # A step that was given up may have left them asleep.
        await asyncio.gather(*(one.wake() for one in every))
        for publisher in self._publishers.values():
            publisher.disconnect()

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
                await self._learners[group.name].load(policy, saved[policy])

    async def load_engines(self, saved: Saved) -> None:
        """Load the weights of a checkpoint into engines only."""
        for policy, group in self._trained():
            require_weights(policy, saved, self._models.get(group.name))
            remote = bool(self.config.cluster.address)
            files, self.weight_hashes[policy] = await engine_files(saved[policy], remote)
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
        truncation: Truncation | None = None,
    ) -> list[Episode]:
        """Sample episodes of the tasks, in their order. `deliver` gets the number of finished ones.

        Policies in `learning` (default: all that ever learn) have siblings in a tree. `assignments`
        are the players of a task, by its id, where they differ from [roles]. `first` is the number
        of a task's first episode. `truncation` replaces that of all policies.
        """
        config, env = self.config, env or self.env
        trained = config.trained_policies() if learning is None else learning
        how = (seed, rollout or config.rollout, temperature, trained, self.critics.centralized)
        level = TEST if env is self.test_env else level_of(config, env)
        play = Play(*how, assignments, dict(self.snapshots.sources), level, first, truncation)
        if self._pool is not None:
            return await self._pool.play(play, tasks, deliver)
        player = partial(play.player, self._samplers, env)
        programs = self._programs.play(play.rollout) if self._programs else None
        caller = None
        if config.rollout.max_staleness:  # one call per group
            caller = self._env_callers.of(env, play.rollout.env_timeout)
        return await play_here(play, tasks, config, env, player, deliver, programs, caller)

    async def apply(self, function: Callable[[list[Episode]], T], episodes: list[Episode]) -> T:
        """Call a function that reads episodes, on this machine; in a process of Ray if possible."""
        if self._pool is None:
            return function(episodes)
        return await self._pool.apply(function, episodes)

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
            turns = [turn for some in joint_actions for turn in some if turn.policy == policy]
            await value_turns(self._learners[group.name], policy, turns)
        await asyncio.gather(*(engines.wake() for engines in self._engines.values()))

    async def learn_all(
        self,
        episodes: Sequence[Episode],
        joint_actions: Sequence[Sequence[Turn]],
        step: int,
        num_tokens: int = 0,
    ) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Update policies and critics; return metrics by policy and by critic. `num_tokens`:
        tokens sampled before this step, for schedules by tokens."""
        learners = (partial(self.learn, episodes), partial(self.critics.learn, joint_actions))
        policies, critics = await run_all(
            (learn(step, num_tokens) for learn in learners), self.concurrent
        )
        return policies, critics

    async def learn(
        self, episodes: Sequence[Episode], step: int, num_tokens: int = 0
    ) -> dict[str, dict[str, float]]:
        """Update each policy with its own turns; return metrics by policy."""
        check_versions(episodes, self.versions, self.config.rollout.max_staleness)
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
            if turns := trained_turns(self.config, policy, episodes, self._has_heads):
                learners, version = self._learners[group.name], self.versions[policy]
                measured[policy] = await update_policy(
                    learners, self.config, policy, turns, version, step, num_tokens
                )
        return measured

    async def learn_units(self, policy: str, units: Sequence[Unit], step: int) -> dict[str, float]:
        """Update one policy with replies that need not be sampled by this run."""
        learners = self._learners[self._group(policy).name]
        return dict(await learners.call("train", policy, Units(units), step))

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
        asked = [(group, [p for p in group.trained if p in policies]) for group in self._groups]
        found = await finish_all(self._publish_all(*one) for one in asked if one[1])
        return {policy: gap for some in found for policy, gap in some.items()}

    async def _publish_all(self, group: ModelGroup, policies: Sequence[str]) -> dict[str, float]:
        """Publish policies of one model, one after another."""
        gaps = {}
        for policy in policies:
            self.versions[policy] += 1
            gaps[policy] = await self._publish(policy, group)
        widest = await self._publishers[group.name].check_together()
        return {policy: max(gap, widest) for policy, gap in gaps.items()}

    async def reply_logprobs(
        self, policy: str, choices: Sequence[Choice], temperature: float = 1.0
    ) -> list[list[float]]:
        """Log-probabilities of given replies under a policy with an engine."""
        engines = self._engines[self._group(policy).name]
        score = partial(engines.score_many, policy, temperature=temperature)
        renderer: Any = self._samplers.renderers[policy]  # policies with an engine have a tokenizer
        return await reply_logprobs(score, renderer, choices)

    async def use(self) -> TeamUse:
        """How busy engines and learners are."""
        return await team_use(self._engines, {**self._learners, **self.critics.learners})

    def names(self) -> list[str]:
        """Names of all that learns: policies, and critics that are separate models."""
        return [*self.versions, *self.critics.learners]

    def learners_of(self, name: str) -> Learners:
        """The learners of a policy, or of a critic that is a separate model."""
        return self.critics.learners.get(name) or self._learners[self._group(name).name]

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
        device, _ = find_device(self.config.cluster)
        config = self.config = self.config.for_device(device)
        if device != "cpu":
            check_lora_dtype(config, self._groups)
        self._reserved = reserve(config, self._groups, device, learning, sampling)
        self.concurrent = device != "cpu"
        for group in self._groups:
            model = models[group.name]
            if sampling:
                places = self._reserved.engines[group.name]
                shares = [place.core_share for place in places]
                specs = engine_specs(config, group, model, device, shares)
                self._engines[group.name] = Engines(
                    specs, places, config.cluster.max_restarts, self._notify
                )
            if learning and group.trained:
                spec = learner_spec(config, group, model, device)
                self._learners[group.name] = Learners(spec, self._reserved.learners[group.name])
        if sampling:
            self._pool = make_pool(config, self._groups, self._engines, self._notify, self._router)
        if learning:
            self.critics.start(models, device, self._reserved.learners)

    def _add_samplers(self, models: Mapping[str, Path]) -> None:
        """Create a sampler per policy, and a publisher with a canary per model."""
        for group in self._groups:
            model, engines = models[group.name], self._engines[group.name]
            policies = {name: self.config.policies[name] for name in group.policies}
            renderers = renderers_by_policy(model, policies)
            for renderer, names in renderers:
                self._samplers.add_model(names, engines, renderer, model)
            if group.name in self._learners:
                canary = make_canary(self.env, renderers[0][0], self.config.inference.max_model_len)
                learners = self._learners[group.name]
                self._publishers[group.name] = publisher_of(
                    self.config, group, learners, engines, canary
                )
        self._samplers.add_servers()
