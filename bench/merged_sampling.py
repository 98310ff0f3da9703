"""Sampling with a LoRA adapter beside its base against the same adapter merged into it, on CPU.

    python bench/merged_sampling.py MODEL [ROUNDS]

Two vLLM engines answer the same requests in turn. Prints tokens per CPU-second of each round, and
the largest difference between the log-probs of both engines for fixed replies.
"""

import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.bench.sampling_bench import ADAPTER, RANK, _round, random_adapter
from pettingllms.config import InferenceConfig
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE
from pettingllms.runtime.resources import CoreShare
from pettingllms.types import ScoreRequest

POLICY = f"{ADAPTER}0"


class PlainEngine(VllmEngine):
    """An engine that the rounds of `bench sampling` accept."""

    async def use_kernels(self, side: str) -> None:
        """Forget what earlier rounds computed."""
        await self._reset_caches()


def merged(model: Path, files: Any) -> dict[str, bytes]:
    """The model with the adapter added to it."""
    import torch
    from safetensors.torch import load, load_file, save

    adapter = load(files[ADAPTER_FILE])
    config = json.loads(files[ADAPTER_CONFIG])
    weights = {name: tensor.float() for name, tensor in load_file(model / MODEL_FILE).items()}
    for name in list(weights):
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{prefix}.lora_A.weight" in adapter:
            a, b = (adapter[f"{prefix}.lora_{part}.weight"] for part in "AB")
            weights[name] = torch.addmm(
                weights[name], b, a, alpha=config["lora_alpha"] / config["r"]
            )
    return {MODEL_FILE: save(weights)}


async def main(model: Path, repeats: int) -> None:
    """Start both engines and measure."""
    config = InferenceConfig(dtype="float32", max_model_len=512, max_num_seqs=64)
    share = CoreShare(num_threads=1, binds=False)
    specs = {
        "adapter": EngineSpec(model, config, (POLICY,), RANK, 1, core_share=share),
        "merged": EngineSpec(model, config, (POLICY,), core_share=share),
    }
    sides = {side: PlainEngine(spec) for side, spec in specs.items()}
    files = random_adapter(model)
    try:
        for engine in sides.values():
            await engine.start()
        await sides["adapter"].publish_adapter(POLICY, 1, files)
        await sides["merged"].publish_weights(POLICY, 1, merged(model, files))
        rounds = []
        for number in range(repeats + 1):
            order = [*sides] if number % 2 else [*sides][::-1]
            found = {}
            for side in order:
                found[side] = await _round(sides[side], side, number, specs[side])
            rounds.append(found)
            print({side: round(one.rate, 1) for side, one in found.items()}, flush=True)
        gaps = []
        for reply in rounds[-1]["adapter"].samples[:8]:
            given = ScoreRequest(np.arange(20, 36, dtype=np.int32), reply.ids)
            scores = [await engine.score(POLICY, given) for engine in sides.values()]
            gaps.append(float(np.abs(scores[0] - scores[1]).max()))
    finally:
        for engine in sides.values():
            engine.stop()
    ratios = [one["merged"].rate / one["adapter"].rate for one in rounds[1:]]
    print("merged over adapter:", round(statistics.median(ratios), 2), "log-probs:", max(gaps))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3))
