"""The module that a learner trains: ids in, log-probs of the replies out.

B replies in a pass, L longest prompt plus reply, T longest reply, N reply tokens in all, S = T + 1
value positions per reply, M value positions in all, H hidden size, V vocabulary.
"""

# ruff: noqa: N802, N803, N806

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.hidden_states import (
    can_share,
    embed_images,
    multimodal_states,
    shared_prompts,
    shared_states,
    unshared_states,
)
from pettingllms.learners.value_head import ValueHead, hidden_size
from pettingllms.types import Values
from pettingllms.vision.processor import ImageProcessor


class LogProbModel(nn.Module):
    """A causal language model whose forward pass returns log-probs; the FSDP root module.

    Logits are computed for reply tokens only, because they are the largest tensor of a pass.
    """

    def __init__(self, lm: Any, heads: Sequence[str] = ()) -> None:
        super().__init__()
        self.lm = lm
        self.can_share = can_share(self._plain().get_decoder())
        self._inner = {policy: f"head{at}" for at, policy in enumerate(heads)}
        size = hidden_size(lm)
        self.heads = nn.ModuleDict({inner: ValueHead(size) for inner in self._inner.values()})

    def _plain(self) -> Any:
        """The language model without PEFT's wrapper."""
        return self.lm.get_base_model() if hasattr(self.lm, "get_base_model") else self.lm

    def head(self, policy: str) -> nn.Module:
        """The value head of a policy."""
        return self.heads[self._inner[policy]]

    @property
    def output_layer(self) -> nn.Module:
        """The layer from hidden states to logits."""
        layer: nn.Module = self._plain().get_output_embeddings()
        return layer

    def forward(
        self,
        padded: "Padded",
        temperature: float,
        entropy: bool,
        head: str | None = None,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probs of all reply tokens, entropies of their distributions, and values of a policy's
        head. `whole`: only log-probs, by the model's own forward pass, as a check."""
        plain = self._plain()
        if whole:
            row_N, at_N = padded.where_N
            logits_BLV = plain(input_ids=padded.ids_BL, use_cache=False).logits
            return self._logprobs(logits_BLV[row_N, at_N - 1], padded, temperature)[0], None, None
        hidden_BSH = padded.hidden_states(plain.base_model, head is not None)
        logits_NV = self.output_layer(hidden_BSH[padded.at_N])
        logp_N, logp_NV = self._logprobs(logits_NV, padded, temperature)
        entropy_N = -(logp_NV.exp() * logp_NV).sum(-1) if entropy else None
        value_M = None if head is None else self.head(head)(hidden_BSH[padded.value_at_M])
        return logp_N, entropy_N, value_M

    def _logprobs(
        self, logits_NV: Tensor, padded: "Padded", temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Log-probs of the reply tokens, and of the whole vocabulary at their positions."""
        logp_NV = torch.log_softmax(logits_NV.float() / temperature, dim=-1)
        return logp_NV.gather(1, padded.ids_BL[padded.where_N].unsqueeze(1)).squeeze(1), logp_NV


class ValueModel(nn.Module):
    """A model that returns only values; the FSDP root module."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.decoder = lm.base_model
        self.can_share = can_share(self.decoder.get_decoder())
        self.head = ValueHead(hidden_size(lm))

    def forward(self, padded: "Padded") -> tuple[Tensor, Tensor]:
        """Values at all positions, and hidden states at the ends of prompts, without gradient."""
        hidden_BSH = padded.hidden_states(self.decoder, values=True)
        value_M: Tensor = self.head(hidden_BSH[padded.value_at_M])
        return value_M, hidden_BSH[:, 0].detach().float()


class Padded:
    """Replies as padded tensors. A pass without replies has one masked token."""

    def __init__(
        self,
        items: Sequence[Item],
        device: torch.device,
        may_share: bool = False,
        image_processor: ImageProcessor | None = None,
    ) -> None:
        lengths = [item.num_tokens for item in items] or [2]
        longest = max((len(item.response_ids) for item in items), default=1)
        ids = np.zeros((len(lengths), max(lengths)), dtype=np.int64)
        sampler = np.zeros((len(lengths), longest), dtype=np.float32)
        mask = np.zeros((len(lengths), longest), dtype=np.bool_)
        start = np.ones(len(lengths), dtype=np.int64)
        for row, item in enumerate(items):
            count, start[row] = len(item.response_ids), len(item.prompt_ids)
            ids[row, : item.num_tokens] = np.concatenate([item.prompt_ids, item.response_ids])
            sampler[row, :count] = item.logprobs
            mask[row, :count] = True
        row_N, at_N = mask.nonzero() if items else (np.zeros(1, np.int64), np.zeros(1, np.int64))
        self.ids_BL = torch.from_numpy(ids).to(device)
        self.mask_BT = torch.from_numpy(mask).to(device)
        self.sampler_logp_BT = torch.from_numpy(sampler).to(device)
        self.advantage_BT = torch.from_numpy(_advantages(items, longest)).to(device)
        self.where_N = (
            torch.from_numpy(row_N).to(device),
            torch.from_numpy(at_N + start[row_N]).to(device),
        )
        self.at_N = (self.where_N[0], torch.from_numpy(at_N).to(device))
        self._start_B = torch.from_numpy(start).to(device)
        self._images = embed_images(items, ids.shape[1], image_processor, device)
        # Prompts with equal ids may have different images, so they are not shared.
        may_share = may_share and self._images is None
        self._shared = shared_prompts(items, device) if may_share and items else None
        self._items, self._device = items, device

    def hidden_states(self, body: Any, values: bool) -> Tensor:
        """Hidden states before each reply token; for values also after the last one."""
        num_positions = self.mask_BT.shape[1] + values
        if self._images is not None:
            images, start_B = self._images, self._start_B
            return multimodal_states(body, images, self.ids_BL, start_B, num_positions)
        decoder = body.get_decoder()
        if self._shared is not None:
            return shared_states(decoder, self._shared, num_positions)
        return unshared_states(decoder, self.ids_BL, self._start_B, num_positions)

    def spread(self, values_N: Tensor) -> Tensor:
        """Arrange numbers of reply tokens in one row per reply."""
        out_BT = torch.zeros(self.mask_BT.shape, dtype=values_N.dtype, device=values_N.device)
        return out_BT.index_put(self.at_N, values_N)

    @cached_property
    def reference_BT(self) -> Tensor:
        """Log-probs of the reference model; NaN where they are not known."""
        return self._spread_rows([item.reference for item in self._items])[:, :-1]

    @cached_property
    def target_BS(self) -> Tensor:
        """Value targets; NaN where the critic is not trained. S = T + 1."""
        return self._spread_rows([item.targets for item in self._items])

    @cached_property
    def old_value_BS(self) -> Tensor:
        """Values from before the batch."""
        return self._spread_rows([item.values for item in self._items])

    def spread_values(self, values_M: Tensor) -> Tensor:
        """Arrange values in one row per reply."""
        shape = (self.mask_BT.shape[0], self.mask_BT.shape[1] + 1)
        out_BS = torch.zeros(shape, dtype=values_M.dtype, device=values_M.device)
        return out_BS.index_put(self.value_at_M, values_M)

    @cached_property
    def value_at_M(self) -> tuple[Tensor, Tensor]:
        """Value positions: the end of each prompt, then each reply token."""
        counts_B = torch.tensor([len(item.response_ids) + 1 for item in self._items] or [2])
        row_M, at_M = (torch.arange(int(counts_B.max())) < counts_B[:, None]).nonzero(as_tuple=True)
        return row_M.to(self._device), at_M.to(self._device)

    def _spread_rows(self, rows: Sequence[Values | None]) -> Tensor:
        out = np.full((self.mask_BT.shape[0], self.mask_BT.shape[1] + 1), np.nan, dtype=np.float32)
        for at, row in enumerate(rows):
            if row is not None:
                out[at, : len(row)] = row
        return torch.from_numpy(out).to(self._device)


def _advantages(items: Sequence[Item], longest: int) -> npt.NDArray[np.float32]:
    """A single column, unless advantages differ by token."""
    column = np.array([[item.advantage] for item in items] or [[0.0]], dtype=np.float32)
    if all(item.advantages is None for item in items):
        return column
    full = np.repeat(column, longest, axis=1)
    for row, item in enumerate(items):
        if item.advantages is not None:
            full[row, : len(item.advantages)] = item.advantages
    return full


def load_lm(folder: Path, dtype: torch.dtype) -> Any:
    """Load a model from a folder, with dropout disabled."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    supports_images = hasattr(
        AutoConfig.from_pretrained(folder, local_files_only=True), "vision_config"
    )
    auto: Any = AutoModelForImageTextToText if supports_images else AutoModelForCausalLM
    lm: Any = auto.from_pretrained(
        folder, dtype=dtype, local_files_only=True, use_safetensors=True, attn_implementation="sdpa"
    )
    lm.eval()  # no dropout: engines sample without it
    return lm


def decoder_layers(lm: Any) -> list[nn.Module]:
    """The transformer blocks, each of which FSDP shards."""
    for module in lm.get_decoder().modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, nn.ModuleList):
            return list(layers)
    raise LearnerError(
        f"{type(lm).__name__} has no list of layers to shard; set learner.num_ranks = 1"
    )
