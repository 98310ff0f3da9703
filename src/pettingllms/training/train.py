"""The loop: sample, credit, learn, publish, evaluate, save."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pettingllms.algos import make_algorithm_for
from pettingllms.cluster.checks import check_models
from pettingllms.cluster.judges import Played
from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig
from pettingllms.errors import PausedError
from pettingllms.judges import Verdicts
from pettingllms.league import (
    Snapshot,
    make_co_players,
    make_league,
    mean_reward,
    rotations,
)
from pettingllms.policies.files import Saved
from pettingllms.runs.callbacks import Callback, running_callbacks
from pettingllms.runs.checkpoint import State
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.interrupt import stop_on_interrupt, unless
from pettingllms.runs.ledger import Ledger
from pettingllms.runs.metrics import Metrics, episode_metrics, flatten
from pettingllms.runs.summary import alarm, learner_tokens, sandbox_alarm, summarize
from pettingllms.runs.trackers import Tracker, make_trackers
from pettingllms.seeds import derive_seed
from pettingllms.training.collapse import Guards, what_to_do
from pettingllms.training.curriculum import Curriculum, success_share
from pettingllms.training.evaluate import (
    check_same_policies,
    evaluate_anchors,
    evaluate_co_players,
    evaluate_team,
    start_weights,
    team_exploitability,
    written_out,
)
from pettingllms.types import Episode

__all__ = ["Run", "train"]


def train(config: RunConfig, folder: RunFolder, callback: Callback | None = None) -> None:
    """Train until the steps are done, from where the folder was left; Ctrl-C saves and stops."""
    with folder.taken(), running_callbacks(callback, config.log.callbacks) as callbacks:
        check_models(config, folder.path)
        callbacks.on_phase("starting Ray")
        with ray_running(config.cluster):
            asyncio.run(_train(config, folder, callbacks))


async def _train(config: RunConfig, folder: RunFolder, callback: Callback) -> None:
    run, stop = Run(config, folder, callback), stop_on_interrupt(callback.on_message)
    try:
        await run.start()
        while not run.is_over:
            run.begin(run.state.step + 1)
            episodes = await unless(stop, run.sample())
            if episodes is None:
                break
            await run.judge(episodes)
            await run.value(episodes)
            run.credit(episodes)
            learnt = await run.learn(episodes)
            await run.publish(learnt)
            await run.enrol(episodes)
            await run.evaluate()
            run.record(episodes)
            if stop.is_set() or run.collapse:
                break
            if run.state.step % config.train.save_every == 0 or run.is_over:
                await run.save()
        if stop.is_set():
            await run.save()
            callback.on_message(
                f"stopped after step {run.state.step}; `pettingllms resume` goes on"
            )
        if run.collapse:
            await run.save()
            raise PausedError(run.collapse)
    finally:
        await run.stop()


class Run:
    """What the loop's verbs work on."""

    def __init__(self, config: RunConfig, folder: RunFolder, callback: Callback) -> None:
        self._config = config
        self._folder = folder
        self._callback = callback
        self._trackers: list[Tracker] = []
        self._algorithm = make_algorithm_for(config)
        self._tree = written_out(config) if config.train.eval_every else None
        self.state = State()
        """All that is done."""
        self.collapse = ""
        """What the guards saw that pauses the run."""

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or all tokens used."""
        return self._config.train.is_over(self.state.step, self.state.num_tokens)

    async def start(self) -> None:
        """Start every process and take up the newest checkpoint, if there is one."""
        from pettingllms.cluster.team import Team

        self._callback.on_phase("starting engines and learners")
        found = self._folder.load(self._callback.on_message)
        self.state, saved = found or (State(), start_weights(self._config))
        if found is not None:
            check_same_policies(self._config, saved, self._folder.path)
        self._saved = self.state.step
        self._folder.rewind(self.state.step)
        self._trackers = make_trackers(self._config, self._folder.path, self._callback.on_message)
        self._team = await Team.start(self._config, self._callback.on_message)
        self._algorithm.load_state(self.state.algorithm)
        self._guards = Guards(self._config, self.state.guard)
        self._curriculum = Curriculum(
            self._config.curriculum, self.state.level, tuple(self.state.recent)
        )
        self._team.enter(self.state.level)
        self._callback.on_message(self._team.env.describe_limit(self._config.rollout.on_limit))
        tasks = self._team.env.tasks("train")
        self._ledger = Ledger(tasks, self._config.seed, self.state.num_tasks_done)
        await self._team.load(self.state.versions, saved)
        self.state.versions, self.state.weight_hashes = (
            dict(self._team.versions),
            dict(self._team.weight_hashes),
        )
        await self._meet(saved)

    async def _meet(self, saved: Saved) -> None:
        """Make the league, or take it up, with every snapshot at its table."""
        self._league = make_league(self._config, self.state.league)
        self._co_players = make_co_players(self._config, self.state.co_players)
        for snapshot in self._snapshots:
            name, policy, version = snapshot.name, snapshot.policy, snapshot.version
            await self._team.snapshots.load(
                name, policy, version, snapshot.weight_hash, saved.get(name)
            )
        if self._snapshots:
            await self._team.check_together()
        if not self.state.step:
            await self._take_snapshots(0)

    async def stop(self) -> None:
        """End every process and close every file."""
        for tracker in self._trackers:
            tracker.close()
        if hasattr(self, "_team"):
            await self._team.stop()

    def begin(self, step: int) -> None:
        """Take the tasks of a step, and say who learns in it."""
        self._step = step
        self._learning = self._config.learning(step)
        self._algorithm.policies = self._learning
        self._tasks = self._ledger.take(self._config.rollout.num_tasks)
        self._assignments = self._league.assignments(step, self._tasks)
        if self._config.co_players.is_on:
            self._assignments = self._co_players.assignments(step, self._tasks)
        if self._config.rollout.rotate_roles and not self._config.league.is_on:
            done = self._ledger.num_done
            self._assignments = rotations(self._config.roles, self._tasks, done)
        self._seconds: dict[str, float] = {}

    async def sample(self) -> list[Episode]:
        """Play the tasks."""
        total = len(self._tasks) * self._config.rollout.num_episodes
        with self._phase("sampling"):
            return await self._team.play(
                self._tasks,
                derive_seed(self._config.seed, "step", self._step),
                deliver=lambda done: self._callback.on_progress(done, total),
                learning=self._learning,
                assignments=self._assignments,
            )

    async def judge(self, episodes: list[Episode]) -> None:
        """Let a judge pay for what plays came to, now that all of them are there."""
        self._verdicts = Verdicts()
        if self._config.judge.is_on:
            seed = derive_seed(self._config.seed, "step", self._step)
            with self._phase("judging"):
                self._verdicts = await self._team.judge(
                    episodes, Played(self._tasks, seed, self._assignments)
                )
        for wrong in self._verdicts.alarms:
            self._callback.on_message(f"ALARM {wrong}")

    async def value(self, episodes: list[Episode]) -> None:
        """Let critics say what they expected, for algorithms that ask."""
        if "values" in self._algorithm.needs:
            with self._phase("valuing"):
                await self._team.value(self._algorithm.joint_actions(episodes))

    def credit(self, episodes: list[Episode]) -> None:
        """Write advantages on turns, and measure."""
        groups = self._algorithm.assign(episodes)
        summary = summarize(episodes, self._config)
        self._metrics: Metrics = episode_metrics(episodes, self._config, summary)
        self._metrics["rollout"]["num_groups"] = float(len(groups))
        if self._verdicts.metrics:
            self._metrics["judge"] = self._verdicts.metrics
        probing = sandbox_alarm(summary)
        if probing is not None:
            self._callback.on_message(f"ALARM {probing}")
        wrong = alarm(summary, self._config)
        if wrong is not None:
            self._callback.on_message(f"ALARM {wrong}")
        elif all(not turn.credit.advantage for episode in episodes for turn in episode.turns):
            self._callback.on_message(
                "all rewards that were compared are alike: nothing to learn from"
            )

    async def learn(self, episodes: list[Episode]) -> list[str]:
        """Let policies learn; the names of those that did."""
        with self._phase("learning"):
            measured, critics = await self._team.learn_all(
                episodes, self._algorithm.joint_actions(episodes), self._step, self.state.num_tokens
            )
        if critics:
            self._metrics["critics"] = critics
        for critic, numbers in critics.items():
            if skipped := numbers["skipped_updates"]:
                self._callback.on_message(
                    f"'{critic}' skipped {skipped:g} updates that were not finite"
                )
        for policy, numbers in measured.items():
            if numbers["skipped_updates"]:
                kept = self._folder.keep_skipped(
                    self._step, policy, await self._team.skipped(policy)
                )
                self._callback.on_message(
                    f"'{policy}' skipped {numbers['skipped_updates']:g} updates that were not "
                    f"finite; their replies are in {kept}"
                )
            rate = numbers["tokens"] / numbers.pop("seconds")
            self._metrics["policies"][policy] |= {**numbers, "tokens_per_second": rate}
        return list(measured)

    async def publish(self, policies: list[str]) -> None:
        """Give samplers the new weights."""
        with self._phase("publishing"):
            mismatches = await self._team.publish(policies)
        for policy, mismatch in mismatches.items():
            self._metrics["policies"][policy]["canary_difference"] = mismatch
        for policy, version in self._team.versions.items():
            self._metrics["policies"][policy]["version"] = float(version)

    async def enrol(self, episodes: list[Episode]) -> None:
        """Let league and co_players know how plays ended, and take snapshots when it is time."""
        reward = self._config.reward
        if self._config.co_players.is_on:
            paid = mean_reward(episodes, self._co_players.learners, reward)
            await self._take_snapshots(self._step)
            self._metrics["co_players"] = self._co_players.record(self._step, paid)
            if "switched" in self._metrics["co_players"]:
                self._callback.on_message(
                    f"co_players changes after step {self._step}: phase "
                    f"{self._co_players.phase + 1}"
                )
        if not self._config.league.is_on:
            return
        scores = self._league.record(self._tasks, self._assignments, episodes, reward)
        await self._take_snapshots(self._step)
        self._metrics["league"] = {**scores, **self._league.metrics()}

    async def _take_snapshots(self, step: int) -> None:
        for policy in self._league.members if self._league.is_due(step) else ():
            for gone in self._league.enrol(await self._snapshot(policy, step)):
                await self._team.snapshots.drop(gone.name)
        for policy in self._co_players.due(step):
            self._co_players.pool.append(await self._snapshot(policy, step))

    async def _snapshot(self, policy: str, step: int) -> Snapshot:
        """Freeze a policy as it is now, at the table."""
        version = self._team.versions[policy]
        name = Snapshot(policy, step, version).name
        weight_hash = await self._team.snapshots.take(name, policy, version)
        return Snapshot(policy, step, version, weight_hash)

    @property
    def _snapshots(self) -> list[Snapshot]:
        return [*self._league.pool, *self._co_players.pool]

    async def evaluate(self) -> None:
        """Measure success on tasks that are never trained on, every so often."""
        every = self._config.train.eval_every
        if not every or self._step % every:
            return
        with self._phase("evaluating"):
            scores = await evaluate_team(self._team)
        for role, score in scores.items():
            found = {"eval_success": score.avg.value, "eval_failed": float(score.num_failed)}
            if self._config.judge.is_on and score.reward is not None:
                found["eval_reward"] = score.reward
            self._metrics["roles"][role] |= found
            if score.num_failed:
                self._callback.on_message(
                    f"evaluation: {score.num_failed} plays of '{role}' failed"
                )
        if self._config.guard.anchors:
            with self._phase("playing anchors"):
                measured = await evaluate_anchors(self._team)
            for policy, numbers in measured.items():
                self._metrics["policies"][policy] |= numbers
        if self._config.co_players.is_on:
            with self._phase("playing earlier co_players"):
                rewards = await evaluate_co_players(self._team, self._co_players)
            self._metrics["co_players"] |= self._co_players.compare(rewards)
        if self._tree is None:
            return
        with self._phase("measuring"):
            exploitability = await team_exploitability(self._team, self._tree)
        for policy in self._metrics["policies"].keys() & exploitability:
            self._metrics["policies"][policy] |= exploitability[policy]

    def record(self, episodes: list[Episode]) -> None:
        """The step is done: write what it came to."""
        self._ledger.done()
        self._move(episodes)
        signs = self._guards.see(self._metrics)
        self.state = State(
            step=self._step,
            num_tasks_done=self._ledger.num_done,
            versions=dict(self._team.versions),
            weight_hashes=dict(self._team.weight_hashes),
            algorithm=self._algorithm.state(),
            level=self._curriculum.level,
            recent=list(self._curriculum.recent),
            league=self._league.to_json() if self._config.league.is_on else {},
            co_players=self._co_players.to_json() if self._config.co_players.is_on else {},
            num_tokens=self.state.num_tokens + learner_tokens(episodes, self._config),
            guard=self._guards.state(),
            good=self._saved if self._guards.is_well and not signs else self.state.good,
        )
        if signs:
            self._alarm(self._guards.describe(signs, episodes))
        rate = self._metrics["rollout"]["tokens"] / max(1e-9, self._seconds["sampling"])
        self._metrics["rollout"]["tokens_per_second"] = rate
        self._metrics["rollout"]["total_tokens"] = float(self.state.num_tokens)
        self._metrics["time"] = {**self._seconds, "step": sum(self._seconds.values())}
        if self._config.log.episodes:
            self._folder.write_episodes(self._step, episodes)
        for tracker in self._trackers:
            tracker.log(self._step, flatten({**self._metrics}))
        self._callback.on_step_end(self._step, self._metrics)

    def _alarm(self, saw: str) -> None:
        """A policy has collapsed: pause the run, or say so, as configured."""
        if self._config.guard.action == "warn":
            self._callback.on_message(f"ALARM after step {self._step}:\n{saw}")
            return
        ways_on = what_to_do(str(self._folder.path), self.state.good)
        self.collapse = f"after step {self._step}, a policy has collapsed\n{saw}\n{ways_on}"

    def _move(self, episodes: list[Episode]) -> None:
        """Let the curriculum follow how the step's episodes ended."""
        options = self._config.curriculum
        if not options.key:
            return
        roles = [options.role] if options.role else list(self._config.roles)
        now = self._curriculum.with_step(success_share(episodes, roles))
        self._metrics["curriculum"] = {"level": float(now.level), "success": now.success}
        self._curriculum = now.moved()
        if self._curriculum.level != now.level:
            self._team.enter(self._curriculum.level)
            self._ledger.change(self._team.env.tasks("train"))
            self._callback.on_message(
                f"curriculum: {now.success:.0%} succeeded at level {now.level}; after step "
                f"{self._step} it is level {self._curriculum.level}, {self._team.env.id}"
            )

    async def save(self) -> None:
        """Write a checkpoint of what is done; what is under way will be done again."""
        with self._phase("saving"):
            writer = self._folder.checkpoint(self.state)
            if writer is None:
                return
            for name in self._team.names():
                writer.add(name, await self._team.saved(name))
            for snapshot in self._snapshots:
                if not writer.carry(snapshot.name):
                    writer.add(snapshot.name, await self._team.snapshots.files(snapshot.name))
            writer.finish(self._config.train.keep_checkpoints)
            self._saved = self.state.step

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._callback.on_phase(name)
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start
