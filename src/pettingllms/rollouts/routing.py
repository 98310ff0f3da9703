"""Which engine answers a request, and which requests a lockstep engine decodes together."""

from collections.abc import Sequence, Sized
from typing import Protocol

from pettingllms.seeds import derive_seed


class Measured(Protocol):
    """What batches are formed by: a request of an engine, or of a simulated one."""

    @property
    def policy(self) -> str:
        """The policy that replies."""

    @property
    def num_samples(self) -> int:
        """Number of replies."""

    @property
    def prompt_ids(self) -> Sized:
        """Ids of the prompt."""


def replica_of(task_id: str, num_replicas: int) -> int:
    """The replica that answers all requests of a task, so that its prefix cache has the prompt."""
    return derive_seed(task_id) % num_replicas


def lockstep_parts(requests: Sequence[Measured], max_replies: int) -> list[list[int]]:
    """Batches of requests, by index: one policy each, a bounded number of replies, and prompts of
    similar length together."""
    parts: list[list[int]] = []
    for policy in {request.policy: None for request in requests}:
        places = [at for at, request in enumerate(requests) if request.policy == policy]
        room = 0
        for at in sorted(places, key=lambda at: len(requests[at].prompt_ids)):
            if requests[at].num_samples > room:
                parts.append([])
                room = max_replies
            parts[-1].append(at)
            room -= requests[at].num_samples
    return parts
