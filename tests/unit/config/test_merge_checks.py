"""An adapter is merged for sampling only where nothing else uses its base, and in float32."""

from typing import Any

import pytest

from pettingllms.config import parse_config
from pettingllms.errors import ClusterError, ConfigError
from pettingllms.policies import check_lora_dtype, plan_models

KEY = "inference.merge_single_adapter"
LORA = {"kind": "lora", "model": "m"}
OTHER = {"kind": "lora", "model": "n"}


def config_with(policies: dict[str, Any], **sections: Any) -> Any:
    inference = {"merge_single_adapter": True, **sections.pop("inference", {})}
    roles = dict(zip(("player_x", "player_o"), [*policies] * 2, strict=False))
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": policies,
            "roles": roles,
            "inference": inference,
            **sections,
        }
    )


def test_each_base_with_one_adapter_is_merged() -> None:
    config = config_with({"a": LORA, "b": OTHER})
    groups = plan_models(config)
    assert [(group.merged, group.publish_method) for group in groups] == [
        (True, "publish_weights")
    ] * 2
    plain = plan_models(config.without_merging())
    assert [(group.merged, group.publish_method) for group in plain] == [
        (False, "publish_adapter")
    ] * 2


def test_other_models_are_published_as_before() -> None:
    groups = plan_models(config_with({"a": LORA, "f": {"kind": "frozen", "model": "n"}}))
    assert [group.merged for group in groups] == [True, False]


@pytest.mark.parametrize(
    ("policies", "sections", "problem"),
    [
        ({"a": LORA, "b": LORA}, {}, "'m' serves a, b"),
        ({"a": LORA, "f": {"kind": "frozen", "model": "m"}}, {}, "'m' serves a, f"),
        ({"a": {"kind": "full", "model": "m"}}, {}, 'no policy has kind = "lora"'),
        ({"a": LORA}, {"inference": {"dtype": "bfloat16"}}, "inference.dtype is bfloat16"),
        ({"a": LORA}, {"learner": {"dtype": "bfloat16"}}, "learner.dtype is bfloat16"),
        ({"a": LORA}, {"learner": {"base_bits": 8}}, "leave learner.base_bits out"),
        ({"a": LORA}, {"league": {"snapshot_every": 1}}, "league.snapshot_every"),
    ],
)
def test_other_cases_are_refused_with_the_reason(
    policies: dict[str, Any], sections: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(policies, **sections)
    (found,) = [one for one in caught.value.problems if one.startswith(KEY)]
    assert problem in found


def test_a_gpu_s_default_dtype_is_refused_when_the_device_is_known() -> None:
    config = config_with({"a": LORA})
    check_lora_dtype(config.for_device("cpu"), plan_models(config))
    with pytest.raises(ClusterError, match=f"{KEY}: inference.dtype is bfloat16"):
        check_lora_dtype(config.for_device("cuda"), plan_models(config))
    exact = config_with({"a": LORA}, inference={"dtype": "float32"}, learner={"dtype": "float32"})
    check_lora_dtype(exact.for_device("cuda"), plan_models(exact))  # no LoRA kernels are used
