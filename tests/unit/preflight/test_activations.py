"""Formulas of activations, against fake tensors of three sizes of Qwen3."""

import pytest
from qwen3_configs import QWEN3, qwen3

from pettingllms.preflight.activations import (
    CHUNK_BUFFERS,
    CHUNK_BYTES,
    FROZEN_CPU_BYTES,
    MAX_MASK_BYTES,
    Activations,
)
from pettingllms.preflight.model_size import size_of

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from fake_models import decoder_bytes

NUM_TOKENS = 1024
RANK = 16


def measured(name: str, rank: int, dtype: object, checkpointing: bool) -> tuple[float, float]:
    """Bytes saved, and alive at the peak, of the whole depth; extrapolated from 2 to 4 layers."""
    counts = [
        decoder_bytes(qwen3(name, num_hidden_layers=n), NUM_TOKENS, rank, dtype, checkpointing)
        for n in (2, 3, 4)
    ]
    depth = QWEN3[name][1]
    found = []
    for two, three, four in zip(*counts, strict=True):
        assert four - three == pytest.approx(three - two, rel=0.01)  # linear in depth
        found.append(four + (depth - 4) * (four - three))
    return found[0], found[1]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "8B" else pytest.mark.slow) for name in QWEN3]
)
def test_lora_activations_are_those_of_fake_tensors(name: str, checkpointing: bool) -> None:
    saved, peak = measured(name, RANK, torch.bfloat16, checkpointing)
    planned = Activations(size_of(qwen3(name)), 2, RANK)
    kept = planned.kept(NUM_TOKENS, checkpointing)
    assert kept == pytest.approx(saved, rel=0.05)
    backward = planned.backward(NUM_TOKENS, checkpointing)
    assert kept + backward == pytest.approx(peak, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "dtype", "width"), [(0, "bfloat16", 2), (0, "float32", 4), (RANK, "float32", 4)]
)
def test_full_and_float32_layers_save_what_fake_tensors_save(
    rank: int, dtype: str, width: int
) -> None:
    saved, _ = measured("8B", rank, getattr(torch, dtype), checkpointing=False)
    planned = Activations(size_of(qwen3("8B")), width, rank)
    assert planned.kept(NUM_TOKENS, False) == pytest.approx(saved, rel=0.02)


def test_chunks_and_masks_are_those_of_the_learner() -> None:
    from pettingllms.learners import output_head, tree_attention

    assert output_head.CHUNK_BYTES == CHUNK_BYTES
    assert output_head.FROZEN_CPU_BYTES == FROZEN_CPU_BYTES
    assert tree_attention.MAX_MASK_BYTES == MAX_MASK_BYTES


def test_output_head_needs_a_chunk_however_many_tokens_there_are() -> None:
    planned = Activations(size_of(qwen3("8B")), 2, RANK)
    few, many = planned.head(8192), planned.head(32768)
    assert many - few == 2 * (32768 - 8192) * 4096 * 2
    assert few - 2 * 8192 * 4096 * 2 == CHUNK_BUFFERS * CHUNK_BYTES
    assert planned.head(10) == 10 * (CHUNK_BUFFERS * 151936 * 4 + 2 * 4096 * 2)
