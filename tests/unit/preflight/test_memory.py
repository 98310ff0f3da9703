"""Memory of the processes of a run, against numbers computed by hand."""

from dataclasses import replace
from typing import Any

import pytest

from pettingllms.config import RunConfig, parse_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.policies import num_gpus_needed, plan_models
from pettingllms.preflight import learner_memory
from pettingllms.preflight.activations import Activations
from pettingllms.preflight.estimates import total
from pettingllms.preflight.learner_memory import (
    CUDA_CONTEXT,
    GATHERED_LAYERS,
    HOST_PROCESS,
    Trained,
    trained_group,
)
from pettingllms.preflight.memory import (
    ENGINE_WORKSPACE,
    check_gpu_memory,
    estimate_gpus,
    estimate_memory,
    num_cached_sequences,
    pass_bytes,
)
from pettingllms.preflight.model_size import ModelSize

SIZE = ModelSize(
    1_000_000,
    adapted=(("mlp.up_proj", 100, 50), ("mlp.down_proj", 50, 200)),
    num_layers=2,
    num_kv_heads=3,
    head_dim=4,
    num_heads=6,
    hidden_size=50,
    mlp_size=100,
    vocab_size=1000,
    is_tied=False,
    layer_parameters=400_000,
)
LORA = LoraPolicy(model="m", rank=8)
KV_TOKEN = 2 * 2 * 3 * 4
"""Keys and values of one token: 2 * layers * heads * head_dim."""


def config_of(kind: str = "full", **sections: Any) -> RunConfig:
    policy = {"kind": kind, "model": "m", **({"rank": 8} if kind == "lora" else {})}
    data = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {"x": policy, "o": policy},
        "roles": {"player_x": "x", "player_o": "o"},
        "inference": {"max_num_seqs": 10, "max_model_len": 100, "dtype": "float32"},
        "learner": {"dtype": "float32", "max_batch_tokens": 1000},
    }
    return parse_config({**data, **sections})


def parts_of(config: RunConfig, size: ModelSize = SIZE) -> dict[str, dict[str, float]]:
    found = estimate_memory(config, plan_models(config), {"m": size})
    return {one.name: {part.name: part.num_bytes for part in one.device} for one in found}


def state_of(config: RunConfig) -> dict[str, float]:
    (group, *_) = plan_models(config)
    parts = trained_group(config, group, SIZE, "gpu").state_parts()
    return {part.name: part.num_bytes for part in parts}


def trained(**changed: Any) -> Trained:
    return replace(Trained(SIZE, 4, 2, 1000, 100, checkpointing=True), **changed)


def test_full_policies_have_an_engine_and_a_learner_each() -> None:
    config = config_of()
    found = parts_of(config)
    assert found.keys() == {
        f"{part} of '{name}'" for part in ("engine", "learner") for name in ("x", "o")
    }
    assert found["engine of 'x'"] == {
        "weights": 4e6,
        "KV cache of one sequence": 100 * KV_TOKEN * 4,
        "workspace": ENGINE_WORKSPACE,
    }
    assert state_of(config) == {"weights": 4e6, "gradients": 4e6, "optimizer state": 8e6}
    assert num_gpus_needed(config, plan_models(config)) == 4


def test_adapters_share_a_base_and_train_rank_times_rows_plus_columns() -> None:
    config = config_of("lora")
    num_adapted = 2 * 8 * (150 + 250)  # two policies, rank 8
    assert state_of(config) == {
        "frozen base": 4e6,
        "adapter weights": num_adapted * 4,
        "adapter gradients": num_adapted * 4,
        "adapter optimizer state": num_adapted * 8,
    }
    assert parts_of(config)["engine of 'x', 'o'"]["adapters"] == num_adapted * 4
    assert num_gpus_needed(config, plan_models(config)) == 2


def test_tensor_parallel_ranks_and_dtype_divide_memory_per_gpu() -> None:
    inference = {"tensor_parallel": 2, "num_replicas": 3, "dtype": "bfloat16", "max_num_seqs": 1}
    learner = {"num_ranks": 4, "dtype": "bfloat16"}
    config = config_of(inference=inference, learner=learner, loss={"kl_coef": 0.1})
    engine, state = parts_of(config)["engine of 'x'"], state_of(config)
    assert engine["weights"] == 2e6 / 2
    assert engine["KV cache of one sequence"] == 2048 * KV_TOKEN * 2 / 2
    assert state["optimizer state"] == 8e6 / 4
    assert state["reference model"] == 2e6 / 4
    assert num_gpus_needed(config, plan_models(config)) == 2 * 3 * 2 + 2 * 4


def test_a_frozen_base_has_the_compute_dtype_and_no_gathered_gradients() -> None:
    parts = {part.name: part.num_bytes for part in trained(adapters=(LORA,)).device_parts()}
    assert parts["frozen base"] == 2e6 / 4
    assert not any(name.startswith("gradients ") for name in parts)


@pytest.mark.parametrize(("bits", "width"), [(8, 8.25 / 8), (4, 4.25 / 8)])
def test_a_quantized_base_counts_its_bits(bits: int, width: float) -> None:
    learner = {"dtype": "bfloat16", "base_bits": bits}
    state, num_linear = state_of(config_of("lora", learner=learner)), 100 * 50 + 50 * 200
    assert state[f"frozen base in {bits} bits"] == num_linear * width
    assert state["frozen base"] == 2 * (1_000_000 - num_linear)
    plain, small = (trained(adapters=(LORA,), base_bits=b).device_parts() for b in (None, bits))
    plain, small = ({part.name: part.num_bytes for part in one} for one in (plain, small))
    saved = GATHERED_LAYERS * num_linear / SIZE.num_layers * (2 - width)
    assert plain["gathered weights"] - small["gathered weights"] == pytest.approx(saved)
    large = trained(adapters=(LORA,), base_bits=bits, num_tokens=10**6, num_ranks=1)
    parts = {part.name: part.num_bytes for part in large.device_parts()}
    assert parts["dequantized matrix"] == 2 * 2 * 50 * 100
    vision = replace(SIZE, adapted=(*SIZE.adapted, ("visual.blocks.0.attn.qkv", 60, 20)))
    assert vision.linear_parameters == num_linear


def test_a_pass_adds_gathered_layers_and_the_largest_of_its_moments() -> None:
    plan = trained()
    acts = Activations(SIZE, 2)
    kept = acts.kept(1000, checkpointing=True)
    root, layer = 200_000, 400_000
    assert SIZE.root_parameters == root
    moments = [
        kept + acts.head(1000) + 4 * 1000 * 50 + 2 * (root + 2 * layer),
        kept + acts.backward(1000, True) + 2 * (root + 2 * layer) + 7 * layer,
        2 * root + 7 * root,
    ]
    expected = 16e6 / 4 + max(moments) + CUDA_CONTEXT
    assert total(plan.device_parts()) == pytest.approx(expected)


def test_gradients_outside_of_the_layers_can_be_the_largest_moment() -> None:
    wide = replace(SIZE, num_parameters=100_000_000)
    parts = {part.name: part.num_bytes for part in trained(size=wide).device_parts()}
    assert parts["gradients outside of the layers"] == 7 * wide.root_parameters


def test_autocast_copies_all_trained_weights_on_one_rank() -> None:
    full, lora = trained(num_ranks=1), trained(num_ranks=1, adapters=(LORA,))
    names = [{part.name for part in plan.device_parts()} for plan in (full, lora)]
    assert "weights cast to bfloat16" in names[0]
    assert "weights cast to bfloat16" not in names[1]


def test_offloaded_state_is_on_the_device_only_in_an_update() -> None:
    few = trained(num_tokens=16, size=replace(SIZE, num_parameters=10**8))
    many = trained(num_tokens=10**6, checkpointing=False)
    for plan in (few, many):
        kept, moved = (
            {p.name: p.num_bytes for p in replace(plan, offloads_optimizer=on).device_parts()}
            for on in (False, True)
        )
        assert sum(moved.values()) < sum(kept.values())
        host = {p.name: p.num_bytes for p in replace(plan, offloads_optimizer=True).host_parts()}
        assert host["optimizer state"] == kept["optimizer state"]
    assert "activations" in {part.name for part in replace(many).device_parts()}


def test_optimizers_have_different_states() -> None:
    sizes = [
        next(p.num_bytes for p in trained(optimizer=name).state_parts() if "optimizer" in p.name)
        for name in ("adamw", "adamw_8bit", "adafactor")
    ]
    assert sizes[0] == 8e6 / 4
    assert sizes[0] > 3.5 * sizes[1] > 3.5 * sizes[2]


def test_a_critic_model_is_trained_in_full_without_output_layer() -> None:
    found = parts_of(config_of("lora", algo={"type": "mappo"}))["'critic:team'"]
    state = sum(found[name] for name in ("weights", "gradients", "optimizer state"))
    assert state == 16 * (1_000_000 - 1000 * 50)
    assert found["value head"] == 4 * 1000 * 50
    assert "output head" not in found


def test_a_sequence_that_is_longer_than_a_pass_is_a_pass() -> None:
    short = config_of(learner={"max_batch_tokens": 100}, inference={"max_model_len": 50})
    long = config_of(learner={"max_batch_tokens": 100}, inference={"max_model_len": 700})
    tokens = [
        trained_group(config, plan_models(config)[0], SIZE, "gpu").num_tokens
        for config in (short, long)
    ]
    assert tokens == [100, 700]


def test_host_memory_has_one_tensor_or_without_shards_the_whole_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = {part.name: part.num_bytes for part in trained().host_parts()}
    assert parts == {"process": HOST_PROCESS, "load, publish and save": 4 * 50 * 1000}
    monkeypatch.setattr(learner_memory, "SHARDED_FILES", False)
    names = "load", "save on rank 0"
    for adapters, name, num_bytes in (((LORA,), names[0], 4e6), ((), names[1], 24e6)):
        parts = {p.name: p.num_bytes for p in trained(adapters=adapters).host_parts()}
        assert parts == {"process": HOST_PROCESS, name: num_bytes}


def test_an_engine_fills_its_share_with_kv_cache() -> None:
    config = config_of()
    engine, *_ = estimate_memory(config, plan_models(config), {"m": SIZE})
    sequence = 100 * KV_TOKEN * 4
    room = (4e6 + ENGINE_WORKSPACE + 7 * sequence) / 0.8
    assert num_cached_sequences(engine, room) == pytest.approx(7)


def test_a_colocated_engine_and_learner_share_a_gpu() -> None:
    config = config_of("lora", cluster={"placement": "colocated"})
    groups = plan_models(config)
    (small,) = estimate_gpus(config, groups, {"m": SIZE}, device_bytes=10**10)
    assert {part.name for part in small.device} == {
        *("engine", "frozen base", "adapter weights", "adapter optimizer state")
    }
    assert small.num_bytes == 0.8e10 + 4e6 + 12 * 2 * 8 * 400
    (large,) = estimate_gpus(config, groups, {"m": SIZE}, device_bytes=10**6)
    assert "activations" in {part.name for part in large.device}


def test_an_estimate_shows_its_formulas_and_a_small_gpu_is_a_problem() -> None:
    big = replace(SIZE, num_parameters=8_000_000_000, num_layers=32, num_kv_heads=8, head_dim=128)
    config = config_of(inference={"dtype": "bfloat16", "max_num_seqs": 64})
    findings = list(check_gpu_memory(config, plan_models(config), {"m": big}, ["A, 81920 MiB"]))
    assert findings[0].what.startswith("GPUs (estimate): 4 needed")
    engine = findings[1]
    assert engine.level == "ok"
    assert "weights 14.9 GiB = 8.0B parameters * 2 B" in engine.what
    assert "KV cache of one sequence 0.2 GiB = 2048 tokens * 2 * 32 layers" in engine.what
    problem = next(finding for finding in findings if finding.level == "problem")
    assert "learner of 'x': about 1" in problem.what
    assert problem.what.endswith("it can use 76.0 GiB of a GPU")
    assert "--gpu" in problem.advice


def test_missing_dimensions_are_noted_on_a_machine_with_gpus() -> None:
    config, size = config_of("lora"), replace(SIZE, mlp_size=0)
    found = list(check_gpu_memory(config, plan_models(config), {"m": size}, ["A, 81920 MiB"]))
    (note,) = [finding.what for finding in found if finding.level == "note"]
    assert note == "GPU memory: config.json of 'm' lacks intermediate_size"


def test_a_pass_on_cpu_is_what_the_learner_adds_to_its_state() -> None:
    config = config_of("lora")
    acts = Activations(SIZE, 4, 8, num_keys=100)
    kept = acts.kept(1000, checkpointing=False)
    most = kept + max(acts.head(1000), acts.backward(1000, checkpointing=False))
    assert pass_bytes(config, plan_models(config), {"m": SIZE}, "cpu") == pytest.approx(most)
    assert pass_bytes(config_of("frozen"), [], {}, "cpu") == 0
