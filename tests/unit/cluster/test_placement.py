import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("torch")

from pettingllms.cluster import reservation
from pettingllms.cluster.placement import critic_spec, engine_specs, learner_spec
from pettingllms.cluster.reservation import reserve
from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ClusterError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm_options import vllm_environment, vllm_options
from pettingllms.policies import (
    Node,
    check_lora_dtype,
    check_placement,
    check_resources,
    plan_critics,
    plan_models,
)
from pettingllms.runtime import resources as machine
from pettingllms.runtime.resources import CoreShare


def check(config: RunConfig, num_gpus: int) -> None:
    check_resources(config, plan_models(config), [Node("this machine", num_gpus)])


def specs_of(config: RunConfig, at: int = 0) -> list[EngineSpec]:
    """The engines of a model, as a run on this machine starts them."""
    groups = plan_models(config)
    places = reserve(config, groups, "cpu", learning=True, sampling=True).engines
    shares = [place.core_share for place in places[groups[at].name]]
    return engine_specs(config, groups[at], Path("m"), "cpu", shares)


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
    assert [CoreShare(number, count).cores for number in range(count)] == expected


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
    specs = specs_of(config)
    told = [vllm_environment(spec) for spec in specs]
    assert [one["VLLM_CPU_OMP_THREADS_BIND"] for one in told] == bound
    assert {one.get("OMP_NUM_THREADS") for one in told} == {threads}


@pytest.mark.parametrize(
    ("kind", "sections", "num_gpus", "refused"),
    [
        ("lora", {}, 1, "needs 2 GPUs"),
        ("lora", {}, 2, ""),
        ("lora", {"cluster": {"placement": "colocated"}}, 1, ""),
        ("full", {"cluster": {"placement": "colocated"}}, 2, ""),
        ("full", {"cluster": {"placement": "colocated"}}, 1, "needs 2 GPUs"),
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
            check(config, num_gpus)
    else:
        check(config, num_gpus)


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
    (engine,) = engine_specs(config, group, tmp_path, device, [CoreShare()])
    assert learner_spec(config, group, Path("m"), device).dtype == engine.dtype == dtype
    options = vllm_options(engine)
    assert options["dtype"] == dtype
    assert options["lora_dtype"] == "auto", "float32 files of an adapter are cast to this dtype"


def test_critics_that_are_models_need_gpus() -> None:
    policy = {"kind": "lora", "model": "m"}
    data = {"env": {"id": "plan_path-v1"}, "policies": {"p": policy}, "algo": {"type": "ppo"}}
    head = parse_config(data)
    check(head, 2)
    assert learner_spec(head, plan_models(head)[0], Path("m"), "cpu").critic == head.critic
    own = parse_config({**data, "critic": {"kind": "model"}})
    assert learner_spec(own, plan_models(own)[0], Path("m"), "cpu").critic is None
    with pytest.raises(ClusterError, match="needs 3 GPUs"):
        check(own, 2)
    qmix = parse_config({**data, "algo": {"type": "qmix"}})
    spec = critic_spec(qmix, plan_critics(qmix)[0], Path("m"), "cpu")
    assert (spec.mixer, spec.roles) == ("monotonic", ("planner", "checker"))


def two_models(**sections: object) -> RunConfig:
    """Of three and one engines."""
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {
                "a": {"kind": "full", "model": "m", "resources": {"num_replicas": 3}},
                "b": {"kind": "full", "model": "m", "resources": {"num_ranks": 2}},
            },
            "roles": {"planner": "a", "checker": "b"},
            **sections,
        }
    )


def test_processes_on_this_machine_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The share is computed where the process is: the machine changes after planning here."""
    config = two_models()
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    specs = [*specs_of(config, 0), *specs_of(config, 1)]
    found = reserve(config, plan_models(config), "cpu", learning=True, sampling=True)
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [spec.cores for spec in specs] == ["0,1", "2,3", "4,5", "6,7"]
    assert {spec.num_threads for spec in specs} == {2}
    ranks = {n: [p.core_share.threads for p in own] for n, own in found.learners.items()}
    assert ranks == {"full:a": [8], "full:b": [4, 4]}
    options = [
        p.options for own in (found.engines, found.learners) for ps in own.values() for p in ps
    ]
    assert options == [{"num_cpus": 0, "memory": 1, "num_gpus": 0}] * 7


def test_threads_that_the_user_asks_for_are_sent_to_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "12")
    specs = specs_of(two_models())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Ray sets it in its workers
    assert {spec.num_threads for spec in specs} == {3}


def test_specs_have_the_resources_of_their_policy() -> None:
    config = two_models(learner={"num_ranks": 5}, inference={"tensor_parallel": 2})
    first, second = plan_models(config)
    assert learner_spec(config, first, Path("m"), "cpu").config.num_ranks == 5
    assert learner_spec(config, second, Path("m"), "cpu").config.num_ranks == 2
    assert [spec.config.num_replicas for spec in specs_of(config)] == [3] * 3
    ppo = two_models(algo={"type": "ppo"}, critic={"kind": "model", "num_ranks": 3})
    assert critic_spec(ppo, plan_critics(ppo)[0], Path("m"), "cpu").config.num_ranks == 3


def test_an_engine_on_several_gpus_runs_its_workers_itself(tmp_path: Path) -> None:
    """Inside a placement group vLLM would start them with Ray, outside of the engine's bundle."""
    (tmp_path / "config.json").write_text("{}")
    config = two_models(inference={"tensor_parallel": 2})
    (spec,) = engine_specs(config, plan_models(config)[0], tmp_path, "cuda", [CoreShare()])
    assert vllm_options(spec)["distributed_executor_backend"] == "mp"
    single = engine_specs(two_models(), plan_models(config)[0], tmp_path, "cuda", [CoreShare()])
    assert "distributed_executor_backend" not in vllm_options(single[0])


def test_an_engine_that_cannot_pause_is_not_colocated() -> None:
    config = two_models(cluster={"placement": "colocated"}, inference={"engine": "torch"})
    with pytest.raises(ClusterError, match="runs only on CPU"):
        check_placement(config, plan_models(config))


def test_gpus_are_released_if_their_devices_stay_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    config = two_models(cluster={"placement": "colocated"}, learner={"num_ranks": 3})
    config = config.model_copy(update={"policies": {"a": config.policies["a"]}})
    groups = plan_models(config)
    layout = check_resources(config, groups, [Node("x", 3)])
    released: list[object] = []

    def fail(*_: object) -> None:
        raise ClusterError("no devices")

    monkeypatch.setattr(reservation, "_plan", lambda *_: (["id"], layout))
    monkeypatch.setattr(reservation, "_reserved", lambda *_: "group")
    monkeypatch.setattr(reservation, "_shared_devices", fail)
    monkeypatch.setattr(reservation, "remove_placement_group", released.append)
    with pytest.raises(ClusterError, match="no devices"):
        reserve(config, groups, "cuda", learning=True, sampling=True)
    assert released == ["group"]


def test_a_run_without_models_reserves_nothing_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation of servers and scripted players, on a machine that has GPUs."""
    config = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "scripted", "player": "random"}},
        }
    )
    monkeypatch.setattr(reservation, "find_nodes", lambda _: {"n": Node("a", 8)})
    found = reserve(config, plan_models(config), "cuda", learning=False, sampling=True)
    assert (found.engines, found.learners, found.group) == ({}, {}, None)


HELD = {"x": Node("x", 2, 2), "y": Node("y", 2, 2)}
FREE = {"x": Node("x", 4), "y": Node("y", 4)}


def layout_when(
    found: list[dict[str, Node]], monkeypatch: pytest.MonkeyPatch
) -> tuple[bool, list[dict[str, Node]]]:
    """Whether four ranks are divided, if Ray reports these nodes one after another."""
    config = two_models(learner={"num_ranks": 4})
    config = config.model_copy(update={"policies": {"a": config.policies["a"]}})
    left = list(found)
    monkeypatch.setattr(
        reservation, "find_nodes", lambda _: left.pop(0) if len(left) > 1 else left[0]
    )
    monkeypatch.setattr(reservation.time, "sleep", lambda _: None)
    groups = plan_models(config)
    _, layout = reservation._plan(config, groups, learning=True, sampling=False)
    return bool(layout.divided), left


def test_gpus_that_are_being_released_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reports the GPUs of a run that just ended as held for a moment."""
    assert layout_when([HELD, HELD, HELD, FREE], monkeypatch) == (False, [FREE])


def test_gpus_that_stay_held_divide_a_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "RELEASE_SECONDS", -1.0)
    divided, left = layout_when([HELD, HELD, FREE], monkeypatch)
    assert divided
    assert left == [FREE]
