"""Evaluations during training, every `train.eval_every` steps."""

from collections.abc import Sequence

from pettingllms.config import RunConfig
from pettingllms.training.component import Component, RunContext, TrainStep
from pettingllms.training.evaluate import (
    evaluate_anchors,
    evaluate_team,
    game_tree,
    team_exploitability,
)
from pettingllms.training.judging import JudgeRewards, RunJudges


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
    """Measures success on tasks of the test split."""

    async def _evaluate(self, step: TrainStep) -> None:
        with step.phase("evaluating"):
            scores = await evaluate_team(self._team, judges=self._judges)
        for role, score in scores.items():
            found = {"eval_success": score.avg.value, "eval_failed": float(score.num_failed)}
            if self._judges is not None and score.reward is not None:
                found["eval_reward"] = score.reward
            step.metrics["roles"][role] |= found
            if score.num_failed:
                step.callback.on_message(
                    f"evaluation: {score.num_failed} episodes of '{role}' failed"
                )


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
