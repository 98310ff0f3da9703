"""Sampling with a LoRA adapter on CPU: our kernels against vLLM's, and against the base alone.

One vLLM engine answers the same requests with each of the three, alternating, because machine speed
drifts. The measure is tokens per CPU-second of the engine's processes, which other load on the
machine changes less than wall time.
"""

import asyncio
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pettingllms.bench.cpu_time import cpu_seconds
from pettingllms.config import InferenceConfig
from pettingllms.config.engines import Dtype
from pettingllms.errors import SamplerError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.models import find_model
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, Files
from pettingllms.runtime.resources import CoreShare
from pettingllms.types import Sample, SampleRequest

ADAPTER, BASE = "adapter", "base"
SIDES = ("packed", "vllm", BASE)
"""Our kernels, vLLM's, and the model without an adapter."""
RANK = 16
PROMPT_TOKENS, REPLY_TOKENS = 16, 24


@dataclass(frozen=True, slots=True)
class SamplingBench:
    """Tokens per CPU-second; medians over rounds."""

    model: str
    dtype: str
    num_requests: int
    num_adapters: int
    repeats: int
    packed: float
    """With our LoRA kernels."""
    vllm: float
    """With vLLM's own, as in version 0.1."""
    base: float
    """Without an adapter."""
    ratio: float
    """Ours over vLLM's, as the median of the rounds' ratios."""
    ratios: tuple[float, ...]
    logprob_difference: float
    """Largest difference between the log-probs of both kernels, up to the first token that differs
    in a reply: a rounding error can change which token is drawn."""
    equal_share: float
    """Share of replies whose tokens are all equal."""


class SwitchedEngine(VllmEngine):
    """A vLLM engine whose LoRA kernels can be exchanged."""

    extension = "pettingllms.inference.kernel_switch.KernelSwitch"

    async def use_kernels(self, side: str) -> None:
        """Use one of `SIDES`, and forget what another one computed."""
        await self._vllm.collective_rpc("use_kernels", args=(side,))
        await self._reset_caches()


def bench_sampling(
    model: str,
    dtype: Dtype = "float32",
    num_requests: int = 64,
    num_adapters: int = 1,
    repeats: int = 3,
    phase: Callable[[str], None] = lambda _: None,
) -> SamplingBench:
    """Sample with each kind of kernel in turn. `phase` gets a description of each round."""
    return asyncio.run(_bench(find_model(model), dtype, num_requests, num_adapters, repeats, phase))


async def _bench(
    model: Path,
    dtype: Dtype,
    num_requests: int,
    num_adapters: int,
    repeats: int,
    phase: Callable[[str], None],
) -> SamplingBench:
    adapters = tuple(f"{ADAPTER}{at}" for at in range(num_adapters))
    config = InferenceConfig(dtype=dtype, max_model_len=512, max_num_seqs=num_requests)
    share = CoreShare(num_threads=1, binds=False)
    spec = EngineSpec(model, config, (BASE, *adapters), RANK, num_adapters, core_share=share)
    engine = SwitchedEngine(spec)
    phase("loading the model")
    await engine.start()
    try:
        files = random_adapter(model)
        for name in adapters:
            await engine.publish_adapter(name, 1, files)
        rounds = []
        for number in range(repeats + 1):
            phase(f"round {number} of {repeats}")
            order = SIDES if number % 2 else SIDES[::-1]
            rounds.append({side: await _round(engine, side, number, spec) for side in order})
    finally:
        engine.stop()
    return _summary(spec, repeats, rounds[1:])


@dataclass(frozen=True, slots=True)
class Round:
    """What one kind of kernel did in a round."""

    samples: Sequence[Sample]
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Tokens per CPU-second."""
        return sum(len(sample.ids) for sample in self.samples) / self.cpu_seconds


async def _round(engine: SwitchedEngine, side: str, number: int, spec: EngineSpec) -> Round:
    await engine.use_kernels(side)
    policies = [name for name in spec.policies if (name == BASE) == (side == BASE)]
    random, vocabulary = np.random.default_rng(number), _vocabulary(spec.model)
    requests = [
        SampleRequest(
            policies[at % len(policies)],
            "role",
            random.integers(vocabulary, size=PROMPT_TOKENS, dtype=np.int32),
            1,
            REPLY_TOKENS,
            seed=1000 * number + at,
            task_id=str(at),
        )
        for at in range(spec.config.max_num_seqs)
    ]
    start = cpu_seconds()
    found = await asyncio.gather(*(engine.sample(request) for request in requests))
    seconds = cpu_seconds() - start
    samples = [one for some in found for one in some if isinstance(one, Sample)]
    if len(samples) < len(requests):
        raise SamplerError(f"{len(requests) - len(samples)} of {len(requests)} replies failed")
    return Round(samples, seconds)


def _vocabulary(model: Path) -> int:
    """Tokens of a model's vocabulary."""
    config = json.loads((model / "config.json").read_bytes())
    return int(config.get("text_config", config)["vocab_size"])


def _summary(spec: EngineSpec, repeats: int, rounds: Sequence[dict[str, Round]]) -> SamplingBench:
    medians = {
        side: round(statistics.median(one[side].rate for one in rounds), 1) for side in SIDES
    }
    ratios = tuple(round(one["packed"].rate / one["vllm"].rate, 3) for one in rounds)
    pairs = [
        pair
        for one in rounds
        for pair in zip(one["packed"].samples, one["vllm"].samples, strict=True)
    ]
    num_equal = sum(np.array_equal(ours.ids, vllm.ids) for ours, vllm in pairs)
    return SamplingBench(
        model=spec.model.name,
        dtype=spec.dtype,
        num_requests=spec.config.max_num_seqs,
        num_adapters=spec.num_adapters,
        repeats=repeats,
        ratio=statistics.median(ratios),
        ratios=ratios,
        logprob_difference=max(_gap(ours, vllm) for ours, vllm in pairs),
        equal_share=round(num_equal / len(pairs), 3),
        **medians,
    )


def _gap(ours: Sample, vllm: Sample) -> float:
    """Largest difference of log-probs over the tokens that both drew."""
    assert ours.logprobs is not None  # noqa: S101 - vLLM returns log-probs
    assert vllm.logprobs is not None  # noqa: S101 - as above
    longest = min(len(ours.ids), len(vllm.ids))
    same = np.logical_and.accumulate(ours.ids[:longest] == vllm.ids[:longest])
    gaps = np.abs(ours.logprobs[:longest] - vllm.logprobs[:longest])[same]
    return float(gaps.max(initial=0.0))


def random_adapter(model: Path) -> Files:
    """A LoRA adapter of all linear layers of a model, which changes its replies."""
    from safetensors.numpy import save

    from pettingllms.models.folder import tensor_shapes

    generator = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {}
    for name, shape in tensor_shapes(model).items():
        layer, _, kind = name.rpartition(".")
        if kind != "weight" or not layer.endswith("_proj") or len(shape) != 2:
            continue
        outputs, inputs = shape
        prefix = f"base_model.model.{layer}"
        a = generator.standard_normal((RANK, inputs), np.float32) / inputs**0.5
        b = generator.standard_normal((outputs, RANK), np.float32) / 50
        weights |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "bias": "none",
        "target_modules": sorted({name.split(".")[-3] for name in weights}),
        "base_model_name_or_path": str(model),
    }
    return {ADAPTER_FILE: save(weights), ADAPTER_CONFIG: json.dumps(config).encode()}
