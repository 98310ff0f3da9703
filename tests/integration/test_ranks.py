"""FSDP2 over two ranks gives what one rank gives, and what two wrote one can load."""

from pathlib import Path

import numpy as np
import pytest
from running import config_of, drive

pytestmark = pytest.mark.engine
TOLERANCE = 1e-5
"""Of losses and log-probs, relative and absolute: float32 sums in another order."""


@pytest.mark.parametrize("kind", ["lora", "full"])
@pytest.mark.parametrize("model", ["tiny", pytest.param("smollm2", marks=pytest.mark.slow)])
def test_two_ranks_equal_one(
    kind: str, model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    section = {"kind": kind, "model": str(request.getfixturevalue(model)), "lr": 1e-4}
    policies = {"a": section, "b": section} if kind == "lora" else {"a": section}
    roles = {f"role{n}": name for n, name in enumerate(policies)}
    config = config_of(
        policies,
        roles,
        learner={"max_batch_tokens": 64, "num_minibatches": 2},
        loss={"kl_coef": 0.01},
    )
    found = drive(tmp_path, "ranks", config)
    for policy in policies:
        one, two = (found[n]["losses"][policy] for n in ("1", "2"))
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=TOLERANCE)
        for mine, theirs in zip(
            found["1"]["logps"][policy], found["2"]["logps"][policy], strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
        for loaded, theirs in zip(
            found["loaded"][policy], found["2"]["logps"][policy], strict=True
        ):
            np.testing.assert_allclose(loaded, theirs, rtol=TOLERANCE, atol=TOLERANCE * 10)
    print({"weights_differ": found["weights_differ"], "moved": found["moved"]})
    assert found["same_files"], "what two ranks wrote is not what one loaded"
    assert found["weights_differ"] < 0.1 * found["moved"]
