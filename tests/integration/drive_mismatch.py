"""Train-inference mismatch of correct and of partly stale weights: vLLM and a learner, without Ray.

    python tests/integration/drive_mismatch.py MODEL RESULT.json bfloat16

Weights move by noise instead of training, so that the size of the step is known: each is changed by
`size` times the standard deviation of its tensor. A stale layer has kept the weights of the start.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pettingllms.cluster.canary import NUM_TOKENS as CANARY_TOKENS
from pettingllms.config import InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.inference.multimodal_chat import renderer_of
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.weights import from_bytes, to_bytes
from pettingllms.runtime.resources import CoreShare
from pettingllms.types import user

CHATS = {
    "Write one sentence about the sea.": "The sea is a vast body of salt water that covers most of "
    "the Earth, and it is home to many kinds of fish, plants and other living things.",
    "What is 17 + 25? Explain your answer.": "To find the answer, add the tens and then the ones: "
    "10 + 20 = 30 and 7 + 5 = 12, so 17 + 25 = 42.",
    "Name three animals and where they live.": "1. Lions live in the grasslands of Africa. 2. "
    "Polar bears live in the Arctic. 3. Kangaroos live in Australia.",
}
SIZES = {"float32": {"lora": 1e-4, "full": 1e-4}, "bfloat16": {"lora": 0.1, "full": 0.1}}
"""Of the noise; for an adapter, whose B is zero at first, the standard deviation of B."""


def policies_of(model: Path) -> dict[str, LoraPolicy | FullPolicy]:
    return {"lora": LoraPolicy(model=str(model), rank=16), "full": FullPolicy(model=str(model))}


def with_old_layer(old: Mapping[str, bytes], new: Mapping[str, bytes], layer: int) -> Any:
    """The new files, with the tensors of one layer as they were."""
    file = next(name for name in new if name.endswith(".safetensors"))
    before, after = from_bytes(old[file]), from_bytes(new[file])
    part = re.compile(rf"\.layers\.{layer}\.")
    assert any(part.search(name) for name in after)
    stale = {name: before[name] if part.search(name) else after[name] for name in after}
    return {**new, file: to_bytes(stale)}


@dataclass
class Sides:
    """An engine and a learner of one policy."""

    policy: str
    engine: VllmEngine
    learner: Learner
    items: list[Item]

    async def publish(self, version: int, files: Any) -> None:
        lora = self.policy == "lora"
        publish = self.engine.publish_adapter if lora else self.engine.publish_weights
        await publish(self.policy, version, files)

    def move(self, size: float) -> None:
        """Change the learner's weights by noise."""
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, weights in self.learner._parameters(self.policy).items():
                noise = size * torch.randn(weights.shape, generator=generator)
                if ".lora_B." in name:
                    weights.copy_(noise)
                elif self.policy == "full" and weights.ndim == 2:
                    weights.add_(noise * weights.std())

    def gap(self, items: list[Item]) -> float:
        read = self.learner.logprobs(self.policy, items, 1.0)
        off = [np.abs(one.logprobs - logp) for one, logp in zip(items, read, strict=True)]
        return float(np.concatenate(off).mean())

    async def look(self, name: str) -> dict[str, float]:
        """The gap on plain replies, and on a canary."""
        said = await self.engine.score_many(self.policy, [one.given for one in self.items])
        pairs = zip(self.items, said, strict=True)
        scored = [replace(one, logprobs=logp) for one, logp in pairs]
        found = {"replies": self.gap(scored[:-1]), "canary": self.gap(scored[-1:])}
        print(time.strftime("%X"), self.policy, name, json.dumps(found), flush=True)
        return found


async def measured(sides: Sides, layer: int, size: float) -> dict[str, Any]:
    policy, learner = sides.policy, sides.learner
    first = learner.files(policy)[0]
    sides.move(size)
    last = learner.files(policy)[0]
    await sides.publish(1, last)
    result = {"correct": await sides.look("correct")}
    await sides.publish(2, with_old_layer(first, last, layer))
    return result | {"stale layer": await sides.look("stale layer")}


def items_of(model: Path) -> list[Item]:
    """Plain replies, and last a canary."""
    renderer = renderer_of(model)
    pairs = [(renderer.render([user(text)]), renderer.encode(said)) for text, said in CHATS.items()]
    prompt = pairs[0][0]
    pairs.append((prompt, np.resize(prompt, CANARY_TOKENS)))
    return [Item(*pair, np.zeros(len(pair[1]), np.float32), 0.0) for pair in pairs]


async def main(model: Path, dtype: Any) -> dict[str, Any]:
    policies = policies_of(model)
    config = InferenceConfig(dtype=dtype, max_model_len=256, max_num_seqs=32)
    spec = EngineSpec(
        model, config, tuple(policies), 16, 1, core_share=CoreShare(num_threads=2, binds=False)
    )
    engine = VllmEngine(spec)
    await engine.start()
    num_layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    found = {}
    for name, policy in policies.items():
        one = {name: policy}
        learner = LearnerSpec(model, one, LearnerConfig(dtype=dtype), loss_config(), 64, 1)
        sides = Sides(name, engine, Learner(learner), items_of(model))
        found[name] = await measured(sides, num_layers // 2, SIZES[dtype][name])
    engine.stop()
    return found


if __name__ == "__main__":
    model, result, dtype = sys.argv[1:]
    Path(result).write_text(json.dumps(asyncio.run(main(Path(model), dtype)), indent=1))
