"""A VLM in real vLLM compared with the learner; started by test_vlm_engine.py."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from image_prompts import IMAGE_PROMPTS, asked, gaps, items_of, learner_of

from pettingllms.config import InferenceConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.models import make_tiny_vision
from pettingllms.types import ScoreRequest
from pettingllms.vision.families import FAMILIES

PARTS: list[Any] = ["language", "projector", "vision"]


async def drive(folder: Path, policy: FullPolicy | LoraPolicy) -> dict[str, Any]:
    """Compare vLLM with the learner on every image prompt, before and after training.

    `sampled` and `scored` are differences of log-probs; `said` has vLLM's log-probs of one reply.
    """
    adapted = isinstance(policy, LoraPolicy)
    config = InferenceConfig(dtype="float32", max_model_len=512, max_num_seqs=16)
    spec = EngineSpec(
        folder, config, ("p",), max_rank=8 * adapted, num_adapters=int(adapted),
        adapts_vision=adapted and bool(policy.supports_images_by),
    )  # fmt: skip
    engine, learner, renderer = VllmEngine(spec), learner_of(folder, policy), VisionRenderer(folder)
    reply = renderer.encode("B2")
    publish = engine.publish_adapter if adapted else engine.publish_weights

    async def compare() -> dict[str, Any]:
        requests = [
            asked(renderer, some, seed=at) for at, some in enumerate(IMAGE_PROMPTS.values())
        ]
        sampled = await asyncio.gather(*(engine.sample(request) for request in requests))
        given = [ScoreRequest(request.prompt_ids, reply, request.images) for request in requests]
        scored = await engine.score_many("p", given)
        return {
            "sampled": {
                name: max(gaps(learner, items_of(request, samples)))
                for name, request, samples in zip(IMAGE_PROMPTS, requests, sampled, strict=True)
            },
            "scored": {
                name: gaps(learner, [Item(*one[:2], logp, 0.0, images=one.images)])[0]
                for name, one, logp in zip(IMAGE_PROMPTS, given, scored, strict=True)
            },
            "said": {name: logp.tolist() for name, logp in zip(IMAGE_PROMPTS, scored, strict=True)},
            "replies": [
                Item(request.prompt_ids, s.ids, s.logprobs, float(at), images=request.images)
                for request, samples in zip(requests, sampled, strict=True)
                for at, s in enumerate(samples)
            ],
        }

    await engine.start()
    try:
        await publish("p", 0, learner.files("p")[0])
        before = await compare()
        for step in (1, 2):
            learner.train("p", before.pop("replies") if step == 2 else before["replies"], step)
        await publish("p", 1, learner.files("p")[0])
        after = await compare()
        del after["replies"]
    finally:
        engine.stop()
    return {"before": before, "after": after}


if __name__ == "__main__":
    root = Path(sys.argv[1])
    folder = make_tiny_vision(root / "eyes")
    folders = dict.fromkeys(("full", "language", "everywhere"), folder)
    for family in set(sys.argv[2:]) & set(FAMILIES):
        folders[family] = make_tiny_vision(root / family, family=family)
    policies: dict[str, FullPolicy | LoraPolicy] = {
        "full": FullPolicy(model=str(folder), lr=1e-3),
        "language": LoraPolicy(model=str(folder), rank=8, lr=1e-2),
        "everywhere": LoraPolicy(model=str(folder), rank=8, lr=1e-2, parts=PARTS),
    }
    policies |= {
        name: FullPolicy(model=str(folders[name]), lr=1e-3) for name in folders if name in FAMILIES
    }
    found = {name: asyncio.run(drive(folders[name], policies[name])) for name in sys.argv[2:]}
    (root / "result.json").write_text(json.dumps(found))
