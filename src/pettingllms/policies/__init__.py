"""What a configuration's policies need of the engines, as plain data."""

from pettingllms.policies.devices import check_resources
from pettingllms.policies.plan import CriticPlan, ModelGroup, plan_critics, plan_models

__all__ = ["CriticPlan", "ModelGroup", "check_resources", "plan_critics", "plan_models"]
