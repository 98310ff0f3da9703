"""A VLM in real vLLM and in the learner: equal log-probs, before and after weight syncs."""

import json
from typing import Any

import numpy as np
import pytest
from running import HERE, run

pytestmark = [pytest.mark.engine, pytest.mark.slow]

pytest.importorskip("vllm")
pytest.importorskip("torchvision", reason="scripts/vision_cpu.sh brings it")

NUM_PROMPTS = 7
KINDS = ("full", "language", "everywhere", "qwen3_vl")
"""Three ways to train a Qwen2.5-VL, and another family, trained whole."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """For each way to train: what was measured before and after."""
    root, results = tmp_path_factory.mktemp("sight"), {}
    for kind in KINDS:
        (root / kind).mkdir()
        script = str(HERE / "drive_vlm.py")
        run(root / kind / "log.txt", script, str(root / kind), kind, seconds=600)
        results |= json.loads((root / kind / "result.json").read_text())
    print(json.dumps(results, indent=1))
    return results


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_sampler_and_learner_agree_on_one_image_several_none_and_other_sizes(
    kind: str, when: str, found: Any
) -> None:
    for how in ("sampled", "scored"):
        gaps = found[kind][when][how]
        assert len(gaps) == NUM_PROMPTS
        assert max(gaps.values()) < 1e-4, gaps


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_change_with_the_picture_and_with_the_weights(kind: str, found: Any) -> None:
    before, after = (found[kind][when]["said"] for when in ("before", "after"))
    one, other = (np.array(before[name]) for name in ("one", "another picture, the same text"))
    assert np.abs(one - other).mean() > 1e-2
    for name, said in before.items():
        assert np.abs(np.array(said) - np.array(after[name])).mean() > 1e-3, name
