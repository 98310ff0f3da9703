"""Overhead over the engines: our rollouts against plain vLLM, our learner against plain PyTorch.

Both sides do the same work with the same settings, alternating within one run, because machine
speed drifts. Ours is timed from outside, with all overhead; the plain side times only its own loop.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.bench.process import Process
from pettingllms.cluster.start import find_device, ray_running
from pettingllms.config import (
    ClusterConfig,
    InferenceConfig,
    LearnerConfig,
    RewardConfig,
    RolloutConfig,
    loss_config,
)
from pettingllms.config.policies import LoraPolicy
from pettingllms.envs import make_env
from pettingllms.errors import SamplerError
from pettingllms.inference.chat import ChatRenderer, stop_ids
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.vllm_options import vllm_environment, vllm_options
from pettingllms.inference.engines.vllm_worker import OWNER
from pettingllms.learners.batches import Item, item_of, turns_of
from pettingllms.learners.packing import pack_rows
from pettingllms.learners.serialization import Units
from pettingllms.models import find_model
from pettingllms.rollouts import Player, Worker
from pettingllms.runtime.resources import CoreShare, num_cores
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Sample, Sampler, SampleRequest, Task

POLICY = "shared"
REPLY_TOKENS = 64
LEARN_TOKENS = 2048
"""Upper bound on prompt and reply tokens per optimizer step."""
PASS_TOKENS = 1024
"""Tokens per forward and backward pass."""
SHARED_GPU, SHARED_MEMORY = 0.5, 0.4
"""GPU share and memory fraction of each of the two concurrent engines."""

Rate = Callable[[int], Awaitable[float]]
"""Tokens per second of one round, given its number."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Median tokens per second over the rounds, and the median of the rounds' ratios."""

    ours: float
    plain: float
    ratio: float
    ratios: tuple[float, ...]

    @classmethod
    def from_rounds(cls, rounds: Sequence[tuple[float, float]]) -> "Comparison":
        """Medians over rounds, each with our rate and the plain one."""
        ratios = [ours / plain for ours, plain in rounds]
        return cls(
            ours=round(statistics.median(ours for ours, _ in rounds), 1),
            plain=round(statistics.median(plain for _, plain in rounds), 1),
            ratio=round(statistics.median(ratios), 3),
            ratios=tuple(round(ratio, 3) for ratio in ratios),
        )


@dataclass(frozen=True, slots=True)
class EngineBench:
    """Throughput relative to the plain engines."""

    model: str
    device: str
    num_requests: int
    repeats: int
    rollout_ratio: float
    rollout_ratios: tuple[float, ...]
    """Ratio of each round, to show the noise."""
    rollout_tokens_per_second: float
    vllm_tokens_per_second: float
    learner_ratio: float
    learner_ratios: tuple[float, ...]
    learner_tokens_per_second: float
    torch_tokens_per_second: float


def bench_engine(
    model: str,
    num_requests: int = 64,
    repeats: int = 3,
    phase: Callable[[str], None] = lambda _: None,
) -> EngineBench:
    """Sample and train, alternating ours and plain. `phase` gets a description of each phase."""
    folder = find_model(model)
    with ray_running(ClusterConfig()):
        return asyncio.run(_bench(folder, num_requests, repeats, phase))


async def _bench(
    model: Path, num_requests: int, repeats: int, phase: Callable[[str], None]
) -> EngineBench:
    device, _ = find_device(ClusterConfig())
    phase(f"sampling {num_requests} concurrent replies, {repeats + 1} times per side")
    rollout, episodes = await _bench_rollout(model, device, num_requests, repeats)
    phase(f"training on them, {repeats + 1} times per side")
    learner = await _bench_learner(model, device, _items(episodes), repeats)
    return EngineBench(
        model=model.name,
        device=device,
        num_requests=num_requests,
        repeats=repeats,
        rollout_ratio=rollout.ratio,
        rollout_ratios=rollout.ratios,
        rollout_tokens_per_second=rollout.ours,
        vllm_tokens_per_second=rollout.plain,
        learner_ratio=learner.ratio,
        learner_ratios=learner.ratios,
        learner_tokens_per_second=learner.ours,
        torch_tokens_per_second=learner.plain,
    )


async def compare(ours: Rate, plain: Rate, repeats: int) -> Comparison:
    """Alternate which side goes first in each round; round 0 is a warm-up."""
    rounds = []
    for number in range(repeats + 1):
        if number % 2:
            our_rate = await ours(number)
            plain_rate = await plain(number)
        else:
            plain_rate = await plain(number)
            our_rate = await ours(number)
        rounds.append((our_rate, plain_rate))
    return Comparison.from_rounds(rounds[1:])


@dataclass(slots=True)
class RequestRecorder:
    """A sampler that only records requests."""

    requests: list[SampleRequest] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> list[Sample | Failed]:
        """Record the request and return failures."""
        self.requests.append(request)
        return [Failed("request recorded only", "sampler")] * request.num_samples


@dataclass(slots=True)
class Rollouts:
    """One reply per maze, all concurrent; every round has different mazes."""

    model: Path
    num_requests: int
    num_rounds: int
    renderer: ChatRenderer = field(init=False)
    tasks: Sequence[Task] = field(init=False)
    env: Any = field(init=False)

    def __post_init__(self) -> None:
        num_tasks = self.num_requests * self.num_rounds
        self.env = make_env("plan_path-v1", solo=True, max_rounds=1, num_tasks=num_tasks)
        self.tasks = self.env.tasks("train")
        self.renderer = ChatRenderer(self.model)

    async def run(self, sampler: Sampler, number: int) -> list[Episode]:
        """Run the episodes of a round."""
        player = Player(POLICY, sampler, self.renderer)
        config = RolloutConfig(type="linear", num_samples=1, max_reply_tokens=REPLY_TOKENS)
        worker = Worker(self.env, dict.fromkeys(self.env.roles, player), config, RewardConfig())
        episodes: list[Episode] = []
        first = number * self.num_requests
        await worker.run(self.tasks[first : first + self.num_requests], number, episodes.append)
        return episodes

    async def vllm_requests(self, number: int) -> dict[str, Any]:
        """The requests of a round's episodes, as vLLM prompts and sampling parameters."""
        recorder, stops = RequestRecorder(), stop_ids(self.model)
        await self.run(recorder, number)
        return {
            "prompts": [request.prompt_ids.tolist() for request in recorder.requests],
            "params": [
                {
                    "n": request.num_samples,
                    "max_tokens": request.max_tokens,
                    "temperature": request.temperature,
                    "seed": request.seed,
                    "logprobs": 0,
                    "stop_token_ids": stops,
                    "detokenize": False,
                }
                for request in recorder.requests
            ],
        }


async def _bench_rollout(
    model: Path, device: str, num_requests: int, repeats: int
) -> tuple[Comparison, list[Episode]]:
    """The comparison, and the episodes of the last round."""
    from pettingllms.cluster.engines import Engines
    from pettingllms.cluster.reservation import local_places

    rollouts = Rollouts(model, num_requests, repeats + 1)
    config = InferenceConfig(max_num_seqs=num_requests, gpu_memory_utilization=SHARED_MEMORY)
    places = local_places(1, _gpus(device))
    spec = EngineSpec(model, config, (POLICY,), device=device, core_share=places[0].core_share)
    environment = {name: value for name, value in vllm_environment(spec).items() if name != OWNER}
    engines = Engines([spec], places, 0, lambda _: None)
    plain = Process("pettingllms.inference.plain_vllm", environment)
    episodes: list[Episode] = []

    async def our_rate(number: int) -> float:
        start = time.perf_counter()
        episodes[:] = await rollouts.run(engines, number)
        seconds = time.perf_counter() - start
        failures = [
            turn.credit.failure for each in episodes for turn in each.turns if turn.credit.failure
        ]
        if failures:
            raise SamplerError(f"{len(failures)} replies failed: {failures[0].reason}")
        return sum(turn.num_tokens for each in episodes for turn in each.turns) / seconds

    async def plain_rate(number: int) -> float:
        done = await plain.call(**await rollouts.vllm_requests(number))
        return float(done["num_tokens"] / done["seconds"])

    try:
        await asyncio.gather(engines.start(), plain.call(options=vllm_options(spec)))
        return await compare(our_rate, plain_rate, repeats), episodes
    finally:
        plain.stop()
        await engines.stop()


async def _bench_learner(
    model: Path, device: str, items: Sequence[Item], repeats: int
) -> Comparison:
    from pettingllms.cluster.learners import Learners
    from pettingllms.cluster.reservation import Place
    from pettingllms.learners.learner_spec import LearnerSpec

    policy = LoraPolicy(model=str(model))
    config = LearnerConfig(max_batch_tokens=PASS_TOKENS)
    spec = LearnerSpec(
        model, {POLICY: policy}, config, loss_config(), REPLY_TOKENS, seed=0, device=device
    )
    num_threads = num_cores()
    place = Place({"num_cpus": 0, "num_gpus": _gpus(device)}, CoreShare(num_threads=num_threads))
    learners = Learners(spec, [place])
    plain = Process("pettingllms.learners.plain_loop", {})
    num_tokens = sum(item.num_tokens for item in items)
    units = Units(items)
    (passes,) = pack_rows(items, config.max_batch_tokens, 1)
    batches = [
        [(item.prompt_ids.tolist(), item.response_ids.tolist(), item.advantage) for item in batch]
        for batch in passes
    ]

    async def our_rate(number: int) -> float:
        start = time.perf_counter()
        await learners.call("train", POLICY, units, number)
        return num_tokens / (time.perf_counter() - start)

    async def plain_rate(_: int) -> float:
        return num_tokens / float((await plain.call(batches=batches))["seconds"])

    try:
        await asyncio.gather(
            learners.start(loopback=True),
            plain.call(
                model=str(model),
                rank=policy.rank,
                alpha=policy.alpha,
                lr=policy.lr,
                weight_decay=config.weight_decay,
                max_grad_norm=config.max_grad_norm,
                dtype=spec.dtype,
                device=device,
                num_threads=num_threads,
                seed=derive_seed(spec.seed, "adapter", POLICY),
            ),
        )
        return await compare(our_rate, plain_rate, repeats)
    finally:
        plain.stop()
        await learners.stop()


def _items(episodes: Sequence[Episode]) -> list[Item]:
    """The replies of one optimizer step, with alternating advantages of 1 and -1."""
    for at, episode in enumerate(episodes):
        for turn in episode.turns:
            turn.credit.advantage = 1.0 if at % 2 else -1.0
    items: list[Item] = []
    num_tokens = 0
    for item in map(item_of, turns_of(episodes, POLICY, skip_zero=False, has_head=False)):
        num_tokens += item.num_tokens
        if items and num_tokens > LEARN_TOKENS:
            break
        items.append(item)
    return items


def _gpus(device: str) -> float:
    return 0 if device == "cpu" else SHARED_GPU
