import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("torch")

from pettingllms.cluster.placement import (
    cores_of,
    critic_spec,
    engine_specs,
    learner_spec,
)
from pettingllms.config import parse_config
from pettingllms.errors import ClusterError
from pettingllms.inference.engines.vllm import vllm_environment, vllm_options
from pettingllms.policies import check_lora_dtype, check_resources, plan_critics, plan_models
from pettingllms.runtime import resources as machine


@pytest.mark.parametrize(
    ("count", "cores", "expected"),
    [
        (1, range(2), ["0,1"]),
        (2, range(2), ["0", "1"]),
        (3, range(2), ["0", "1", "0"]),
        (2, range(8), ["0,1,2,3", "4,5,6,7"]),
        (3, range(8), ["0,1", "2,3", "4,5"]),
        (2, (2, 3, 6, 7), ["2,3", "6,7"]),
    ],
)
def test_engines_share_the_cores_that_the_process_may_use(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    count: int,
    cores: Sequence[int],
    expected: list[str],
) -> None:
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores))
    assert [cores_of(number, count) for number in range(count)] == expected


@pytest.mark.parametrize(
    ("quota", "cores", "num_replicas", "bound", "threads"),
    [
        ("max", 8, 2, ["0,1,2,3", "4,5,6,7"], None),
        ("800000", 8, 2, ["0,1,2,3", "4,5,6,7"], None),
        ("6400000", 8, 2, ["0,1,2,3", "4,5,6,7"], None),
        ("400000", 64, 2, ["nobind", "nobind"], "2"),
        ("400000", 64, 1, ["nobind"], "4"),
        ("50000", 64, 2, ["nobind", "nobind"], "1"),
    ],
)
def test_containers_with_a_quota_do_not_crowd_on_the_first_cores(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    quota: str,
    cores: int,
    num_replicas: int,
    bound: list[str],
    threads: str | None,
) -> None:
    """All of them see the whole machine: cores that one took by number, the others took as well.
    vLLM then has as many threads as OpenMP is told."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    config = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "lora", "model": "m"}},
            "inference": {"num_replicas": num_replicas},
        }
    )
    specs = engine_specs(config, plan_models(config)[0], Path("m"), "cpu", 0, 1)
    told = [vllm_environment(spec) for spec in specs]
    assert [one["VLLM_CPU_OMP_THREADS_BIND"] for one in told] == bound
    assert {one.get("OMP_NUM_THREADS") for one in told} == {threads}


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
            check_resources(config, plan_models(config), num_gpus)
    else:
        check_resources(config, plan_models(config), num_gpus)


@pytest.mark.parametrize(
    ("kind", "dtype", "is_rejected"),
    [
        ("lora", "float32", True),
        ("lora", "auto", False),
        ("lora", "bfloat16", False),
        ("full", "float32", False),
    ],
)
def test_adapters_in_float32_are_rejected_on_gpus(kind: str, dtype: str, is_rejected: bool) -> None:
    """vLLM's LoRA kernels there assert 16-bit weights."""
    config = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": kind, "model": "m"}},
            "inference": {"dtype": dtype},
        }
    ).for_device("cuda")
    rejected = (
        pytest.raises(ClusterError, match=r"policies\.p .*16-bit.*set inference\.dtype")
        if is_rejected
        else nullcontext()
    )
    with rejected:
        check_lora_dtype(config, plan_models(config))


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float32"), ("cuda", "bfloat16")])
def test_processes_get_the_dtype_of_their_device(device: str, dtype: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    policies = {"p": {"kind": "lora", "model": "m"}}
    config = parse_config(
        {"env": {"id": "plan_path-v1"}, "policies": policies, "algo": {"type": "ppo"}}
    )
    (group,) = plan_models(config)
    (engine,) = engine_specs(config, group, tmp_path, device, 0, 1)
    assert learner_spec(config, group, Path("m"), device).dtype == engine.dtype == dtype
    options = vllm_options(engine)
    assert options["dtype"] == dtype
    assert options["lora_dtype"] == "auto", "float32 files of an adapter are cast to this dtype"


def test_critics_that_are_models_need_gpus() -> None:
    policy = {"kind": "lora", "model": "m"}
    data = {"env": {"id": "plan_path-v1"}, "policies": {"p": policy}, "algo": {"type": "ppo"}}
    head = parse_config(data)
    check_resources(head, plan_models(head), 2)
    assert learner_spec(head, plan_models(head)[0], Path("m"), "cpu").critic == head.critic
    own = parse_config({**data, "critic": {"kind": "model"}})
    assert learner_spec(own, plan_models(own)[0], Path("m"), "cpu").critic is None
    with pytest.raises(ClusterError, match="needs 3 GPUs"):
        check_resources(own, plan_models(own), 2)
    qmix = parse_config({**data, "algo": {"type": "qmix"}})
    spec = critic_spec(qmix, plan_critics(qmix)[0], Path("m"), "cpu")
    assert (spec.mixer, spec.roles) == ("monotonic", ("planner", "checker"))
