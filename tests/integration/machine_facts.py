"""Print which environment variables of CPU arithmetic reach the nodes of the cluster."""

import asyncio
import json
import os

from machines import ADDRESS

from pettingllms.cluster.start import ARITHMETIC, ray_running
from pettingllms.config import ClusterConfig


def variables(names: tuple[str, ...]) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in names}


async def found() -> dict[str, dict[str, str | None]]:
    from pettingllms.cluster.nodes import alive_nodes, on_node

    nodes = alive_nodes()
    return {node.address: await on_node(node, variables, tuple(ARITHMETIC)) for node in nodes}


if __name__ == "__main__":
    with ray_running(ClusterConfig(address=ADDRESS)):
        print(json.dumps(asyncio.run(found())))
