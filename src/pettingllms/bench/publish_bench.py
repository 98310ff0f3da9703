"""New weights of a full model for its engines: streamed from the learner's shards, and as files.

Both ways publish the same weights to the same engines, alternating, because machine speed drifts.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.bench.cpu_time import cpu_seconds
from pettingllms.cluster.start import find_device, ray_running
from pettingllms.config import ClusterConfig, InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.engines import Dtype
from pettingllms.config.policies import FullPolicy
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import find_model

POLICY = "p"
MEMORY = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to publish; medians over rounds."""

    seconds: float
    cpu_seconds: float
    """Of the learner's ranks and the engines."""
    peak_mib: tuple[float, ...]
    """Largest memory of each rank above what it had before, over all rounds."""
    rounds: tuple[float, ...]
    """Seconds of each round."""


@dataclass(frozen=True, slots=True)
class PublishBench:
    """Publishing one model in both ways."""

    model: str
    dtype: str
    num_ranks: int
    num_replicas: int
    repeats: int
    stream: Way
    files: Way
    ratio: float
    """Seconds of files over those of the stream, as the median of the rounds' ratios."""


def bench_publish(
    model: str,
    dtype: Dtype = "float32",
    num_ranks: int = 2,
    num_replicas: int = 2,
    repeats: int = 3,
    phase: Callable[[str], None] = lambda _: None,
) -> PublishBench:
    """Publish in both ways in turn. `phase` gets a description of each round."""
    with ray_running(ClusterConfig()):
        bench = _Bench(find_model(model), dtype, num_ranks, num_replicas, phase)
        return asyncio.run(bench.run(repeats))


class _Bench:
    """A learner with engines, and the measurements."""

    def __init__(
        self,
        model: Path,
        dtype: Dtype,
        num_ranks: int,
        num_replicas: int,
        phase: Callable[[str], None],
    ) -> None:
        from pettingllms.cluster.engines import Engines
        from pettingllms.cluster.learners import Learners
        from pettingllms.cluster.reservation import local_places
        from pettingllms.cluster.weight_transfer import WeightTransfer

        self._model, self._phase = model, phase
        device, _ = find_device(ClusterConfig())
        config = InferenceConfig(dtype=dtype, max_model_len=256, max_num_seqs=8)
        gpus = 0 if device == "cpu" else 1
        places = local_places(num_replicas, gpus)
        specs = [
            EngineSpec(model, config, (POLICY,), device=device, core_share=place.core_share)
            for place in places
        ]
        self._engines = Engines(specs, places, 0, lambda _: None)
        policy = FullPolicy(model=str(model), lr=1e-5)
        options = LearnerConfig(num_ranks=num_ranks)
        spec = LearnerSpec(model, {POLICY: policy}, options, loss_config(), 16, 0, device)
        self._learners = Learners(spec, local_places(num_ranks, gpus))
        self._transfer = WeightTransfer(self._learners, dtype, 1, 600.0)
        self._dtype, self._num_ranks, self._num_replicas = dtype, num_ranks, num_replicas

    async def run(self, repeats: int) -> PublishBench:
        """Start everything, measure, and stop."""
        self._phase("loading the model")
        try:
            await asyncio.gather(self._learners.start(loopback=True), self._engines.start())
            rounds = []
            for number in range(repeats + 1):
                self._phase(f"round {number} of {repeats}")
                ways = [self._stream, self._files]
                measured = {
                    way.__name__: await self._measured(way, number)
                    for way in (ways if number % 2 else ways[::-1])
                }
                rounds.append(measured)
        finally:
            await self._engines.stop()
            await self._learners.stop()
        return self._summary(repeats, rounds[1:])

    async def _stream(self, version: int) -> None:
        from pettingllms.cluster.weight_transfer import Streamed

        await self._engines.publish(POLICY, Streamed(version, self._transfer))

    async def _files(self, version: int) -> None:
        from pettingllms.cluster.engines import Published

        files, _ = await self._learners.files(POLICY)
        await self._engines.publish(POLICY, Published("publish_weights", version, files))

    async def _measured(
        self, way: Callable[[int], Any], version: int
    ) -> tuple[float, float, Sequence[float]]:
        before = await self._on_ranks(start_peak)
        cpu, start = cpu_seconds(), time.perf_counter()
        await way(version)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        after = await self._on_ranks(peak_bytes)
        return seconds, cpu, [(b - a) / 2**20 for a, b in zip(before, after, strict=True)]

    async def _on_ranks(self, call: Callable[[Any], int]) -> list[int]:
        calls = (actor.__ray_call__.remote(call) for actor in self._learners.actors)
        return list(await asyncio.gather(*calls))

    def _summary(self, repeats: int, rounds: Sequence[dict[str, Any]]) -> PublishBench:
        stream, files = (_way([one[name] for one in rounds]) for name in ("_stream", "_files"))
        pairs = zip(files.rounds, stream.rounds, strict=True)
        ratio = statistics.median(slow / fast for slow, fast in pairs)
        return PublishBench(
            self._model.name,
            self._dtype,
            self._num_ranks,
            self._num_replicas,
            repeats,
            stream,
            files,
            round(ratio, 2),
        )


def _way(rounds: Sequence[tuple[float, float, Sequence[float]]]) -> Way:
    seconds, cpu, peaks = zip(*rounds, strict=True)
    return Way(
        round(statistics.median(seconds), 2),
        round(statistics.median(cpu), 2),
        tuple(round(max(one), 1) for one in zip(*peaks, strict=True)),
        tuple(round(one, 2) for one in seconds),
    )


def start_peak(_: Any) -> int:
    """Memory of this process, in bytes, from which its peak is measured anew."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_bytes(_: Any) -> int:
    """The largest memory of this process since `start_peak`."""
    return _status("VmHWM")


def _status(field: str) -> int:
    lines = MEMORY.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
