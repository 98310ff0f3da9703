"""vLLM's receiving end of a weight stream: a weight-transfer engine in each worker process.

On GPUs it has never been run.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader import reload

from pettingllms.inference.packed_layers import repack
from pettingllms.transfer.group import DTYPES, Group
from pettingllms.transfer.link import Entry, Link, Manifest

BACKENDS = ("gloo_stream", "nccl_stream")
"""Names of vLLM's option `weight_transfer_config`, by the backend of the process group."""

_reload: Any = reload  # without type hints


@dataclass
class StreamInit(WeightTransferInitInfo):
    """The process group to join."""

    link: dict[str, Any]


@dataclass
class StreamUpdate(WeightTransferUpdateInfo):
    """The tensors that will arrive."""

    manifest: dict[str, Any]


class WeightReceiver(WeightTransferEngine[StreamInit, StreamUpdate]):
    """Receives buckets of whole tensors and loads each into the model."""

    init_info_cls = StreamInit
    update_info_cls = StreamUpdate
    supports_draft_weight_update = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._group: Group | None = None
        self._incomplete = False
        """Whether an update has started and not finished."""

    def init_transfer_engine(self, init_info: StreamInit) -> None:
        self.shutdown()
        link = Link(**init_info.link)
        self._group = Group(link, link.first + self.parallel_config.rank, self.device)

    def start_weight_update(self) -> None:
        if self._incomplete:  # otherwise layers would count tensors of the interrupted update
            _reload.finalize_layerwise_reload(self.model, self.model_config)
        self._incomplete = True
        _reload.initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # The base class synchronizes an accelerator, which a CPU does not have.
        self.receive_weights(self.parse_update_info(update_info))

    @torch.no_grad()
    def receive_weights(self, update_info: StreamUpdate) -> None:
        assert self._group is not None  # noqa: S101 - init_transfer_engine was called
        model: Any = self.model
        manifest = Manifest.from_plain(update_info.manifest)
        with ExitStack() as on_failure:  # so that the learner and other engines do not wait
            on_failure.callback(self.shutdown)
            for bucket in manifest.buckets():
                numel = sum(entry.numel for entry in bucket)
                # New memory per bucket: layers keep tensors until all of their parts have arrived.
                flat = torch.empty(numel, dtype=DTYPES[manifest.dtype], device=self.device)
                self._group.broadcast(flat)
                model.load_weights(_tensors(flat, bucket))
            on_failure.pop_all()

    def finish_weight_update(self) -> None:
        _reload.finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            repack(self.model)
        self._incomplete = False

    def shutdown(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None


def _tensors(flat: Tensor, bucket: Sequence[Entry]) -> Iterator[tuple[str, Tensor]]:
    """The named tensors of a bucket, which share its memory."""
    at = 0
    for entry in bucket:
        yield entry.name, flat[at : at + entry.numel].view(entry.shape)
        at += entry.numel


def register() -> None:
    """Let vLLM find the receiver under the names of its backends."""
    for name in BACKENDS:
        WeightTransferEngineFactory.register_engine(name, WeightReceiver)
