"""The training loop: sample, judge, value, credit, learn, publish, evaluate, save."""

import asyncio
import errno
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from pettingllms.algos import make_algorithm_for
from pettingllms.cluster.checks import check_models
from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig
from pettingllms.errors import (
    CheckpointError,
    ClusterError,
    ConfigError,
    PausedError,
    StateLostError,
)
from pettingllms.policies.files import Saved
from pettingllms.runs.callbacks import Callback, running_callbacks
from pettingllms.runs.checkpoint import State
from pettingllms.runs.episode_summary import summarize_with
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.interrupt import stop_on_interrupt, unless_stopped
from pettingllms.runs.ledger import Ledger
from pettingllms.runs.metrics import episode_metrics, flatten
from pettingllms.runs.summary import alarm, learner_tokens, sandbox_alarm, summarize
from pettingllms.runs.task_queue import TaskQueue
from pettingllms.runs.trackers import Tracker, make_trackers
from pettingllms.seeds import derive_seed
from pettingllms.training.async_sampling import AsynchronousSampling
from pettingllms.training.component import RunContext, TrainStep
from pettingllms.training.compose import make_components
from pettingllms.training.idle import IdleTime
from pettingllms.training.initial_weights import check_same_policies, initial_weights
from pettingllms.training.judging import check_judges
from pettingllms.training.restarts import Restarts
from pettingllms.training.sampling import Sampling, SamplingParts, SynchronousSampling
from pettingllms.training.saving import Saver
from pettingllms.types import Episode

__all__ = ["Trainer", "train"]


def train(config: RunConfig, folder: RunFolder, callback: Callback | None = None) -> None:
    """Train until all steps are done, starting from the newest checkpoint of the folder, if any.

    The first Ctrl-C saves a checkpoint and stops.
    """
    with folder.taken(), running_callbacks(callback, config.log.callbacks) as callbacks:
        check_models(config, folder.path)
        check_judges(config)
        callbacks.on_phase("starting Ray")
        with ray_running(config.cluster), resumable(folder):
            from pettingllms.cluster.watched_run import run_watched

            run_watched(_train(config, folder, callbacks), config.cluster, callbacks.on_message)


@contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """Add to an error of the cluster or of the disk how to continue the run."""
    again = f"once this is fixed, continue with `pettingllms resume {folder.path}`"
    try:
        yield
    except ClusterError as error:
        raise ClusterError(f"{error}\n{again}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{error}\n{again}") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CheckpointError(
            f"cannot write to {error.filename or folder.path}: {error.strerror}; free space, lower "
            f"train.keep_checkpoints, or move the run to another disk\n{again}"
        ) from error


async def _train(config: RunConfig, folder: RunFolder, callback: Callback) -> None:
    trainer, stop = Trainer(config, folder, callback), stop_on_interrupt(callback.on_message)
    try:
        await trainer.start()
        lost: StateLostError | None = None
        while True:
            try:
                if lost is not None:
                    await trainer.recover(lost)
                await _take_steps(trainer, stop, config.train.save_every)
                break
            except StateLostError as error:
                lost = error
        if stop.is_set():
            callback.on_message(
                f"stopped after step {trainer.state.step}; `pettingllms resume` continues the run"
            )
    finally:
        await trainer.stop()


async def _take_steps(trainer: "Trainer", stop: asyncio.Event, save_every: int) -> None:
    """Train until the run is over or stopped, and save."""
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
        await trainer.record(step)
        if step.pause:
            await trainer.save()
            await trainer.finish_saving()
            raise PausedError(step.pause)
        if stop.is_set():
            break
        if step.number % save_every == 0 or trainer.is_over:
            await trainer.save()
    if stop.is_set():
        await trainer.save()
    else:
        await trainer.finish()
    await trainer.finish_saving()


class Trainer:
    """The parts of a run, and what the loop does with them in a step."""

    def __init__(self, config: RunConfig, folder: RunFolder, callback: Callback) -> None:
        self._config = config
        self._folder = folder
        self._callback = callback
        self._trackers: list[Tracker] = []
        self._algorithm = make_algorithm_for(config)
        self._components = make_components(config, folder.path)
        self._saver = Saver(config, folder, callback.on_message)
        self._restarts = Restarts(config.cluster.max_restarts)
        self._recording = 0.0
        """Seconds that writing the last step took, counted in the next."""
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
        saved = self._go_to_checkpoint()
        self._team = await Team.start(self._config, self._callback.on_message)
        if self._team.config != self._config:  # a resumed run keeps the dtypes of its device
            self._config = self._team.config
            self._folder.write_config(self._config)
        await self._restore(saved, self.state.versions)
        self._callback.on_message(self._team.env.describe_limit(self._config.rollout.on_limit))

    def _go_to_checkpoint(self) -> Saved:
        """Go to the newest checkpoint, or to the beginning if there is none; its weights."""
        found = self._folder.open(self._callback.on_message)
        self.state, saved = found or (State(), initial_weights(self._config))
        if found is not None:
            check_same_policies(self._config, saved, self._folder.path)
        self._last_saved = self.state.step
        self._folder.rewind(self.state.step)
        self._trackers = make_trackers(self._config, self._folder.path, self._callback.on_message)
        return saved

    async def _restore(self, saved: Saved, versions: Mapping[str, int]) -> None:
        """Give all processes and components the state of the checkpoint."""
        self._algorithm.load_state(self.state.algorithm)
        await self._team.load(versions, saved)
        await self._saver.start(self._team, self._team.names())
        self.state.versions = dict(self._team.versions)
        self.state.weight_hashes = dict(self._team.weight_hashes)
        ledger, self._sampling = self._make_sampling()
        self._idle = IdleTime(self._team)
        await self._idle.measure()  # the first step begins now
        notify, log = self._callback.on_message, self._log
        context = RunContext(self._team, ledger, saved, self.state.step, notify, log)
        for component in self._components:
            if component.name in self.state.components:
                component.load_state_dict(self.state.components[component.name])
            await component.start(context)

    async def recover(self, lost: StateLostError) -> None:
        """Restart lost learners, and go back to the newest checkpoint in this process."""
        start, step = time.monotonic(), self.state.step
        await self._stop_step()
        await self._team.stop_lost_learners()
        await self._saver.settle()
        saved = self._go_to_checkpoint()
        self._restarts.add(lost, self.state.step)
        # Without a checkpoint, learners that are alive cannot go back either.
        await self._team.restart_learners(everyone=not self.state.step)
        for name in list(self._team.snapshots.sources):
            await self._team.snapshots.drop(name)
        self._algorithm = make_algorithm_for(self._config)
        self._components = make_components(self._config, self._folder.path)
        # New versions, so that none ever names two different weights.
        await self._restore(saved, {name: v + 1 for name, v in self._team.versions.items()})
        seconds = time.monotonic() - start
        self._callback.on_message(self._restarts.describe(lost, step, self.state.step, seconds))

    def _make_sampling(self) -> tuple[Ledger, Sampling]:
        """The order of tasks, and what samples them."""
        config, state = self._config, self.state
        parts = SamplingParts(config, self._team, self._algorithm, self._components)
        tasks = self._team.env.tasks("train")
        if not tasks:
            what = f"'{config.env.id}' has no training tasks; set env.data to a training set"
            raise ConfigError("[env]", [what])
        varies = config.rollout.max_resamples > 0
        ledger = Ledger(tasks, config.seed, state.num_tasks_done, varies=varies)
        if not config.rollout.max_staleness:
            return ledger, SynchronousSampling(parts, ledger)
        queue = TaskQueue(tasks, config.seed, state.num_tasks_done, state.open_tasks)
        return ledger, AsynchronousSampling(parts, queue)

    async def stop(self) -> None:
        """Stop all processes and close all files."""
        await self._stop_step()
        await self._saver.stop()
        if hasattr(self, "_team"):
            await self._team.stop()

    async def _stop_step(self) -> None:
        """Stop what samples and measures, and close all files."""
        if hasattr(self, "_sampling"):
            await self._sampling.stop()
        for component in self._components:
            await component.stop()
        for tracker in self._trackers:  # components may log until they stop
            tracker.close()

    def begin_step(self) -> TrainStep:
        """Take the tasks of the next step, and choose their players. Raise CheckpointError if a
        save in the background has failed."""
        self._saver.check()
        number = self.state.step + 1
        step = TrainStep(
            number,
            seed=derive_seed(self._config.seed, "step", number),
            num_tasks_done=self.state.num_tasks_done,
            num_tokens=self.state.num_tokens,
            learning=self._config.learning(number),
            last_saved=self._last_saved,
            last_good=self.state.good,
            callback=self._callback,
        )
        self._algorithm.policies = step.learning
        self._sampling.begin(step)
        return step

    async def sample(self, step: TrainStep) -> list[Episode]:
        """Get the episodes of the step."""
        with step.phase("sampling"):
            await self._sampling.sample(step)
        return step.episodes

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
        with step.timed("crediting"):
            self._credit(step)

    def _credit(self, step: TrainStep) -> None:
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
                step.num_tokens,
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
        for component in self._components:
            await component.before_publish(step)
        with step.phase("publishing"):
            mismatches = await self._team.publish(policies)
        self._sampling.published(step)
        for policy, mismatch in mismatches.items():
            step.metrics["policies"][policy]["canary_difference"] = mismatch
        for policy, version in self._team.versions.items():
            step.metrics["policies"][policy]["version"] = float(version)

    async def after_step(self, step: TrainStep) -> None:
        """Let components evaluate, take snapshots, or change what the next step trains on."""
        for component in self._components:
            await component.after_step(step)

    async def record(self, step: TrainStep) -> None:
        """Complete the step: update the state, and write metrics and episodes."""
        states = {component.name: component.state_dict() for component in self._components}
        self.state = State(
            step=step.number,
            versions=dict(self._team.versions),
            weight_hashes=dict(self._team.weight_hashes),
            algorithm=self._algorithm.state(),
            components={name: state for name, state in states.items() if state},
            num_tokens=step.num_tokens
            + learner_tokens(step.episodes, self._config)
            + step.dropped_tokens,
            good=step.last_good,
        )
        self._sampling.record(self.state)
        rollout, seconds = step.metrics["rollout"], step.seconds
        rollout["total_tokens"] = float(self.state.num_tokens)
        seconds["saving"] = self._saver.take_seconds()
        step.add_metrics("idle", await self._idle.measure())
        seconds["recording"], start = self._recording, time.perf_counter()
        whole = sum(seconds.values())
        step.metrics["time"] = {**seconds, "step": whole}
        # In asynchronous training, engines sample throughout the step.
        sampling = whole if self._config.rollout.max_staleness else seconds["sampling"]
        rollout["tokens_per_second"] = rollout["tokens"] / max(1e-9, sampling)
        if self._config.log.episodes:
            summarizer = summarize_with(self._config.reward)
            write = partial(self._folder.write_episodes, step.number, summarize=summarizer)
            await self._team.apply(write, step.episodes)
        self._log(step.number, step.metrics)
        self._recording = time.perf_counter() - start
        self._callback.on_step_end(step.number, step.metrics)

    async def finish(self) -> None:
        """Let components finish what runs beside training."""
        for component in self._components:
            await component.finish()

    def _log(self, step: int, metrics: Mapping[str, Any]) -> None:
        for tracker in self._trackers:
            tracker.log(step, flatten(metrics))

    async def save(self) -> None:
        """Begin a checkpoint of the completed steps; a step in progress is repeated on resume."""
        self._callback.on_phase("saving")
        await self._saver.save(self._team, self._team.names(), self.state)
        self._last_saved = self.state.step

    async def finish_saving(self) -> None:
        """Wait until the last checkpoint is complete; raise CheckpointError if it failed."""
        await self._saver.finish()
