"""A process on the driver's machine that reads the content of episodes, such as to write them.

Rollout workers of a cluster may be on machines that do not reach the run folder. The driver itself
loads no content: its event loop would wait, and its memory would hold all tokens of a step.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pettingllms.types import Episode

T = TypeVar("T")


class Caller:
    """Calls functions in its process."""

    def call(self, function: Callable[[list[Episode]], T], episodes: list[Episode]) -> T:
        """Call a function; episodes with references load their content here."""
        return function(episodes)


def start_reader(max_restarts: int) -> Any:
    """The actor, which Ray restarts if it dies; a call that was under way is repeated."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"max_restarts": max_restarts, "max_task_retries": max_restarts}
    return ray.remote(Caller).options(num_cpus=0, scheduling_strategy=here, **options).remote()
