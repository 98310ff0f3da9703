"""vLLM without our code, the baseline of `bench engine` for rollouts."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from pettingllms.inference.engines.vllm_worker import EXTENSION, OWNER


def load(options: dict[str, Any]) -> Callable[..., dict[str, float]]:
    """Load a vLLM engine; the function returned samples replies to a batch of prompts."""
    loop = asyncio.new_event_loop()
    engine = loop.run_until_complete(_start(options))
    num_rounds = 0

    def generate(
        prompts: Sequence[list[int]], params: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        nonlocal num_rounds
        num_rounds += 1
        return loop.run_until_complete(_generate(engine, str(num_rounds), prompts, params))

    return generate


async def _start(options: dict[str, Any]) -> Any:
    os.environ[OWNER] = str(os.getpid())  # vLLM's processes end with this one, however it ends
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**options, worker_extension_cls=EXTENSION))


async def _generate(
    engine: Any, name: str, prompts: Sequence[list[int]], params: Sequence[dict[str, Any]]
) -> dict[str, float]:
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    async def reply(number: int, prompt: Any, wanted: Any) -> int:
        num_tokens = 0
        async for output in engine.generate(prompt, wanted, f"{name}-{number}"):
            num_tokens = sum(len(each.token_ids) for each in output.outputs)
        return num_tokens

    kind = RequestOutputKind.FINAL_ONLY
    pairs = [
        (TokensPrompt(prompt_token_ids=ids), SamplingParams(output_kind=kind, **each))
        for ids, each in zip(prompts, params, strict=True)
    ]
    start = time.perf_counter()
    counts = await asyncio.gather(*(reply(at, *pair) for at, pair in enumerate(pairs)))
    return {"seconds": time.perf_counter() - start, "num_tokens": sum(counts)}
