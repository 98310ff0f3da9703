from pettingllms.config import parse_config
from pettingllms.policies import plan_critics, plan_models


def plan(policies: dict, roles: dict):
    data = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": "grpo"},
        "policies": policies,
        "roles": roles,
    }
    return plan_models(parse_config(data))


def section(kind: str, model: str = "m") -> dict:
    return {"kind": kind, "model": model}


BOTH = {"planner": "a", "checker": "b"}


def test_adapters_and_frozen_policies_share_a_base() -> None:
    (group,) = plan({"a": section("lora"), "b": section("frozen")}, BOTH)
    assert list(group.trained) == ["a"]
    assert group.policies == ["a", "b"]


def test_full_policies_have_separate_models() -> None:
    groups = plan({"a": section("full"), "b": section("full")}, BOTH)
    assert [group.policies for group in groups] == [["a"], ["b"]]


def test_two_bases_are_two_models() -> None:
    groups = plan({"a": section("lora", "m"), "b": section("lora", "n")}, BOTH)
    assert [(group.model, group.policies) for group in groups] == [("m", ["a"]), ("n", ["b"])]


def test_a_full_policy_never_shares_the_base_of_an_adapter() -> None:
    groups = plan({"a": section("full"), "b": section("lora")}, BOTH)
    assert sorted(group.policies for group in groups) == [["a"], ["b"]]


def test_what_is_served_elsewhere_needs_no_model() -> None:
    policies = {
        "a": {"kind": "api", "url": "http://127.0.0.1:1/v1", "model": "m"},
        "b": {"kind": "scripted"},
    }
    assert plan(policies, BOTH) == []


def critics(algo: str, policies: dict, **critic: str) -> list[tuple]:
    data = {"env": {"id": "plan_path-v1"}, "algo": {"type": algo}, "policies": policies}
    if critic:
        data["critic"] = critic
    found = plan_critics(parse_config({**data, "roles": BOTH}))
    return [(plan.name, plan.model, plan.policies, plan.centralized, plan.mixer) for plan in found]


def test_critics_are_heads_or_one_for_each_policy_or_one_for_all() -> None:
    two = {"a": section("lora", "m"), "b": section("full", "n")}
    assert critics("grpo", two) == []
    assert critics("ppo", two) == []
    assert critics("ppo", two, kind="model") == [
        ("critic:a", "m", ("a",), False, None),
        ("critic:b", "n", ("b",), False, None),
    ]
    assert critics("mappo", two) == [("critic:team", "m", ("a", "b"), True, None)]
    assert critics("vdn", two) == [("critic:team", "m", ("a", "b"), False, "sum")]
    assert critics("qmix", two, model="c") == [("critic:team", "c", ("a", "b"), False, "monotonic")]


def test_a_policy_that_does_not_learn_has_no_critic() -> None:
    one = {"a": section("lora"), "b": section("frozen")}
    assert critics("ppo", one, kind="model") == [("critic:a", "m", ("a",), False, None)]
    assert critics("vdn", one) == [("critic:team", "m", ("a",), False, "sum")]
