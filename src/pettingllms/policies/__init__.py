"""What a configuration's policies need from engines and learners, as plain data."""

from pettingllms.policies.plan import (
    CriticPlan,
    ModelGroup,
    check_lora_dtype,
    check_resources,
    num_gpus_needed,
    plan_critics,
    plan_models,
)

__all__ = [
    "CriticPlan",
    "ModelGroup",
    "check_lora_dtype",
    "check_resources",
    "num_gpus_needed",
    "plan_critics",
    "plan_models",
]
