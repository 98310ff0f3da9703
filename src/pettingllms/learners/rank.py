"""One process of a learner or a critic: it joins the process group, then trains."""

import shutil
import socket
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.deferred import Deferred
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.rendezvous import FILE, Member, file_rendezvous, join, listen
from pettingllms.learners.shard_writer import Folder, ShardWriter, Written
from pettingllms.runtime.resources import CoreShare


class Rank:
    """A learner or critic that is created once all ranks have joined the process group."""

    def __init__(self, spec: LearnerSpec | CriticSpec, rank: int, core_share: CoreShare) -> None:
        torch.set_num_threads(core_share.threads)
        self._spec = spec
        self._rank = rank
        self._writer = ShardWriter(torch.device(spec.device))
        self._listener: socket.socket | None = None  # of rank 0 on several machines

    def rendezvous(self, address: str) -> str:
        """Where ranks find rank 0: at the address of its node; without one, in a file."""
        if not address:
            return file_rendezvous()
        self._listener = listen(address)
        return f"{address}:{self._listener.getsockname()[1]}"

    def free_place(self, address: str) -> str:
        """Where engines meet rank 0: on a free port of its node; without an address, in a file."""
        if not address:
            return file_rendezvous()
        with listen(address) as free:
            return f"tcp://{address}:{free.getsockname()[1]}"

    def start(self, rendezvous: str, address: str = "") -> str:
        """Join the process group, if there is one, and load the model; what users should know."""
        if rendezvous:
            member = Member(self._rank, self._spec.config.num_ranks, address)
            backend = "gloo" if self._spec.device == "cpu" else "nccl"
            join(rendezvous, member, backend, self._listener)
        spec = self._spec
        self._learner = Critic(spec) if isinstance(spec, CriticSpec) else Learner(spec)
        if rendezvous:
            dist.barrier()
        if rendezvous.startswith(FILE) and self._rank == 0:
            shutil.rmtree(Path(rendezvous.removeprefix(FILE)).parent)
        return self._learner.notice

    def sees(self, token: Path) -> bool:
        """Whether a file that the driver wrote, and that contains its own name, is here. A folder
        that this node may not enter, or a stale mount, is not."""
        try:
            return token.read_text(encoding="utf-8") == token.name
        except (OSError, UnicodeDecodeError):
            return False

    def save(self, policy: str, folder: Folder, background: bool) -> None:
        """Start to write this rank's part of a checkpoint of a policy or critic."""
        self._writer.start(policy, folder, *self._learner.parts(policy), background)

    def saved(self, policy: str) -> Written | None:
        """What became of the last `save` of a policy; None: it is under way."""
        return self._writer.poll(policy)

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the learner."""
        given = (arg.built() if isinstance(arg, Deferred) else arg for arg in args)
        return getattr(self._learner, method)(*given)
