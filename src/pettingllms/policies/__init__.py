"""What a configuration's policies need of the engines, as plain data."""

from pettingllms.policies.plan import ModelGroup, plan_models

__all__ = ["ModelGroup", "plan_models"]
