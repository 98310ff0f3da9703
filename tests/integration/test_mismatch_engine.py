"""Bounds of the train-inference mismatch: correct weights pass, a stale layer does not."""

import json
from pathlib import Path

import pytest
from running import HERE, run

from pettingllms.config.engines import MISMATCH_BOUNDS

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize("dtype", MISMATCH_BOUNDS)
def test_one_stale_layer_is_past_the_bound(dtype: str, smollm2: Path, tmp_path: Path) -> None:
    """On plain replies, as of a batch, and on a canary; adapters and whole models."""
    result, script = tmp_path / "result.json", str(HERE / "drive_mismatch.py")
    run(tmp_path / "log.txt", script, str(smollm2), str(result), dtype, seconds=900)
    bound = MISMATCH_BOUNDS[dtype]
    for kind, found in json.loads(result.read_text()).items():
        print(dtype, kind, found)
        assert max(found["correct"].values()) < bound, kind
        assert max(found["stale layer"].values()) > bound, kind
