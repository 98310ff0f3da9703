"""What a configuration's policies need of the engines, as plain data."""

from pettingllms.policies.devices import refuse_what_does_not_fit
from pettingllms.policies.plan import CriticPlan, ModelGroup, plan_critics, plan_models

__all__ = ["CriticPlan", "ModelGroup", "plan_critics", "plan_models", "refuse_what_does_not_fit"]
