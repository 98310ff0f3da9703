"""The module that a learner trains: ids in, log-probs of the replies out.

Replies that were sampled from one prompt, as the siblings of a decision are, share it: where that
saves enough, prompts are read once each, and replies behind them.

B replies in a pass, L their longest prompt and reply together, T their longest reply, N reply
tokens in all, U prompts that differ, P the longest of them, H hidden size, V vocabulary.
"""

# ruff: noqa: N803, N806, N815

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item

UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings by which some models change their logits after the last layer."""

WORTH_SHARING = 0.7
"""Share of the tokens that may be left for prompts to be read once each."""


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
        self, padded: "Padded", temperature: float, entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probs of all reply tokens, and the entropies of what could have stood there."""
        plain = self.lm.get_base_model() if hasattr(self.lm, "get_base_model") else self.lm
        read = _read_shared if padded.shared is not None else _read_whole
        logits_NV = plain.get_output_embeddings()(read(plain.get_decoder(), padded))
        logp_NV = torch.log_softmax(logits_NV.float() / temperature, dim=-1)
        row_N, column_N = padded.where_N
        logp_N = logp_NV.gather(1, padded.ids_BL[row_N, column_N].unsqueeze(1)).squeeze(1)
        return logp_N, -(logp_NV.exp() * logp_NV).sum(-1) if entropy else None


def _read_whole(decoder: Any, padded: "Padded") -> Tensor:
    """What the model has in mind before each reply token: prompt and reply in one piece.

    Padding stands on the right, where no causal model can see it.
    """
    hidden_BLH = decoder(input_ids=padded.ids_BL, use_cache=False).last_hidden_state
    row_N, column_N = padded.where_N
    hidden_NH: Tensor = hidden_BLH[row_N, column_N - 1]
    return hidden_NH


def _read_shared(decoder: Any, padded: "Padded") -> Tensor:
    """The same, each prompt read once: what it left in the cache goes to all of its replies.

    Gradients flow back through the cache. The holes that padding leaves in it are masked.
    """
    from transformers import DynamicCache

    shared = padded.shared
    assert shared is not None  # noqa: S101 - the caller has looked
    cache: Any = DynamicCache(config=decoder.config)
    hidden_UPH = decoder(
        input_ids=shared.ids_UP,
        attention_mask=shared.mask_UP,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    last_B = shared.length_U[shared.of_B] - 1
    hidden_BTH = hidden_UPH[shared.of_B, last_B][:, None]
    if shared.reply_BT.shape[1] > 1:
        cache.batch_select_indices(shared.of_B)
        ids_BT = shared.reply_BT[:, :-1]
        at_T = torch.arange(1, ids_BT.shape[1] + 1, device=ids_BT.device)
        mask_BL = torch.cat([shared.mask_UP[shared.of_B], torch.ones_like(ids_BT)], dim=1)
        later_BTH = decoder(
            input_ids=ids_BT,
            attention_mask=mask_BL,
            position_ids=last_B[:, None] + at_T,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        hidden_BTH = torch.cat([hidden_BTH, later_BTH], dim=1)
    hidden_NH: Tensor = hidden_BTH[padded.at_N]
    return hidden_NH


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Prompts that differ, and which one each reply answers."""

    ids_UP: Tensor
    mask_UP: Tensor
    length_U: Tensor
    of_B: Tensor
    reply_BT: Tensor


class Padded:
    """Replies side by side as tensors. A pass without any is one token that counts for nothing."""

    def __init__(
        self, items: Sequence[Item], device: torch.device, may_share: bool = False
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
        advantages = [item.advantage for item in items] or [0.0]
        self.advantage_B = torch.tensor(advantages, dtype=torch.float32, device=device)
        self.where_N = (
            torch.from_numpy(row_N).to(device),
            torch.from_numpy(at_N + start[row_N]).to(device),
        )
        self.at_N = (self.where_N[0], torch.from_numpy(at_N).to(device))
        self.shared = _shared(items, longest, device) if may_share and items else None

    def spread(self, values_N: Tensor) -> Tensor:
        """Values of reply tokens, each in its reply's row."""
        out_BT = torch.zeros(self.mask_BT.shape, dtype=values_N.dtype, device=values_N.device)
        return out_BT.index_put(self.at_N, values_N)


def _shared(items: Sequence[Item], longest: int, device: torch.device) -> Shared | None:
    """The prompts of a pass, each once; None if reading replies behind them would save too little
    for the second pass that it takes."""
    prompts: dict[bytes, int] = {}
    of = [prompts.setdefault(item.prompt_ids.tobytes(), len(prompts)) for item in items]
    unique = [np.frombuffer(prompt, dtype=np.int32) for prompt in prompts]
    widest = max(map(len, unique))
    whole = len(items) * max(item.num_tokens for item in items)
    if len(unique) * widest + len(items) * longest > WORTH_SHARING * whole:
        return None
    ids = np.zeros((len(unique), widest), dtype=np.int64)
    mask = np.zeros((len(unique), widest), dtype=np.int64)
    replies = np.zeros((len(items), longest), dtype=np.int64)
    for row, prompt in enumerate(unique):
        ids[row, : len(prompt)], mask[row, : len(prompt)] = prompt, 1
    for row, item in enumerate(items):
        replies[row, : len(item.response_ids)] = item.response_ids
    arrays = (ids, mask, np.array(list(map(len, unique))), np.array(of), replies)
    return Shared(*(torch.from_numpy(array).to(device) for array in arrays))


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
