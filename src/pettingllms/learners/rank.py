"""One process of a learner or a critic: it joins the process group, then trains."""

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec

FILE = "file://"


class Rank:
    """A learner or critic that is created once all ranks have joined the process group."""

    def __init__(self, spec: LearnerSpec | CriticSpec, rank: int, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        self._spec = spec
        self._rank = rank

    def rendezvous(self, loopback: bool) -> str:
        """Where ranks find rank 0: a file on one machine, which opens no port; else an address."""
        if loopback:
            return f"{FILE}{tempfile.mkdtemp(prefix='pettingllms-ranks-')}/store"
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return f"tcp://{socket.gethostbyname(socket.gethostname())}:{port}"

    def start(self, rendezvous: str) -> str:
        """Join the process group, if there is one, and load the model; what users should know."""
        if rendezvous:
            if rendezvous.startswith(FILE):
                os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
            dist.init_process_group(
                backend="gloo" if self._spec.device == "cpu" else "nccl",
                init_method=rendezvous,
                rank=self._rank,
                world_size=self._spec.config.num_ranks,
            )
        spec = self._spec
        self._learner = Critic(spec) if isinstance(spec, CriticSpec) else Learner(spec)
        if rendezvous:
            dist.barrier()
        if rendezvous.startswith(FILE) and self._rank == 0:
            shutil.rmtree(Path(rendezvous.removeprefix(FILE)).parent)
        return self._learner.notice

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the learner."""
        return getattr(self._learner, method)(*args)
