"""Log-probs of fixed replies by vLLM at several temperatures; see test_distance_engine.py."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.config import InferenceConfig
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.types import ScoreRequest

TEMPERATURES = (1.0, 0.5, 0.0)
PROMPT, REPLIES = np.arange(5, 25, dtype=np.int32), ([30, 31, 32], [40], [5, 5, 5, 5])


async def scored(model: Path) -> dict[str, Any]:
    config = InferenceConfig(max_model_len=128, max_num_seqs=16)
    engine = VllmEngine(EngineSpec(model, config, ("p",)))
    await engine.start()
    given = [ScoreRequest(PROMPT, np.array(reply, np.int32)) for reply in REPLIES]
    found = {
        str(temperature): [one.tolist() for one in await engine.score_many("p", given, temperature)]
        for temperature in TEMPERATURES
    }
    engine.stop()
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1])
    (root / "scored.json").write_text(json.dumps(asyncio.run(scored(root / "tiny"))))
