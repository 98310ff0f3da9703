"""What a configuration's policies need from engines and learners, as plain data."""

from pettingllms.policies.layout import Node
from pettingllms.policies.plan import (
    CriticPlan,
    ModelGroup,
    check_lora_dtype,
    plan_critics,
    plan_models,
)
from pettingllms.policies.resources import (
    GroupResources,
    check_placement,
    check_resources,
    critic_resources,
    group_resources,
    num_gpus_needed,
)

__all__ = [
    "CriticPlan",
    "GroupResources",
    "ModelGroup",
    "Node",
    "check_lora_dtype",
    "check_placement",
    "check_resources",
    "critic_resources",
    "group_resources",
    "num_gpus_needed",
    "plan_critics",
    "plan_models",
]
