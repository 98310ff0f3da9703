"""Streams from a learner of two ranks to two engines, whole and interrupted; started by
test_stream_engine.py."""

import asyncio
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.cluster.start import ray_running
from pettingllms.config import ClusterConfig, InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy
from pettingllms.errors import ClusterError, EngineDiedError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.learners.batches import Item
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.policies.files import MODEL_FILE
from pettingllms.runtime.resources import CoreShare
from pettingllms.sandbox.process_usage import descendants
from pettingllms.types import SampleRequest, ScoreRequest

IDS = np.arange(20, 44, dtype=np.int32)
GIVEN = ScoreRequest(IDS[:12], IDS[12:])
ITEM = Item(IDS[:12], IDS[12:], -np.ones(12, np.float32), 1.0)
ENGINE = f"{Path(__file__).with_name('stream_probe.py')}:ProbedEngine"


def hashes_of(path: Path, dtype: str) -> dict[str, str]:
    import torch
    from safetensors.torch import load_file

    return {
        name: hashlib.sha256(
            tensor.to(getattr(torch, dtype)).view(torch.uint8).numpy().tobytes()
        ).hexdigest()
        for name, tensor in load_file(path).items()
    }


class Drive:
    def __init__(self, model: Path, dtype: str, bucket_bytes: int) -> None:
        from pettingllms.cluster.engines import Engines
        from pettingllms.cluster.learners import Learners
        from pettingllms.cluster.reservation import local_places
        from pettingllms.cluster.weight_transfer import WeightTransfer

        config = InferenceConfig(engine=ENGINE, dtype=dtype, max_model_len=128, max_num_seqs=8)
        spec = EngineSpec(model, config, ("p",), core_share=CoreShare(num_threads=1, binds=False))
        self.said: list[str] = []
        self.engines = Engines([spec, spec], local_places(2), 3, self.said.append)
        options = LearnerConfig(num_ranks=2)
        policies = {"p": FullPolicy(model=str(model), lr=1e-3)}
        learner = LearnerSpec(model, policies, options, loss_config(), 16, 5)
        self.learners = Learners(learner, local_places(2))
        self.transfer = WeightTransfer(self.learners, dtype, 1, 120.0)
        self.dtype, self.bucket_bytes = dtype, bucket_bytes
        self.found: dict[str, Any] = {}

    async def probe(self, method: str, *args: Any, at: int | None = None) -> list[Any]:
        actors = [replica.actor for replica in self.engines.replicas]
        chosen = actors if at is None else [actors[at]]
        return list(await asyncio.gather(*(a.probe.remote(method, *args) for a in chosen)))

    async def publish(self, version: int) -> None:
        from pettingllms.cluster.weight_transfer import Streamed

        await self.engines.publish("p", Streamed(version, self.transfer))

    async def scores(self) -> list[list[float]]:
        return [one.tolist() for one in await self.engines.score("p", GIVEN)]

    async def refusals(self) -> list[str]:
        """What engines say instead of an answer."""
        answers = await asyncio.gather(
            *(r.actor.score.remote("p", GIVEN) for r in self.engines.replicas),
            return_exceptions=True,
        )
        return [str(one) if isinstance(one, EngineDiedError) else "answered" for one in answers]

    async def run(self) -> dict[str, Any]:
        await asyncio.gather(self.learners.start(loopback=True), self.engines.start())
        size = self.bucket_bytes

        def smaller(rank: Any) -> None:
            type(rank._learner).bucket_bytes = size

        await asyncio.gather(*(a.__ray_call__.remote(smaller) for a in self.learners.actors))
        await self.probe("watch")
        for scenario in (
            self.whole, self.trained, self.held, self.failed, self.restarted, self.orphaned
        ):  # fmt: skip
            start = time.perf_counter()
            await scenario()
            print(scenario.__name__, round(time.perf_counter() - start, 1), flush=True)
        await self.engines.stop()
        return self.found

    async def whole(self) -> None:
        """Every tensor arrives, and both ways give the same model."""
        from pettingllms.cluster.engines import Published

        await self.publish(1)
        streamed = await self.scores()
        hashes = await self.probe("loaded")
        files, _ = await self.learners.files("p")
        sent = hashes_of(files[MODEL_FILE], self.dtype)
        await self.engines.publish("p", Published("publish_weights", 1, files))
        self.found["whole"] = {
            "tensors": len(sent),
            "equal": [one == sent for one in hashes],
            "scores_equal": streamed == await self.scores(),
        }

    async def trained(self) -> None:
        """New weights replace old ones, in cached prefixes as well."""
        before = await self.scores()
        await self.learners.call("train", "p", [ITEM], 1)
        await self.publish(2)
        (expected,) = await self.learners.call("logprobs", "p", [ITEM], 1.0)
        after = await self.scores()
        gaps = [float(np.abs(np.array(one) - expected).max()) for one in after]
        moved = [float(np.abs(np.subtract(*two)).max()) for two in zip(before, after, strict=True)]
        versions = [one["p"] for one in await self.engines.versions()]
        self.found["trained"] = {"gaps": gaps, "moved": moved, "versions": versions}

    async def held(self) -> None:
        """A request that arrives during a transfer is answered by the new version."""
        await self.probe("dawdle", 0.5)
        publishing = asyncio.create_task(self.publish(3))
        await asyncio.sleep(1.0)
        request = SampleRequest("p", "role", IDS[:12], 1, 8, seed=1, task_id="t")
        under_way = not publishing.done()
        (sample,) = await self.engines.sample(request)
        await publishing
        self.found["held"] = {"under_way": under_way, "version": sample.policy_version}
        await self.probe("dawdle", 0.0)

    async def failed(self) -> None:
        """A worker fails in the middle: engines refuse, until a whole update reaches them."""
        await self.learners.call("train", "p", [ITEM], 2)
        await self.probe("fail_at", 9, at=0)
        actors = [replica.actor for replica in self.engines.replicas]
        _, failures = await self.transfer.send("p", 4, actors)
        refusals = await self.refusals()
        await self.probe("loaded")
        await self.probe("fail_at", 9, at=0)
        await self.publish(4)  # fails once, and is repeated
        (expected,) = await self.learners.call("logprobs", "p", [ITEM], 1.0)
        healed = [float(np.abs(np.array(one) - expected).max()) for one in await self.scores()]
        self.found["failed"] = {
            "failures": [str(one) for one in failures],
            "refusals": refusals,
            "healed": healed,
            "restarts": [replica.num_restarts for replica in self.engines.replicas],
        }

    async def restarted(self) -> None:
        """An engine that is killed gets its weights from the learner again."""
        before = await self.scores()
        pid = await self.engines.replicas[1].actor.__ray_call__.remote(lambda _: os.getpid())
        for victim in descendants(pid):
            os.kill(victim, 9)
        after = await self.scores()
        versions = [one["p"] for one in await self.engines.versions()]
        self.found["restarted"] = {
            "equal": after == before,
            "versions": versions,
            "restarts": [replica.num_restarts for replica in self.engines.replicas],
        }
        await self.probe("watch", at=1)

    async def orphaned(self) -> None:
        """The learner is killed in the middle of a stream."""
        await self.probe("dawdle", 1.0)
        pid = await self.learners.actors[0].__ray_call__.remote(lambda _: os.getpid())
        await self.learners.call("train", "p", [ITEM], 3)
        publishing = asyncio.create_task(self.publish(5))
        await asyncio.sleep(2.5)
        os.kill(pid, 9)
        killed = time.perf_counter()
        try:
            await publishing
            error = ""
        except ClusterError as stopped:
            error = str(stopped)
        seconds = time.perf_counter() - killed
        self.found["orphaned"] = {
            "error": error,
            "seconds": seconds,
            "refusals": await self.refusals(),
        }


if __name__ == "__main__":
    model, dtype, size, result = sys.argv[1:]
    with ray_running(ClusterConfig()):
        found = asyncio.run(Drive(Path(model), dtype, int(size)).run())
    Path(result).write_text(json.dumps(found))
