"""Adapters on one real vLLM engine without Ray: batched with each other, replaced under way.

python tests/integration/drive_adapters.py MODEL RESULT.json stock
"""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.config import InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import PettingError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.runtime.resources import CoreShare
from pettingllms.types import SampleRequest

ADAPTERS = ("a", "b")
FROZEN = "frozen"
POLICIES = (FROZEN, *ADAPTERS)
PROMPT = np.arange(5, 45, dtype=np.int32)
REPLY = np.arange(50, 66, dtype=np.int32)
FIXED = Item(PROMPT, REPLY, np.zeros(len(REPLY), np.float32), 0.0)


def learner_of(model: Path, seed: int) -> Learner:
    """A learner whose adapters are large enough to tell apart."""
    import torch

    policies = {name: LoraPolicy(model=str(model), rank=8) for name in ADAPTERS}
    made = Learner(LearnerSpec(model, policies, LearnerConfig(), loss_config(), 16, seed))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for policy in ADAPTERS:
            for name, weights in made._parameters(policy).items():
                if ".lora_B." in name:
                    weights.copy_(0.2 * torch.randn(weights.shape, generator=generator))
    return made


def logprobs(learner: Learner, policy: str, items: list[Item]) -> list[Any]:
    if policy == FROZEN:
        return learner.base_logprobs(items)
    return learner.logprobs(policy, items, 1.0)


def gap(learner: Learner, policy: str, items: list[Item]) -> float:
    pairs = zip(items, logprobs(learner, policy, items), strict=True)
    return max(float(np.abs(one.logprobs - logp).max()) for one, logp in pairs)


async def together(engine: VllmEngine, learner: Learner) -> dict[str, Any]:
    """How far each policy is from the learner: alone, and batched with the others."""
    for policy in ADAPTERS:
        await engine.publish_adapter(policy, 1, learner.files(policy)[0])
    expected = {policy: logprobs(learner, policy, [FIXED])[0] for policy in POLICIES}
    requests = [SampleRequest(policy, "role", PROMPT, 2, 24, 3, "task") for policy in POLICIES]
    replies = await asyncio.gather(*(engine.sample(request) for request in requests))
    found: dict[str, Any] = {"alone": {}, "scored": {}, "sampled": {}}
    for policy, some in zip(POLICIES, replies, strict=True):
        items = [Item(PROMPT, one.ids, one.logprobs, 0.0) for one in some]
        found["sampled"][policy] = gap(learner, policy, items)
        alone = await engine.score(policy, FIXED.given)
        found["alone"][policy] = float(np.abs(alone - expected[policy]).max())
    try:
        scored = await engine.score_together(POLICIES, FIXED.given)
    except PettingError as error:
        return found | {"scored": type(error).__name__}
    off = {policy: float(np.abs(scored[policy] - expected[policy]).max()) for policy in POLICIES}
    return found | {"scored": off}


async def replaced(engine: VllmEngine, first: Learner, later: list[Learner]) -> dict[str, Any]:
    """Newer versions of an adapter while a request of the first one is under way."""
    request = SampleRequest("a", "role", PROMPT, 1, 400, 3, "task")
    long = asyncio.ensure_future(engine.sample(request))
    gaps = []
    for version, learner in enumerate(later, 2):
        await asyncio.sleep(0.2)
        await engine.publish_adapter("a", version, learner.files("a")[0])
        said = await engine.score("a", FIXED.given)
        gaps.append(float(np.abs(said - logprobs(learner, "a", [FIXED])[0]).max()))
    under_way = not long.done()
    num_folders = len(list(engine._folder.iterdir()))
    (reply,) = await long
    item = Item(PROMPT, reply.ids, reply.logprobs, 0.0)
    return {
        "under_way": under_way,
        "version": reply.policy_version,
        "num_tokens": len(reply.ids),
        "gaps": [gap(first, "a", [item]), *gaps],
        "num_folders": [num_folders, len(list(engine._folder.iterdir()))],
        "loaded": sorted(await engine._vllm.list_loras()),
    }


async def main(model: Path, kernels: str) -> dict[str, Any]:
    if kernels == "stock":
        VllmEngine.extension = "stock_kernels.StockKernels"
    first, *later = (learner_of(model, seed) for seed in (1, 2, 3))
    config = InferenceConfig(max_model_len=512, max_num_seqs=16)
    spec = partial(EngineSpec, model, config, POLICIES, 8, len(ADAPTERS))
    engine = VllmEngine(spec(core_share=CoreShare(num_threads=1, binds=False)))
    await engine.start()
    found = {"together": await together(engine, first)}
    if kernels != "stock":
        found["replaced"] = await replaced(engine, first, later)
    engine.stop()
    return found


if __name__ == "__main__":
    model, result, kernels = sys.argv[1:]
    Path(result).write_text(json.dumps(asyncio.run(main(Path(model), kernels))))
