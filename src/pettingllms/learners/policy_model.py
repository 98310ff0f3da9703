"""The module that a learner trains: ids in, log-probs of the replies out.

N reply tokens in a pass, U distinct predictions, M value positions, B replies, P positions that the
model reads, H hidden size, V vocabulary.
"""

# ruff: noqa: N806

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pettingllms.errors import LearnerError
from pettingllms.learners.output_head import token_logprobs
from pettingllms.learners.reply_batch import ReplyBatch
from pettingllms.learners.sequences import PaddedSequences
from pettingllms.learners.tree_attention import Attend, float32_attention, install
from pettingllms.learners.value_head import ValueHead, hidden_size


class LogProbModel(nn.Module):
    """A causal language model whose forward pass returns log-probs; the FSDP root module.

    Logits are computed for reply tokens only, and in chunks: they would be the largest tensor.
    """

    def __init__(
        self, lm: Any, heads: Sequence[str] = (), attend: Attend = float32_attention
    ) -> None:
        super().__init__()
        self.lm = lm
        self.can_use_trees = install(self._plain().get_decoder(), attend)
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
        batch: ReplyBatch,
        temperature: float,
        entropy: bool,
        head: str | None = None,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probs of all reply tokens, entropies of their distributions, and values of a policy's
        head. `whole`: only log-probs, by the model's own forward pass, as a check."""
        plain = self._plain()
        if whole:
            return self._own_logprobs(plain, batch, temperature), None, None
        hidden_PH = batch.sequences.hidden_states(plain.base_model)
        hidden_UH = hidden_PH.index_select(0, batch.place_U)
        logp_U, entropy_U = token_logprobs(
            self.output_layer, hidden_UH, batch.target_U, temperature, entropy
        )
        entropy_N = None if entropy_U is None else entropy_U.index_select(0, batch.number_N)
        value_M = None
        if head is not None:
            value_M = self.head(head)(hidden_PH.index_select(0, batch.value_place_M))
        return logp_U.index_select(0, batch.number_N), entropy_N, value_M

    def _own_logprobs(self, plain: Any, batch: ReplyBatch, temperature: float) -> Tensor:
        """Log-probs of a padded batch by the model's own forward pass."""
        assert isinstance(batch.sequences, PaddedSequences)  # noqa: S101 - the check's batch is
        logits_BLV = plain(input_ids=batch.sequences.ids_BL, use_cache=False).logits
        logits_UV = logits_BLV.flatten(0, 1)[batch.place_U]
        logp_UV = torch.log_softmax(logits_UV.float() / temperature, dim=-1)
        return logp_UV.gather(1, batch.target_U[:, None]).squeeze(1)[batch.number_N]


class ValueModel(nn.Module):
    """A model that returns only values; the FSDP root module."""

    def __init__(self, lm: Any, attend: Attend = float32_attention) -> None:
        super().__init__()
        self.decoder = lm.base_model
        self.can_use_trees = install(self.decoder.get_decoder(), attend)
        self.head = ValueHead(hidden_size(lm))

    def forward(self, batch: ReplyBatch) -> tuple[Tensor, Tensor]:
        """Values at all positions, and hidden states at the ends of prompts, without gradient."""
        hidden_PH = batch.sequences.hidden_states(self.decoder)
        value_M: Tensor = self.head(hidden_PH.index_select(0, batch.value_place_M))
        return value_M, hidden_PH[batch.prompt_end_B].detach().float()


def load_lm(folder: Path, dtype: torch.dtype) -> Any:
    """Load a model from a folder, with dropout disabled."""
    lm: Any = auto_class(folder).from_pretrained(
        folder, dtype=dtype, local_files_only=True, use_safetensors=True, attn_implementation="sdpa"
    )
    lm.eval()  # no dropout: engines sample without it
    return lm


def auto_class(folder: Path) -> Any:
    """The class of Transformers that creates the model of a folder."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    supports_images = hasattr(config, "vision_config")
    return AutoModelForImageTextToText if supports_images else AutoModelForCausalLM


def decoder_layers(lm: Any) -> list[nn.Module]:
    """The transformer blocks, each of which FSDP shards."""
    for module in lm.get_decoder().modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, nn.ModuleList):
            return list(layers)
    raise LearnerError(
        f"{type(lm).__name__} has no list of layers to shard or to checkpoint; set "
        "learner.num_ranks = 1 and learner.activation_checkpointing = false"
    )
