"""A learner's end of a weight stream: buckets of whole tensors go from its shards to engines.

Rank 0 holds one bucket at a time, no rank the whole model. Never run on a GPU.
"""

import hashlib
import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from pettingllms.config.engines import Dtype
from pettingllms.errors import LearnerError
from pettingllms.learners.policy_store import PolicyStore
from pettingllms.learners.sharding import num_ranks, reshard
from pettingllms.learners.tensor_files import local_part
from pettingllms.learners.weights import describe
from pettingllms.transfer.group import DTYPES, FILE, Group
from pettingllms.transfer.link import BUCKET_BYTES, Entry, Link, Manifest


class WeightSender(PolicyStore):
    """The part of a learner that sends whole models to engines."""

    _group: Group | None = None
    bucket_bytes: ClassVar[int] = BUCKET_BYTES

    def join_stream(self, link: Link) -> None:
        """Join a process group with engines, which replaces an earlier one. Only rank 0 does."""
        if self._rank:
            return
        self._leave()
        if link.rendezvous.startswith(FILE):
            os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
        try:
            self._group = Group(link, 0, self._device)
        finally:
            if link.rendezvous.startswith(FILE):
                shutil.rmtree(Path(link.rendezvous.removeprefix(FILE)).parent, ignore_errors=True)

    def manifest(self, policy: str, dtype: Dtype) -> Manifest:
        """The tensors that `send` will send."""
        tensors, _ = self.sampled(policy)
        entries = tuple(Entry(name, tuple(tensor.shape)) for name, tensor in tensors.items())
        return Manifest(dtype, entries, self.bucket_bytes)

    @torch.no_grad()
    def send(self, policy: str, dtype: Dtype) -> str:
        """Send the weights that engines sample a policy with; return the policy's hash.

        If an engine fails, the other ranks still send their shards, so that all ranks stay in step.
        """
        reshard(self._model)
        tensors, pieces_of = self.sampled(policy)
        failure = ""
        for bucket in self.manifest(policy, dtype).buckets():
            numel = 0 if self._rank else sum(entry.numel for entry in bucket)
            flat = torch.empty(numel, dtype=DTYPES[dtype], device=self._device)
            at = 0
            for entry in bucket:
                for piece in pieces_of(entry.name, tensors[entry.name]):
                    flat[at : at + len(piece)].copy_(piece)
                    at += len(piece)
            if self._rank == 0 and not failure:
                failure = self._broadcast(flat)
        weight_hash = self.weight_hash(policy)  # by all ranks, also after a failure
        if failure:
            self._leave()
            raise LearnerError(f"the weights of '{policy}' did not reach all engines: {failure}")
        return weight_hash

    def weight_hash(self, policy: str) -> str:
        """A hash of a policy's current weights, by all ranks."""
        reshard(self._model)
        return shard_hash(self._parameters(policy))

    def _broadcast(self, flat: Tensor) -> str:
        """Send a bucket; why it failed, or empty. The error itself would keep the group connected,
        because its traceback refers to the pending call."""
        assert self._group is not None  # noqa: S101 - join_stream was called
        try:
            self._group.broadcast(flat)
        except RuntimeError as error:
            return str(error)
        return ""

    def _leave(self) -> None:
        if self._group is not None:
            with suppress(RuntimeError):  # the connection may be lost
                self._group.close()
            self._group = None


def shard_hash(tensors: Mapping[str, Tensor]) -> str:
    """A hash of weights to which every rank contributes checksums of its shards.

    It takes a tenth of the time of `fingerprint`, and depends on the number of ranks."""
    own = []
    for name in sorted(tensors):
        local, _ = local_part(tensors[name])
        content = local.contiguous().view(-1).cpu().view(torch.uint8).numpy().data
        own.append(describe(name, tensors[name]) + zlib.crc32(content).to_bytes(4, "little"))
    every = [own]
    if num_ranks() > 1:
        every = [[] for _ in range(num_ranks())]
        dist.all_gather_object(every, own)
    return hashlib.sha256(b"".join(part for some in every for part in some)).hexdigest()
