"""Evaluations during training, every `train.eval_every` steps.

In asynchronous training, the next step samples and learns while `PeriodicEvaluation` runs. Its
weights stay in use until it ends: the next ones are published only then, so its results are those
of one version, and belong to the step that trained it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.runs.proposals import held_out_metrics
from pettingllms.training.component import Component, RunContext, TrainStep
from pettingllms.training.evaluate import (
    evaluate_anchors,
    evaluate_team,
    game_tree,
    team_exploitability,
)
from pettingllms.training.judging import JudgeRewards, RunJudges, judges_of_team
from pettingllms.types import Episode


class _Periodic(Component):
    """A component that evaluates after every n-th step."""

    def __init__(self, every: int, judge: JudgeRewards | None = None) -> None:
        self._every = every
        self._judge = judge

    @property
    def _judges(self) -> RunJudges | None:
        return self._judge.judges if self._judge else None

    async def start(self, context: RunContext) -> None:
        self._team = context.team

    async def after_step(self, step: TrainStep) -> None:
        if step.number % self._every == 0:
            await self._evaluate(step)

    async def _evaluate(self, step: TrainStep) -> None:
        raise NotImplementedError


class PeriodicEvaluation(_Periodic):
    """Measures success on tasks of the test split. `beside`: while the next step goes on."""

    name = "evaluation"

    def __init__(self, every: int, judge: JudgeRewards | None, beside: bool) -> None:
        super().__init__(every, judge)
        self._beside = beside
        self._own_judges: RunJudges | None = None
        self._running: asyncio.Task[None] | None = None
        self._pending = 0
        """The step whose evaluation has not ended; 0: none."""

    @property
    def _judges(self) -> RunJudges | None:
        return self._own_judges if self._beside else super()._judges

    async def start(self, context: RunContext) -> None:
        await super().start(context)
        self._notify, self._log = context.notify, context.log
        if self._beside and self._judge is not None:  # those of training judge one batch at a time
            self._own_judges = judges_of_team(self._team)
        if self._pending and self._pending == context.num_steps_done:
            self._begin(self._pending, [])  # it was cut off
            if not self._beside:  # the configuration has changed since
                await self.finish()

    async def before_publish(self, step: TrainStep) -> None:
        if self._running is not None:
            with step.phase("evaluating"):
                await self.finish()

    async def finish(self) -> None:
        if self._running is not None:
            await self._running
            self._running, self._pending = None, 0

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._own_judges is not None:
            await self._own_judges.close()

    def state_dict(self) -> dict[str, Any]:
        return {"pending": self._pending} if self._pending else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pending = state["pending"]

    async def _evaluate(self, step: TrainStep) -> None:
        if self._beside:
            self._begin(step.number, step.episodes)
            return
        with step.phase("evaluating"):
            found = await self._metrics(step.episodes)
        for role, numbers in found["roles"].items():
            step.metrics["roles"][role] |= numbers
        if "proposals" in found:
            step.add_metrics("proposals", found["proposals"])

    def _begin(self, number: int, trained: Sequence[Episode]) -> None:
        async def evaluate() -> None:
            found = await self._metrics(trained)
            self._log(number, found)
            # `Callback.on_step_end` has got the metrics of the step without these.
            shown = (f"{role} {one['eval_success']:.0%}" for role, one in found["roles"].items())
            self._notify(f"evaluation of step {number}: test success {', '.join(shown)}")

        self._pending = number
        self._running = asyncio.create_task(evaluate(), name=f"evaluation of step {number}")

    async def _metrics(self, trained: Sequence[Episode]) -> dict[str, dict[str, Any]]:
        """Metrics by role, and those of held-out tasks if a role proposed tasks in `trained`."""
        evaluated: list[Episode] = []
        versions = dict(self._team.versions)
        scores = await evaluate_team(self._team, judges=self._judges, inspect=evaluated.extend)
        metrics: dict[str, dict[str, float]] = {}
        for role, score in scores.items():
            found = {"eval_success": score.avg.value, "eval_failed": float(score.num_failed)}
            if self._judges is not None and score.reward is not None:
                found["eval_reward"] = score.reward
            metrics[role] = found
            if score.num_failed:
                self._notify(f"evaluation: {score.num_failed} episodes of '{role}' failed")
        if mixed := _policies_with_other_versions(evaluated, versions):
            self._notify(
                f"ALARM evaluation: some replies of {', '.join(mixed)} come from the weights of "
                "the next step, which an engine got when it was restarted; eval_success mixes both"
            )
        held_out = held_out_metrics(evaluated, trained)
        return {"roles": metrics, **({"proposals": held_out} if held_out else {})}


def _policies_with_other_versions(
    episodes: Sequence[Episode], versions: Mapping[str, int]
) -> list[str]:
    """Policies that sampled some tokens with other versions. A learner that streams its weights
    has only its newest ones for an engine that is restarted."""
    turns = (turn for episode in episodes for turn in episode.turns if turn.policy in versions)
    found = {
        turn.policy
        for turn in turns
        if any(run.version != versions[turn.policy] for run in turn.version_runs)
    }
    return sorted(found)


class AnchorEvaluation(_Periodic):
    """Measures success against scripted players, which never change."""

    def __init__(self, every: int, judge: JudgeRewards | None, anchors: Sequence[str]) -> None:
        super().__init__(every, judge)
        self._anchors = anchors

    async def _evaluate(self, step: TrainStep) -> None:
        with step.phase("playing anchors"):
            measured = await evaluate_anchors(self._team, self._anchors, self._judges)
        for policy, numbers in measured.items():
            step.metrics["policies"][policy] |= numbers


class ExploitabilityEvaluation(_Periodic):
    """Measures how far policies are from equilibrium play, in games small enough to enumerate."""

    def __init__(self, every: int, config: RunConfig) -> None:
        super().__init__(every)
        self._tree = game_tree(config)

    async def _evaluate(self, step: TrainStep) -> None:
        with step.phase("measuring"):
            measured = await team_exploitability(self._team, self._tree)
        for policy in step.metrics["policies"].keys() & measured:
            step.metrics["policies"][policy] |= measured[policy]
