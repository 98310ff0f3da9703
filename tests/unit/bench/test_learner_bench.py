"""`bench learner` on a tiny model: the same gradients from fewer tokens."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.bench.learner_bench import PADDED, TREES, bench_learner
from pettingllms.models import make_tiny


def test_all_variants_have_one_gradient_and_trees_read_distinct_tokens(tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "m", "llama", texts=["a b c"], hidden_size=64)
    phases: list[str] = []
    found = bench_learner(str(model), repeats=1, phase=phases.append)
    assert len(found) == 12
    assert any("round 1 of 1" in phase for phase in phases)
    for one in found:
        assert one.cosine > (0.99 if "bfloat16" in one.variant else 0.99999), one
        assert one.speedup > 0
        if one.variant == TREES.name:
            assert 0.85 < one.tokens_read / one.distinct_tokens <= 1.05, one
        if one.variant == PADDED.name:
            assert one.speedup == 1
            assert one.tokens_read >= one.distinct_tokens, one
