"""One version's full model with two ranks and two engines; started by `publish_compare.py`."""

import asyncio
import json
import os
import sys
import time
from typing import IO, Any

from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig, parse_config


def config_of(model: str) -> RunConfig:
    """Keys that both versions know."""
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": model}},
            "inference": {
                "num_replicas": 2,
                "max_model_len": 512,
                "max_num_seqs": 8,
                "cache_gib": 1,
            },
            "learner": {"num_ranks": 2},
            "cluster": {"device": "cpu"},
        }
    )


async def serve(config: RunConfig, reports: IO[str]) -> None:
    """Publish once for every line on stdin; report the seconds, and those of the canary's check."""
    # These import Ray, which must not be before it starts.
    from pettingllms.cluster.team import Team
    from pettingllms.cluster.weight_sync import Publisher

    checks: list[float] = []
    check = Publisher.check

    async def timed_check(self: Publisher, *args: Any, **kwargs: Any) -> float:
        start = time.perf_counter()
        try:
            return await check(self, *args, **kwargs)
        finally:
            checks.append(time.perf_counter() - start)

    Publisher.check = timed_check  # type: ignore[method-assign]
    team = await Team.start(config, lambda text: print(text, file=sys.stderr))
    try:
        await team.load({}, {})
        print(json.dumps([0.0, 0.0]), file=reports, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            start = time.perf_counter()
            await team.publish(["p"])
            seconds = time.perf_counter() - start
            print(json.dumps([seconds, checks[-1]]), file=reports, flush=True)
    finally:
        await team.stop()


def main() -> None:
    """Start Ray and the team."""
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to stderr
    config = config_of(sys.argv[1])
    with ray_running(config.cluster):
        asyncio.run(serve(config, reports))


if __name__ == "__main__":
    main()
