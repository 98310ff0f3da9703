"""What a configuration's policies need of the engines, as plain data."""

from pettingllms.policies.plan import CriticPlan, ModelGroup, plan_critics, plan_models

__all__ = ["CriticPlan", "ModelGroup", "plan_critics", "plan_models"]
