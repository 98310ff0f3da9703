"""Replies of a full model in a real vLLM engine, while its weights are replaced; started by
test_in_flight_engine.py."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.config import InferenceConfig
from pettingllms.errors import EngineDiedError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.policies.files import MODEL_FILE
from pettingllms.runtime.resources import CoreShare
from pettingllms.types import Failed, Sample, SampleRequest, ScoreRequest, VersionRun

PROMPT = (20 + np.arange(300) % 200).astype(np.int32)
MAX_TOKENS = 600
Runs = list[tuple[Sample, list[VersionRun]]]


def weights_of(model: Path, versions: int) -> list[dict[str, Any]]:
    """The model's weights, and versions of them that differ clearly."""
    import torch
    from safetensors.torch import load_file

    first = load_file(model / MODEL_FILE)
    generator = torch.Generator().manual_seed(3)
    found = [first]
    for _ in range(versions):
        last = found[-1]
        found.append(
            {
                name: tensor + 0.3 * tensor.std() * torch.randn(tensor.shape, generator=generator)
                if tensor.dim() > 1
                else tensor
                for name, tensor in last.items()
            }
        )
    return found


def gaps(lm: Any, samples: Runs, version: int) -> list[float]:
    """Differences between recorded log-probs and those of plain Transformers with the weights of a
    version, on the tokens of that version."""
    import torch

    found: list[float] = []
    for sample, runs in samples:
        ids = torch.from_numpy(np.concatenate([PROMPT, sample.ids])).long()[None]
        with torch.inference_mode():
            logp = torch.log_softmax(lm(input_ids=ids).logits[0, len(PROMPT) - 1 : -1].float(), -1)
        chosen = logp.gather(1, ids[0, len(PROMPT) :, None])[:, 0].numpy()
        sampled_by = np.repeat(*np.array(runs).T)
        assert sample.logprobs is not None
        found += np.abs(chosen - sample.logprobs)[sampled_by == version].tolist()
    return found


class Drive:
    def __init__(self, model: Path) -> None:
        import torch

        torch.set_num_threads(1)
        config = InferenceConfig(dtype="float32", max_model_len=1024, max_num_seqs=8)
        cores = CoreShare(num_threads=1, binds=False)
        self.engine = VllmEngine(
            EngineSpec(model, config, ("p",), in_flight=True, core_share=cores)
        )
        self.model, self.weights = model, weights_of(model, 3)

    async def publish(self, version: int) -> None:
        from safetensors.torch import save

        files = {MODEL_FILE: save(self.weights[version])}
        await self.engine.publish_weights("p", version, files)

    def sampling(self, seed: int, max_tokens: int = MAX_TOKENS) -> "asyncio.Task[list[Sample]]":
        async def sample() -> list[Sample]:
            request = SampleRequest("p", "r", PROMPT, 4, max_tokens, seed, "t")
            found = await self.engine.sample(request)
            assert not any(isinstance(one, Failed) for one in found), found
            return [one for one in found if isinstance(one, Sample)]

        return asyncio.create_task(sample())

    async def run(self) -> dict[str, Any]:
        await self.engine.start()
        await self.publish(1)
        await self.sampling(0, 2)  # the first request is slow
        running = self.sampling(1)
        await asyncio.sleep(0.5)
        await self.publish(2)
        after = await self.sampling(2, 20)  # the prompt's cache holds what old weights computed
        scored = await self.engine.score("p", ScoreRequest(PROMPT, after[0].ids))
        kept = await running
        failed = await self.interrupted()
        self.engine.stop()
        return {
            "kept": self.compared(kept),
            "after": self.compared(after),
            "scored": float(np.abs(scored - after[0].logprobs).max()),
            **failed,
        }

    async def interrupted(self) -> dict[str, Any]:
        """An update that fails, while replies are in progress, and the next one."""
        running = self.sampling(3)
        await asyncio.sleep(0.5)
        try:
            await self.engine.publish_weights("p", 9, {"model.safetensors": b"no weights"})
        except Exception as error:  # noqa: BLE001 - any
            failure = f"{type(error).__name__}: {error}"
        refusal = ""
        try:
            await self.sampling(4, 2)
        except EngineDiedError as error:
            refusal = str(error)
        await asyncio.sleep(1)
        held = not running.done()
        await self.publish(3)
        return {
            "failure": failure,
            "refusal": refusal,
            "held": held,
            "healed": self.compared(await running),
        }

    def compared(self, samples: list[Sample]) -> dict[str, Any]:
        import torch
        from transformers import AutoModelForCausalLM

        samples_runs: Runs = []
        for one in samples:
            num = len(one.ids) - sum(run.num_tokens for run in one.later_versions)
            runs = [VersionRun(one.policy_version, num), *one.later_versions]
            samples_runs.append((one, runs))
        lm = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32).eval()
        found: dict[int, list[float]] = {}
        for version in (1, 2, 3):
            lm.load_state_dict(self.weights[version], strict=False)
            found[version] = gaps(lm, samples_runs, version)
        return {
            "runs": [runs for _, runs in samples_runs],
            "gaps": {version: max(some) for version, some in found.items() if some},
            "compared": sum(map(len, found.values())),
            "tokens": sum(len(one.ids) for one in samples),
        }


if __name__ == "__main__":
    result = asyncio.run(Drive(Path(sys.argv[1])).run())
    Path(sys.argv[2]).write_text(json.dumps(result))
