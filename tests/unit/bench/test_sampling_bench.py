"""What `bench sampling` computes from its rounds, and the CPU time that it counts."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from pettingllms.bench.cpu_time import cpu_seconds
from pettingllms.bench.sampling_bench import Round, _gap, _summary, random_adapter
from pettingllms.config import InferenceConfig
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.models.folder import shapes_in
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE
from pettingllms.types import Sample

BURN = """
import sys, time
while time.process_time() < 1:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def sample(ids: list[int], logprobs: list[float]) -> Sample:
    return Sample(np.array(ids), np.array(logprobs, np.float32), 1, "stop")


def test_the_ratio_and_the_log_probs_of_both_kernels_are_compared() -> None:
    same, other = sample([1, 2], [-1.0, -2.0]), sample([1, 3], [-1.125, -9.0])
    near = sample([1, 2], [-1.0, -2.25])
    rounds = [
        {
            "packed": Round([same, same], seconds),
            "vllm": Round([near, other], 2 * seconds),
            "base": Round([same, same], 0.5 * seconds),
        }
        for seconds in (1.0, 2.0, 10.0)
    ]
    spec = EngineSpec(Path("m"), InferenceConfig(max_num_seqs=2), ("base", "adapter0"), 16, 1)
    found = _summary(spec, 3, rounds)
    assert (found.packed, found.vllm, found.base) == (2.0, 1.0, 4.0)
    assert found.ratios == (2.0, 2.0, 2.0)
    assert found.logprob_difference == pytest.approx(0.25), "tokens that differ do not count"
    assert found.equal_share == 0.5


def test_cpu_time_of_child_processes_counts() -> None:
    before = cpu_seconds()
    child = subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert cpu_seconds() - before >= 0.9
    assert 0.9 <= cpu_seconds(child.pid) <= 2
    child.communicate()


def test_the_adapter_has_both_matrices_of_every_linear_layer(tmp_path: Path) -> None:
    shapes = {
        "model.layers.0.self_attn.q_proj.weight": [24, 32],
        "model.layers.0.mlp.down_proj.weight": [32, 64],
        "model.norm.weight": [32],
        "model.embed_tokens.weight": [100, 32],
    }
    head = json.dumps(
        {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    ).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    files = random_adapter(tmp_path)
    prefix = "base_model.model.model.layers.0"
    assert shapes_in(files[ADAPTER_FILE], "adapter") == {
        f"{prefix}.self_attn.q_proj.lora_A.weight": [16, 32],
        f"{prefix}.self_attn.q_proj.lora_B.weight": [24, 16],
        f"{prefix}.mlp.down_proj.lora_A.weight": [16, 64],
        f"{prefix}.mlp.down_proj.lora_B.weight": [32, 16],
    }
    assert json.loads(files[ADAPTER_CONFIG])["target_modules"] == ["down_proj", "q_proj"]


@pytest.mark.parametrize(
    ("ids", "difference"), [([1, 3], 0.125), ([4, 2], 0.0), ([1], 0.125), ([1, 2, 3], 2.0)]
)
def test_log_probs_are_compared_up_to_the_first_different_token(
    ids: list[int], difference: float
) -> None:
    found = sample(ids, [-1.125, -4.0, -9.0][: len(ids)])
    assert _gap(sample([1, 2], [-1.0, -2.0]), found) == pytest.approx(difference)
