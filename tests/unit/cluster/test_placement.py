import pytest

pytest.importorskip("torch")

from pettingllms.cluster.placement import cores_of, refuse_what_does_not_fit
from pettingllms.config import parse_config
from pettingllms.errors import ClusterError
from pettingllms.policies import plan_models


@pytest.mark.parametrize(
    ("count", "cores", "expected"),
    [
        (1, 2, ["0-1"]),
        (2, 2, ["0", "1"]),
        (3, 2, ["0", "1", "0"]),
        (2, 8, ["0-3", "4-7"]),
        (3, 8, ["0-1", "2-3", "4-5"]),
    ],
)
def test_engines_share_the_cores(count: int, cores: int, expected: list[str]) -> None:
    assert [cores_of(number, count, cores) for number in range(count)] == expected


@pytest.mark.parametrize(
    ("kind", "sections", "num_gpus", "refused"),
    [
        ("lora", {}, 1, "needs 2 GPUs"),
        ("lora", {}, 2, ""),
        ("lora", {"cluster": {"placement": "colocated"}}, 1, ""),
        ("full", {"cluster": {"placement": "colocated"}}, 8, "is for one model"),
        ("full", {}, 3, "needs 4 GPUs"),
        ("lora", {"inference": {"tensor_parallel": 4}, "learner": {"num_ranks": 4}}, 8, ""),
        ("lora", {"inference": {"num_replicas": 3, "tensor_parallel": 2}}, 6, "needs 7 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(
    kind: str, sections: dict, num_gpus: int, refused: str
) -> None:
    policy = {"kind": kind, "model": "m"}
    config = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"a": policy, "b": policy},
            "roles": {"planner": "a", "checker": "b"},
            **sections,
        }
    )
    if refused:
        with pytest.raises(ClusterError, match=refused):
            refuse_what_does_not_fit(config, plan_models(config), num_gpus)
    else:
        refuse_what_does_not_fit(config, plan_models(config), num_gpus)
