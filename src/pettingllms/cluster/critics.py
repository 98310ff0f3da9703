"""Critics that are separate models: they give values before credit assignment and learn after."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.cluster.learners import Learners, run_all
from pettingllms.cluster.placement import critic_spec
from pettingllms.cluster.reservation import Place
from pettingllms.config import RunConfig
from pettingllms.errors import ModelError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.learners.deferred import critic_batch
from pettingllms.models import find_model
from pettingllms.policies import CriticPlan, ModelGroup, plan_critics
from pettingllms.policies.files import Saved
from pettingllms.types import Turn

JointActions = Sequence[Sequence[Turn]]


class Critics:
    """One per policy, or one for all policies, or none if values come from value heads."""

    def __init__(self, config: RunConfig) -> None:
        self.plans = plan_critics(config)
        self.learners: dict[str, Learners] = {}
        self._config = config
        self._concurrent = False

    @property
    def centralized(self) -> bool:
        """Whether any critic reads the centralized observation."""
        return any(plan.centralized for plan in self.plans)

    def start(
        self, models: Mapping[str, Path], device: str, places: Mapping[str, Sequence[Place]]
    ) -> None:
        """Start their processes. Critics with separate GPUs work concurrently."""
        self._concurrent = device != "cpu"
        for plan in self.plans:
            spec = critic_spec(self._config, plan, models[plan.name], device)
            self.learners[plan.name] = Learners(spec, places[plan.name])

    async def value(self, joint_actions: JointActions) -> None:
        """Write values on every turn."""
        shares = self._shares(joint_actions)
        results = await run_all((self._ask("values", *share) for share in shares), self._concurrent)
        for (_, own), found in zip(shares, results, strict=True):
            turns = [turn for joint_action in own for turn in joint_action]
            for turn, (values, mixed) in zip(turns, found, strict=True):
                turn.credit.values, turn.credit.counterfactual_value = values, mixed

    async def learn(
        self, joint_actions: JointActions, step: int, num_tokens: int = 0
    ) -> dict[str, dict[str, float]]:
        """Train on turns that have returns; the metrics of each critic, by name."""
        credited = [
            joint_action
            for joint_action in joint_actions
            if all(turn.credit.returns is not None for turn in joint_action)
        ]
        shares = self._shares(credited)
        asked = (self._ask("train", *share, step, num_tokens) for share in shares)
        results = await run_all(asked, self._concurrent)
        return {plan.name: found for (plan, _), found in zip(shares, results, strict=True)}

    async def load(self, saved: Saved) -> None:
        """Load saved critics."""
        for plan in self.plans:
            if plan.name in saved:
                await self.learners[plan.name].load(plan.name, saved[plan.name])

    def find_models(
        self, groups: Sequence[ModelGroup], models: Mapping[str, Path]
    ) -> dict[str, Path]:
        """Folders of the critics' models, by name; ModelError if a tokenizer does not fit."""
        found = {plan.name: find_model(plan.model) for plan in self.plans}
        for group in groups:
            for plan in self.plans:
                check_same_tokenizer(plan, found[plan.name], group, models[group.name])
        return found

    async def _ask(self, method: str, plan: CriticPlan, own: JointActions, *args: int) -> Any:
        return await self.learners[plan.name].call(
            method, critic_batch(own, plan.centralized), *args
        )

    def _shares(self, joint_actions: JointActions) -> list[tuple[CriticPlan, list[list[Turn]]]]:
        """Each critic with the turns that it reads, if there are any."""
        shares = []
        for plan in self.plans:
            parts = (
                [turn for turn in joint_action if turn.policy in plan.policies]
                for joint_action in joint_actions
            )
            own = [part for part in parts if part]
            if own:
                shares.append((plan, own))
        return shares


def check_same_tokenizer(plan: CriticPlan, own: Path, group: ModelGroup, model: Path) -> None:
    """Raise ModelError if a critic's tokenizer differs from that of the policies it reads."""
    read = sorted(set(plan.policies) & set(group.trained))
    if read and own != model and not ChatRenderer(own).reads_as(ChatRenderer(model)):
        raise ModelError(
            f"'{plan.name}' uses {plan.model}, whose tokenizer differs from that of the "
            f"model of {', '.join(read)}; use models of one family, or set critic.model"
        )
