"""One process of a learner: it joins its group, then trains."""

import os

import torch
import torch.distributed as dist

from pettingllms.learners.learner import Learner, LearnerSpec


class Rank(Learner):
    """A learner that knows the other ranks."""

    def __init__(
        self, spec: LearnerSpec, rank: int, num_ranks: int, meeting: str, num_threads: int
    ) -> None:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        torch.set_num_threads(num_threads)
        if num_ranks > 1:
            if meeting.startswith("file:"):
                os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            dist.init_process_group(
                backend="gloo" if spec.device == "cpu" else "nccl",
                init_method=meeting,
                rank=rank,
                world_size=num_ranks,
            )
        super().__init__(spec)

    def ready(self) -> bool:
        """Answer once the model is loaded."""
        return True
