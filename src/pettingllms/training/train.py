"""The training loop: sample, judge, value, credit, learn, publish, evaluate, save."""

import asyncio
from collections.abc import Sequence

from pettingllms.algos import make_algorithm_for
from pettingllms.cluster.checks import check_models
from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig
from pettingllms.errors import PausedError
from pettingllms.runs.callbacks import Callback, running_callbacks
from pettingllms.runs.checkpoint import State
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.interrupt import stop_on_interrupt, unless_stopped
from pettingllms.runs.ledger import Ledger
from pettingllms.runs.metrics import episode_metrics, flatten
from pettingllms.runs.summary import alarm, learner_tokens, sandbox_alarm, summarize
from pettingllms.runs.trackers import Tracker, make_trackers
from pettingllms.seeds import derive_seed
from pettingllms.training.component import RunContext, TrainStep
from pettingllms.training.compose import make_components
from pettingllms.training.initial_weights import check_same_policies, initial_weights
from pettingllms.types import Episode, Task

__all__ = ["Trainer", "train"]


def train(config: RunConfig, folder: RunFolder, callback: Callback | None = None) -> None:
    """Train until all steps are done, starting from the newest checkpoint of the folder, if any.

    The first Ctrl-C saves a checkpoint and stops.
    """
    with folder.taken(), running_callbacks(callback, config.log.callbacks) as callbacks:
        check_models(config, folder.path)
        callbacks.on_phase("starting Ray")
        with ray_running(config.cluster):
            asyncio.run(_train(config, folder, callbacks))


async def _train(config: RunConfig, folder: RunFolder, callback: Callback) -> None:
    trainer, stop = Trainer(config, folder, callback), stop_on_interrupt(callback.on_message)
    try:
        await trainer.start()
        while not trainer.is_over:
            step = trainer.begin_step()
            if await unless_stopped(stop, trainer.sample(step)) is None:
                break
            await trainer.judge(step)
            await trainer.value(step)
            trainer.credit(step)
            learned = await trainer.learn(step)
            await trainer.publish(step, learned)
            await trainer.after_step(step)
            trainer.record(step)
            if step.pause:
                await trainer.save()
                raise PausedError(step.pause)
            if stop.is_set():
                break
            if step.number % config.train.save_every == 0 or trainer.is_over:
                await trainer.save()
        if stop.is_set():
            await trainer.save()
            callback.on_message(
                f"stopped after step {trainer.state.step}; `pettingllms resume` continues the run"
            )
    finally:
        await trainer.stop()


class Trainer:
    """The parts of a run, and what the loop does with them in a step."""

    def __init__(self, config: RunConfig, folder: RunFolder, callback: Callback) -> None:
        self._config = config
        self._folder = folder
        self._callback = callback
        self._trackers: list[Tracker] = []
        self._algorithm = make_algorithm_for(config)
        self._components = make_components(config, folder.path)
        self.state = State()
        """State after the last completed step."""

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or the token budget is used up."""
        return self._config.train.is_over(self.state.step, self.state.num_tokens)

    async def start(self) -> None:
        """Start engines and learners, and restore the newest checkpoint, if any."""
        from pettingllms.cluster.team import Team

        self._callback.on_phase("starting engines and learners")
        # Other machines may not reach the run folder.
        load = self._folder.load if self._config.cluster.address else self._folder.open
        found = load(self._callback.on_message)
        self.state, saved = found or (State(), initial_weights(self._config))
        if found is not None:
            check_same_policies(self._config, saved, self._folder.path)
        self._last_saved = self.state.step
        self._folder.rewind(self.state.step)
        self._trackers = make_trackers(self._config, self._folder.path, self._callback.on_message)
        self._team = await Team.start(self._config, self._callback.on_message)
        if self._team.config != self._config:  # a resumed run keeps the dtypes of its device
            self._config = self._team.config
            self._folder.write_config(self._config)
        self._algorithm.load_state(self.state.algorithm)
        tasks = self._team.env.tasks("train")
        varies = self._config.rollout.max_resamples > 0
        num_done = self.state.num_tasks_done
        self._ledger = Ledger(tasks, self._config.seed, num_done, varies=varies)
        await self._team.load(self.state.versions, saved)
        self.state.versions = dict(self._team.versions)
        self.state.weight_hashes = dict(self._team.weight_hashes)
        context = RunContext(self._team, self._ledger, saved, self.state.step)
        for component in self._components:
            if component.name in self.state.components:
                component.load_state_dict(self.state.components[component.name])
            await component.start(context)
        self._callback.on_message(self._team.env.describe_limit(self._config.rollout.on_limit))

    async def stop(self) -> None:
        """Stop all processes and close all files."""
        for tracker in self._trackers:
            tracker.close()
        for component in self._components:
            await component.stop()
        if hasattr(self, "_team"):
            await self._team.stop()

    def begin_step(self) -> TrainStep:
        """Take the tasks of the next step, and choose their players."""
        number, num_done = self.state.step + 1, self._ledger.num_done
        step = TrainStep(
            number,
            seed=derive_seed(self._config.seed, "step", number),
            tasks=self._ledger.take(self._config.rollout.num_tasks),
            num_tasks_done=num_done,
            learning=self._config.learning(number),
            last_saved=self._last_saved,
            last_good=self.state.good,
            callback=self._callback,
        )
        self._algorithm.policies = step.learning
        for component in self._components:
            component.before_step(step)
        return step

    async def sample(self, step: TrainStep) -> list[Episode]:
        """Sample the episodes of the step, again for tasks that teach nothing if asked to."""
        num_wanted = len(step.tasks)
        with step.phase("sampling"):
            await self._play(step, step.tasks)
            for _ in range(self._config.rollout.max_resamples):
                num_useful = len(step.tasks) - len(self._algorithm.flat_tasks(step.episodes))
                num_missing = 0 if self._is_spent(step) else num_wanted - num_useful
                tasks = self._more_tasks(step, num_missing)
                if not tasks:
                    break
                await self._play(step, tasks)
        return step.episodes

    async def _play(self, step: TrainStep, tasks: Sequence[Task]) -> None:
        """Sample episodes of some tasks of the step."""
        num_before = len(step.episodes)
        total = num_before + len(tasks) * self._config.rollout.num_episodes
        step.episodes += await self._team.play(
            tasks,
            step.seed,
            deliver=lambda done: self._callback.on_progress(num_before + done, total),
            learning=step.learning,
            assignments=step.assignments,
        )

    def _more_tasks(self, step: TrainStep, count: int) -> list[Task]:
        """Add tasks to the step, and choose their players; those of earlier tasks stay."""
        tasks, chosen = self._ledger.take_more(count), step.assignments
        step.tasks += tasks
        for component in self._components:
            component.before_step(step)
        step.assignments = {**step.assignments, **chosen}
        return tasks

    def _is_spent(self, step: TrainStep) -> bool:
        """Whether the step's tokens use up the budget."""
        num_tokens = self.state.num_tokens + learner_tokens(step.episodes, self._config)
        return self._config.train.is_over(self.state.step, num_tokens)

    async def judge(self, step: TrainStep) -> None:
        """Let components write rewards that need the whole batch, such as those of a judge."""
        for component in self._components:
            await component.score_episodes(step)

    async def value(self, step: TrainStep) -> None:
        """Let critics write values on turns, for algorithms that need them."""
        if "values" in self._algorithm.needs:
            with step.phase("valuing"):
                await self._team.value(self._algorithm.joint_actions(step.episodes))

    def credit(self, step: TrainStep) -> None:
        """Write advantages on turns, and compute the metrics of the episodes."""
        groups = self._algorithm.assign(step.episodes)
        summary = summarize(step.episodes, self._config)
        step.metrics.update(episode_metrics(step.episodes, self._config, summary))
        step.metrics["rollout"]["num_groups"] = float(len(groups))
        if self._config.rollout.max_resamples:
            useful = {e.task.id for e in step.episodes if any(t.credit.advantage for t in e.turns)}
            counts = {"num_tasks": len(step.tasks), "flat_tasks": len(step.tasks) - len(useful)}
            step.metrics["rollout"] |= {name: float(count) for name, count in counts.items()}
        problem = alarm(summary, self._config)
        for text in (sandbox_alarm(summary), problem):
            if text is not None:
                self._callback.on_message(f"ALARM {text}")
        turns = (turn for episode in step.episodes for turn in episode.turns)
        if problem is None and all(not turn.credit.advantage for turn in turns):
            self._callback.on_message("all compared rewards are equal: nothing to learn from")

    async def learn(self, step: TrainStep) -> list[str]:
        """Update policies and critics; return the names of the policies that learned."""
        with step.phase("learning"):
            policies, critics = await self._team.learn_all(
                step.episodes,
                self._algorithm.joint_actions(step.episodes),
                step.number,
                self.state.num_tokens,
            )
        if critics:
            step.metrics["critics"] = critics
        for critic, numbers in critics.items():
            if skipped := numbers["skipped_updates"]:
                self._callback.on_message(f"'{critic}' skipped {skipped:g} non-finite updates")
        for policy, numbers in policies.items():
            if skipped := numbers["skipped_updates"]:
                items = await self._team.skipped(policy)
                path = self._folder.keep_skipped(step.number, policy, items)
                self._callback.on_message(
                    f"'{policy}' skipped {skipped:g} non-finite updates; their replies are in "
                    f"{path}"
                )
            rate = numbers["tokens"] / numbers.pop("seconds")
            step.metrics["policies"][policy] |= {**numbers, "tokens_per_second": rate}
        return list(policies)

    async def publish(self, step: TrainStep, policies: list[str]) -> None:
        """Send new weights to the samplers."""
        with step.phase("publishing"):
            mismatches = await self._team.publish(policies)
        for policy, mismatch in mismatches.items():
            step.metrics["policies"][policy]["canary_difference"] = mismatch
        for policy, version in self._team.versions.items():
            step.metrics["policies"][policy]["version"] = float(version)

    async def after_step(self, step: TrainStep) -> None:
        """Let components evaluate, take snapshots, or change what the next step trains on."""
        for component in self._components:
            await component.after_step(step)

    def record(self, step: TrainStep) -> None:
        """Complete the step: update the state, and write metrics and episodes."""
        self._ledger.done()
        states = {component.name: component.state_dict() for component in self._components}
        self.state = State(
            step=step.number,
            num_tasks_done=self._ledger.num_done,
            versions=dict(self._team.versions),
            weight_hashes=dict(self._team.weight_hashes),
            algorithm=self._algorithm.state(),
            components={name: state for name, state in states.items() if state},
            num_tokens=self.state.num_tokens + learner_tokens(step.episodes, self._config),
            good=step.last_good,
        )
        rollout, seconds = step.metrics["rollout"], step.seconds
        rollout["tokens_per_second"] = rollout["tokens"] / max(1e-9, seconds["sampling"])
        rollout["total_tokens"] = float(self.state.num_tokens)
        step.metrics["time"] = {**seconds, "step": sum(seconds.values())}
        if self._config.log.episodes:
            self._folder.write_episodes(step.number, step.episodes)
        for tracker in self._trackers:
            tracker.log(step.number, flatten({**step.metrics}))
        self._callback.on_step_end(step.number, step.metrics)

    async def save(self) -> None:
        """Write a checkpoint of the completed steps; a step in progress is repeated on resume."""
        self._callback.on_phase("saving")
        writer = self._folder.checkpoint(self.state)
        if writer is None:
            return
        for name in self._team.names():
            writer.add(name, await self._team.saved(name, writer.folder(name)))
        for name in self._team.snapshots.sources:
            if not writer.carry(name):
                writer.add(name, await self._team.snapshots.files(name))
        writer.finish(self._config.train.keep_checkpoints)
        self._last_saved = self.state.step
