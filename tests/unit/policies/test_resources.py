"""Numbers of engines, GPUs and ranks per policy, and conflicts between policies on one base."""

from typing import Any

import pytest

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ClusterError, ConfigError
from pettingllms.policies import (
    GroupResources,
    Node,
    check_placement,
    check_resources,
    critic_resources,
    group_resources,
    num_gpus_needed,
    plan_models,
)
from pettingllms.policies.resources import process_groups


def config_of(planner: dict[str, Any], checker: dict[str, Any], **sections: Any) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": planner, "c": checker},
            "roles": {"planner": "p", "checker": "c"},
            **sections,
        }
    )


def policy(kind: str, model: str = "m", **resources: int) -> dict[str, Any]:
    return {"kind": kind, "model": model, **({"resources": resources} if resources else {})}


def resources_of(config: RunConfig) -> list[GroupResources]:
    return [group_resources(config, group) for group in plan_models(config)]


def test_what_a_policy_leaves_out_is_global() -> None:
    config = config_of(
        policy("full", num_replicas=3, num_ranks=4),
        policy("full", tensor_parallel=2),
        inference={"num_replicas": 2},
        learner={"num_ranks": 8},
    )
    assert resources_of(config) == [GroupResources(3, 1, 4), GroupResources(2, 2, 8)]
    assert num_gpus_needed(config, plan_models(config)) == 3 + 4 + 2 * 2 + 8
    names = [group.name for group in process_groups(config, plan_models(config))]
    assert names == [
        *(f"engine {number} of 'p'" for number in range(3)),
        "learner of 'p'",
        *(f"engine {number} of 'c'" for number in range(2)),
        "learner of 'c'",
    ]


def test_policies_on_one_base_share_what_one_of_them_gives() -> None:
    shared = config_of(policy("lora", num_ranks=2), policy("frozen", num_replicas=4))
    assert resources_of(shared) == [GroupResources(4, 1, 2)]
    only = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": policy("lora"), "c": policy("frozen", "other", num_replicas=2)},
            "roles": {"planner": "p", "checker": "c"},
        }
    )
    assert resources_of(only) == [GroupResources(1, 1, 1), GroupResources(2, 1, 0)]


@pytest.mark.parametrize(
    ("planner", "checker", "keys"),
    [
        (policy("lora", num_ranks=2), policy("lora", num_ranks=4), ("num_ranks", "learner")),
        (
            policy("frozen", num_replicas=2),
            policy("lora", num_replicas=1),
            ("num_replicas", "engines"),
        ),
        (
            policy("lora", tensor_parallel=2),
            policy("lora", tensor_parallel=1),
            ("tensor_parallel", "engines"),
        ),
    ],
)
def test_conflicts_on_one_base_name_both_keys(
    planner: dict[str, Any], checker: dict[str, Any], keys: tuple[str, str]
) -> None:
    key, what = keys
    expected = (
        rf"policies\.c\.resources\.{key}: is \d, but policies\.p\.resources\.{key} is \d, and "
        f"both policies share the {what} of 'm'"
    )
    with pytest.raises(ConfigError, match=expected):
        config_of(planner, checker)
    other = {**checker, "model": "n"}
    assert len(resources_of(config_of(planner, other))) == 2, "bases differ"


def test_policies_of_the_kind_full_never_conflict() -> None:
    config = config_of(policy("full", num_ranks=2), policy("full", num_ranks=4))
    assert [one.num_ranks for one in resources_of(config)] == [2, 4]


def test_a_frozen_policy_has_no_ranks_and_a_head_has_no_separate_ranks() -> None:
    with pytest.raises(ConfigError, match=r"policies\.c\..*resources\.num_ranks"):
        config_of(policy("lora"), policy("frozen", num_ranks=2))
    ppo = {"algo": {"type": "ppo"}, "learner": {"num_ranks": 2}}
    with pytest.raises(ConfigError, match=r"critic\.num_ranks: a head is trained by"):
        config_of(policy("full"), policy("full"), **ppo, critic={"num_ranks": 2})
    own = config_of(policy("full"), policy("full"), **ppo, critic={"kind": "model", "num_ranks": 3})
    assert critic_resources(own) == GroupResources(num_ranks=3)
    groups = process_groups(own, plan_models(own), sampling=False)
    assert [(g.kind, g.num_gpus) for g in groups] == [("learner", 2)] * 2 + [("critic", 3)] * 2
    shared = config_of(policy("full"), policy("full"), **ppo, critic={"kind": "model"})
    assert critic_resources(shared) == GroupResources(num_ranks=2)


def test_only_what_starts_is_counted() -> None:
    config = config_of(policy("full", num_ranks=8), policy("lora", num_ranks=8))
    layout = check_resources(config, plan_models(config), [Node("x", 2)], learning=False)
    assert [one.group.kind for one in layout.placed] == ["engine", "engine"]
    with pytest.raises(ClusterError, match="needs 18 GPUs"):
        check_resources(config, plan_models(config), [Node("x", 2)])


COLOCATED = {"cluster": {"placement": "colocated"}}


def test_colocated_engines_and_learners_share_their_gpus() -> None:
    config = config_of(
        policy("full", num_replicas=2, tensor_parallel=4, num_ranks=8),
        policy("frozen", tensor_parallel=2),
        **COLOCATED,
    )
    groups = process_groups(config, plan_models(config))
    frozen, shared = groups
    assert (shared.kind, shared.num_gpus, shared.piece) == ("colocated", 8, 4)
    assert (frozen.kind, frozen.num_gpus) == ("engine", 2), "nothing to share with"
    check_placement(config, plan_models(config))


def test_a_colocated_learner_that_differs_from_its_engines_is_refused() -> None:
    config = config_of(policy("full", num_replicas=2), policy("full"), **COLOCATED)
    expected = (
        r"the engines of 'p' take 2 \(policies\.p\.resources\.num_replicas = 2, "
        r"inference\.tensor_parallel = 1\) and the learner 1; set learner\.num_ranks = 2"
    )
    with pytest.raises(ClusterError, match=expected):
        check_placement(config, plan_models(config))


def test_each_colocated_model_has_its_own_gpus() -> None:
    config = config_of(policy("full"), policy("full"), **COLOCATED)
    check_resources(config, plan_models(config), [Node("x", 2)])
    with pytest.raises(ClusterError, match="needs 2 GPUs"):
        check_resources(config, plan_models(config), [Node("x", 1)])
