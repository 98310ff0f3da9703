"""The module that a learner trains: ids in, log-probs of the replies out.

B replies in a pass, L their longest prompt and reply together, T their longest reply, N reply
tokens in all, H hidden size, V vocabulary.
"""

# ruff: noqa: N803, N806

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item

UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings by which some models change their logits after the last layer."""


class LogProbModel(nn.Module):
    """A causal language model whose forward pass gives log-probs; the root of FSDP's tree.

    Logits are made for reply tokens alone: over a vocabulary they are the largest tensor there is.
    """

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm
        changed = [name for name in UNSUPPORTED if getattr(lm.config, name, None) not in (None, 1)]
        if changed:
            raise LearnerError(
                f"{lm.config.model_type} models change their logits ({', '.join(changed)}), which "
                "the learner does not do; take a model of another family"
            )

    def forward(
        self, ids_BL: Tensor, where_N: tuple[Tensor, Tensor], temperature: float, entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probs of the tokens at `where_N`, and the entropies of what could have stood there.

        Padding stands on the right, where no causal model can see it.
        """
        plain = self.lm.get_base_model() if hasattr(self.lm, "get_base_model") else self.lm
        hidden_BLH = plain.get_decoder()(input_ids=ids_BL, use_cache=False).last_hidden_state
        row_N, column_N = where_N
        logits_NV = plain.get_output_embeddings()(hidden_BLH[row_N, column_N - 1])
        logp_NV = torch.log_softmax(logits_NV.float() / temperature, dim=-1)
        logp_N = logp_NV.gather(1, ids_BL[row_N, column_N].unsqueeze(1)).squeeze(1)
        return logp_N, -(logp_NV.exp() * logp_NV).sum(-1) if entropy else None


class Padded:
    """Replies side by side as tensors. A pass without any is one token that counts for nothing."""

    def __init__(self, items: Sequence[Item], device: torch.device) -> None:
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
        advantages = [item.advantage for item in items] or [0.0]
        self.advantage_B = torch.tensor(advantages, dtype=torch.float32, device=device)
        self.where_N = (
            torch.from_numpy(row_N).to(device),
            torch.from_numpy(at_N + start[row_N]).to(device),
        )
        self._row_at = (self.where_N[0], torch.from_numpy(at_N).to(device))

    def spread(self, values_N: Tensor) -> Tensor:
        """Values of reply tokens, each in its reply's row."""
        out_BT = torch.zeros(self.mask_BT.shape, dtype=values_N.dtype, device=values_N.device)
        return out_BT.index_put(self._row_at, values_N)


def load_lm(folder: Path, dtype: torch.dtype) -> Any:
    """The model of a folder, without dropout, ready to be trained or wrapped."""
    from transformers import AutoModelForCausalLM

    lm: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, local_files_only=True, use_safetensors=True, attn_implementation="sdpa"
    )
    lm.eval()  # dropout off: what was sampled without it is trained without it
    return lm


def decoder_layers(lm: Any) -> list[nn.Module]:
    """The blocks that a model is sharded by."""
    for module in lm.modules():
        layers = getattr(module, "layers", None)
        if isinstance(layers, nn.ModuleList):
            return list(layers)
    raise LearnerError(
        f"{type(lm).__name__} has no list of layers that it could be sharded by; set "
        "learner.num_ranks = 1"
    )
