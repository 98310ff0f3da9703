"""Full models from a learner of two ranks to two vLLM engines: whole, or not in use."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import HERE, run

pytestmark = pytest.mark.engine


def driven(model: Path, dtype: str, bucket_bytes: int, folder: Path) -> Any:
    result = folder / "result.json"
    script = str(HERE / "drive_stream.py")
    said = run(folder / "log.txt", script, str(model), dtype, str(bucket_bytes), str(result))
    print(said[-2000:])
    return json.loads(result.read_text())


def check(found: Any, max_gap: float) -> None:
    assert found["whole"]["equal"] == [True, True]
    assert found["whole"]["scores_equal"], "files and stream gave different models"
    assert max(found["trained"]["gaps"]) < max_gap
    assert min(found["trained"]["moved"]) > max_gap
    assert found["trained"]["versions"] == [2, 2]
    assert found["held"] == {"under_way": True, "version": 3}
    failed = found["failed"]
    assert "fails on purpose" in failed["failures"][0]
    assert "version 4 of 'p' was interrupted" in failed["refusals"][0]
    assert all(r == "answered" or "was interrupted" in r for r in failed["refusals"])
    assert max(failed["healed"]) < max_gap
    assert failed["restarts"] == [0, 0]
    assert found["restarted"] == {"equal": True, "versions": [4, 4], "restarts": [0, 1]}
    orphaned = found["orphaned"]
    assert "rank 0 of the learner of 'p', in 'send', failed" in orphaned["error"]
    assert all("version 5 of 'p' was interrupted" in one for one in orphaned["refusals"])
    assert orphaned["seconds"] < 60


def test_a_stream_reaches_all_engines_or_none_is_used(tiny: Path, tmp_path: Path) -> None:
    found = driven(tiny, "float32", 20_000, tmp_path)
    check(found, 1e-4)
    assert found["whole"]["tensors"] > 10


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "max_gap"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_a_stream_of_a_real_model(
    dtype: str, max_gap: float, smollm2: Path, tmp_path: Path
) -> None:
    found = driven(smollm2, dtype, 64 * 2**20, tmp_path)
    check(found, max_gap)
    assert found["whole"]["tensors"] == 272
