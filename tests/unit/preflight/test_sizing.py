"""Memory plans on named hardware: what is rejected, and advice that makes it fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen3_configs import QWEN3, qwen3, write_config
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.config import RunConfig, apply_overrides, load_config, parse_config
from pettingllms.errors import ModelError
from pettingllms.policies import check_lora_dtype, check_placement, plan_models
from pettingllms.preflight.absent import published_size
from pettingllms.preflight.advice import advise, find_fix
from pettingllms.preflight.hardware import Hardware, find_hardware
from pettingllms.preflight.model_size import size_of
from pettingllms.preflight.sizing import MemoryPlan, plan_memory
from pettingllms.runtime.resources import GIB

SIZES = {name: size_of(qwen3(name)) for name in QWEN3}
H100 = find_hardware("h100-80")


def data_of(kind: str, model: str, num_models: int = 2, **sections: Any) -> dict[str, Any]:
    policies = {name: {"kind": kind, "model": model} for name in ("x", "o")[:num_models]}
    roles = {"player_x": "x", "player_o": "o" if num_models > 1 else "x"}
    base = {"env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"}}
    return {**base, "policies": policies, "roles": roles, **sections}


def config_of(kind: str, model: str, **sections: Any) -> RunConfig:
    return parse_config(data_of(kind, model, **sections))


def two_full(model: str, **learner: Any) -> dict[str, Any]:
    """Two full 8B policies on three ranks each, as version 0.1 would run them."""
    options = {"num_ranks": 3, "max_batch_tokens": 8192, "activation_checkpointing": False}
    return data_of("full", model, learner=options | learner)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_two_full_8b_policies_on_three_ranks_are_rejected_without_checkpointing(dtype: str) -> None:
    plan = plan_memory(parse_config(two_full("8B", dtype=dtype)), H100, SIZES)
    assert plan.num_gpus == 8  # enough: the memory is what lacks
    problems = [finding for finding in plan.findings() if finding.level == "problem"]
    assert [p.what.partition(":")[0] for p in problems] == ["learner of 'x'", "learner of 'o'"]
    assert all("most of it: activations" in problem.advice for problem in problems)
    assert not plan.fits


def test_advice_for_it_is_in_order_of_effect_and_checkpointing_is_first() -> None:
    plan = plan_memory(parse_config(two_full("8B", dtype="bfloat16")), H100, SIZES)
    changes = advise(plan)
    keys = [change.overrides[0].partition("=")[0] for change in changes]
    assert keys[0] == "learner.activation_checkpointing"
    assert {"learner.max_batch_tokens", "learner.num_ranks", "policies.o.kind"} <= set(keys)
    saved = [change.num_bytes for change in changes]
    assert saved == sorted(saved, reverse=True)
    fix = find_fix(plan)
    assert fix is not None
    assert [change.describe() for change in fix] == ["learner.activation_checkpointing=true"]


def test_a_quantized_base_is_an_advice_for_adapters() -> None:
    config = config_of("lora", "32B", inference={"tensor_parallel": 2})
    plan = plan_memory(config, find_hardware("64GiB"), SIZES)
    (mildest,) = [c for c in advise(plan) if c.describe().startswith("learner.base_bits")]
    assert mildest.describe() == "learner.base_bits=8"
    assert not mildest.is_exact
    assert mildest.num_bytes > 25 * GIB
    full = plan_memory(parse_config(two_full("8B", dtype="bfloat16")), H100, SIZES)
    assert not [c for c in advise(full) if "base_bits" in c.describe()]


def test_more_nodes_make_more_ranks_an_advice() -> None:
    config = parse_config(two_full("8B", dtype="bfloat16", activation_checkpointing=True))
    small = find_hardware("40GiB", num_nodes=2)
    plan = plan_memory(config, small, SIZES)
    fix = find_fix(plan)
    assert fix is not None
    assert all(change.is_exact for change in fix)
    assert any(change.overrides[0].startswith("learner.num_ranks=") for change in fix)


def test_colocated_advice_keeps_ranks_and_engines_on_the_same_gpus() -> None:
    options = {"max_batch_tokens": 2048, "activation_checkpointing": True}
    sections = {
        "cluster": {"placement": "colocated"},
        "inference": {"gpu_memory_utilization": 0.4},
        "learner": options,
    }
    config = config_of("full", "8B", **sections)
    plan = plan_memory(config, find_hardware("h100-80", num_nodes=2), SIZES)
    assert plan.num_gpus == 2, "two models on a GPU each"
    assert {process.name for process in plan.processes} == {
        "engine and learner of 'x'",
        "engine and learner of 'o'",
    }
    (more,) = [c for c in advise(plan) if c.overrides[0].startswith("learner.num_ranks")]
    ranks = more.overrides[0].partition("=")[2]
    assert more.overrides == (f"learner.num_ranks={ranks}", f"inference.num_replicas={ranks}")
    assert more.fits
    changed = more.edit(config)
    check_placement(changed, plan_models(changed))
    assert plan_memory(changed, plan.hardware, SIZES).num_gpus == 2 * int(ranks)


def test_resources_of_a_policy_are_planned() -> None:
    data = data_of("full", "8B")
    data["policies"]["x"]["resources"] = {"num_ranks": 4, "num_replicas": 2, "tensor_parallel": 2}
    plan = plan_memory(parse_config(data), find_hardware("h100-80", num_nodes=2), SIZES)
    counts = {p.name: (p.num_processes, p.gpus_per_process) for p in plan.processes}
    assert counts == {
        "engine of 'x'": (2, 2),
        "engine of 'o'": (1, 1),
        "learner of 'x'": (4, 1),
        "learner of 'o'": (1, 1),
    }
    held = {p.name: p.num_bytes for p in plan.processes}
    assert held["learner of 'x'"] < held["learner of 'o'"] / 2
    assert held["engine of 'x'"] < held["engine of 'o'"]
    assert plan.layout is not None
    assert plan.layout.num_gpus == plan.num_gpus == 10


@pytest.mark.parametrize(("num_ranks", "is_advised"), [(3, True), (1, False)])
def test_adapters_are_no_advice_if_their_resources_would_conflict(
    num_ranks: int, is_advised: bool
) -> None:
    data = two_full("8B", dtype="bfloat16")
    data["policies"]["x"]["resources"] = {"num_ranks": 3}
    data["policies"]["o"]["resources"] = {"num_ranks": num_ranks}
    changes = advise(plan_memory(parse_config(data), H100, SIZES))
    assert any("kind=lora" in change.describe() for change in changes) == is_advised


def test_a_learner_over_several_nodes_is_noted_and_holes_are_counted() -> None:
    wide = config_of("lora", "1.7B", learner={"num_ranks": 12})
    plan = plan_memory(wide, find_hardware("h100-80", num_nodes=2), SIZES)
    (note,) = [f for f in plan.findings() if f.what.startswith("GPUs:")]
    assert (note.level, "over several nodes: learner of 'x', 'o'" in note.what) == ("note", True)
    inference = {"tensor_parallel": 5, "num_replicas": 3}
    holes = config_of("lora", "1.7B", inference=inference)
    plan = plan_memory(holes, find_hardware("h100-80", num_nodes=2), SIZES)
    assert (plan.num_gpus, plan.layout, plan.fits) == (16, None, False)
    assert plan.shortage > 0


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["full", "lora"]),
    model=st.sampled_from(sorted(QWEN3)),
    num_models=st.integers(1, 2),
    gib=st.sampled_from([24, 48, 80]),
    num_nodes=st.integers(1, 4),
    host=st.sampled_from([None, 128 * GIB]),
    num_ranks=st.integers(1, 8),
    tokens=st.sampled_from([2048, 8192, 32768]),
    checkpointing=st.booleans(),
    dtype=st.sampled_from(["auto", "float32"]),
    colocated=st.booleans(),
)
def test_advised_changes_make_the_plan_fit(
    kind: str, model: str, num_models: int, gib: int, num_nodes: int, host: int | None,
    num_ranks: int, tokens: int, checkpointing: bool, dtype: str, colocated: bool,
) -> None:  # fmt: skip
    colocated = colocated and num_models == num_ranks == 1
    inference = {"dtype": dtype if kind == "full" else "auto"}
    data = data_of(
        kind,
        model,
        num_models,
        cluster={"placement": "colocated" if colocated else "separate"},
        inference=inference,
        learner={
            "dtype": dtype,
            "num_ranks": num_ranks,
            "max_batch_tokens": tokens,
            "activation_checkpointing": checkpointing,
        },
    )
    plan = plan_memory(parse_config(data), Hardware("x", gib * GIB, num_nodes, 8, host), SIZES)
    if plan.fits:
        return
    assert any(finding.level == "problem" for finding in plan.findings())
    for change in advise(plan):
        assert with_overrides(data, change.overrides, plan).fits == change.fits
    fix = find_fix(plan)
    if fix is None:
        assert not any(change.fits for change in advise(plan))
        return
    overrides = [override for change in fix for override in change.overrides]
    assert with_overrides(data, overrides, plan).fits
    for change in fix:  # none of them can be left out
        rest = [o for o in overrides if o not in change.overrides]
        assert not with_overrides(data, rest, plan).fits


def with_overrides(data: dict[str, Any], overrides: Any, plan: MemoryPlan) -> MemoryPlan:
    """The plan of the config with overrides, read as the command line reads them."""
    changed = json.loads(json.dumps(data))
    assert not apply_overrides(changed, overrides)
    config = parse_config(changed)
    check_lora_dtype(config, plan_models(config))
    return plan_memory(config, plan.hardware, plan.sizes)


def test_fits_and_findings_agree() -> None:
    for hardware in (H100, find_hardware("h100-80", gpus_per_node=4), find_hardware("24GiB")):
        plan = plan_memory(config_of("full", "8B"), hardware, SIZES)
        levels = {finding.level for finding in plan.findings()}
        assert plan.fits == ("problem" not in levels) == (plan.shortage == 0)


def test_host_memory_is_checked_only_if_it_is_given() -> None:
    inference = {"dtype": "bfloat16"}
    config = config_of("lora", "32B", learner={"num_ranks": 4}, inference=inference)
    assert plan_memory(config, find_hardware("h200-141"), SIZES).fits
    plan = plan_memory(config, find_hardware("h200-141", host_memory="16GiB"), SIZES)
    (problem,) = [finding for finding in plan.findings() if finding.level == "problem"]
    assert problem.what.startswith("host memory:")
    assert plan.node_bytes > 16 * GIB


def test_an_engine_that_is_wider_than_a_node_is_rejected() -> None:
    config = config_of("lora", "1.7B", inference={"tensor_parallel": 8})
    plan = plan_memory(config, find_hardware("h100-80", num_nodes=4, gpus_per_node=4), SIZES)
    (problem,) = [finding for finding in plan.findings() if finding.level == "problem"]
    assert "needs 8 GPUs on one node (inference.tensor_parallel)" in problem.what
    assert not plan.fits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two full 8B policies whose model is a config.json without weights."""
    model = write_config(tmp_path / "Qwen3-8B", "8B")
    config = tmp_path / "two.toml"
    config.write_text(tomli_w.dumps(two_full(str(model))))
    return config


def test_check_prints_the_plan_and_exits_with_a_problem(path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(path), "--gpu", "h100-80"])
    assert result.exit_code == 1
    assert "learner.activation_checkpointing=true" in result.output
    fixed = ["check", str(path), "--gpu", "h100-80", "learner.activation_checkpointing=true"]
    result = CliRunner().invoke(app, fixed)
    assert result.exit_code == 0, result.output
    assert "fits." in result.output


def test_check_prints_json(path: Path) -> None:
    options = ["--gpu", "80GiB", "--nodes", "2", "--host-memory", "1TiB", "--json"]
    result = CliRunner().invoke(app, ["check", str(path), *options])
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert (found["fits"], found["num_gpus"]) == (False, 8)
    assert found["hardware"]["num_nodes"] == 2
    learner = next(p for p in found["processes"] if p["name"] == "learner of 'x'")
    assert learner["num_bytes"] == pytest.approx(sum(p["num_bytes"] for p in learner["device"]))
    again = load_config(path, found["fix"])
    assert plan_memory(again, find_hardware("80GiB", 2, host_memory="1TiB")).fits


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("inference.engine=torch", "runs only on CPU"),
        ("cluster.placement=colocated", "colocated"),
        ("inference.dtype=float32", "cannot serve LoRA adapters"),
    ],
)
def test_what_no_gpu_can_run_is_rejected(path: Path, override: str, expected: str) -> None:
    kinds = [f"policies.{name}.kind=lora" for name in ("x", "o")]
    options = ["--gpu", "h100-80", override, *(kinds if "float32" in override else ())]
    result = CliRunner().invoke(app, ["check", str(path), *options])
    assert result.exit_code != 0
    assert expected in str(result.exception) + result.output


def test_gpu_needs_a_config_and_dimensions(path: Path) -> None:
    result = CliRunner().invoke(app, ["check", "--gpu", "h100-80"])
    assert result.exit_code != 0
    (path.parent / "Qwen3-8B" / "config.json").write_text('{"hidden_size": 4096}')
    with pytest.raises(ModelError, match="num_hidden_layers"):
        plan_memory(load_config(path), H100)


def test_shipped_configs_are_planned_before_their_model_is_fetched() -> None:
    """SmolLM2-135M has 134,515,008 parameters, as its converted weights do."""
    for end in ("", "-Instruct", "-Instruct@main"):
        size = published_size(f"HuggingFaceTB/SmolLM2-135M{end}")
        assert size is not None
        assert size.num_parameters == 134_515_008
        assert (size.num_layers, size.num_kv_heads, size.is_tied) == (30, 3, True)
    assert published_size("HuggingFaceTB/SmolLM2-360M") is None
