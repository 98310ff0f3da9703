"""A learner that is stopped, and one that is killed; started by test_learner_faults.py.

python drive_faults.py CONFIG RESULT
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pettingllms.cluster.start import ray_running
from pettingllms.config import RunConfig, load_config
from pettingllms.errors import ClusterError


async def learners_of(config: RunConfig, said: list[str]) -> Any:
    from pettingllms.cluster.learners import Learners
    from pettingllms.cluster.placement import learner_spec
    from pettingllms.cluster.reservation import local_places
    from pettingllms.models import find_model
    from pettingllms.policies import plan_models

    (group,) = plan_models(config)
    spec = learner_spec(config.for_device("cpu"), group, find_model(group.model), "cpu")
    learners = Learners(spec, local_places(2))
    learners.watch(config.cluster, said.append)
    await learners.start(loopback=True)
    return learners


async def failed(learners: Any, number: int) -> dict[str, Any]:
    """The error of a call while rank 1 gets a signal, and the seconds until it."""
    start = time.monotonic()
    os.kill((await learners.actors[1].place.remote()).pid, number)
    try:
        await learners.call("files", "a")
    except ClusterError as error:
        return {"error": str(error), "seconds": time.monotonic() - start}
    return {"error": "", "seconds": time.monotonic() - start}


async def scenario(config: RunConfig) -> dict[str, Any]:
    said: list[str] = []
    learners = await learners_of(config, said)
    place = await learners.actors[1].place.remote()
    stopped = await failed(learners, signal.SIGSTOP)
    os.kill(place.pid, signal.SIGCONT)
    await learners.stop()
    again = await learners_of(config, [])
    return {"said": said, "stopped": stopped, "killed": await failed(again, signal.SIGKILL)}


if __name__ == "__main__":
    own = load_config(Path(sys.argv[1]))
    with ray_running(own.cluster):
        Path(sys.argv[2]).write_text(json.dumps(asyncio.run(scenario(own))))
