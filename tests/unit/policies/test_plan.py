from pettingllms.config import parse_config
from pettingllms.policies import plan_models


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


def test_full_policies_have_models_of_their_own() -> None:
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
