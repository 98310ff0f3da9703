"""A plain PyTorch training loop, the baseline of `bench engine` for our learner.

B replies in a pass, L longest prompt plus reply, N reply tokens in all, H hidden size,
V vocabulary.
"""

# ruff: noqa: N806

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

Row = tuple[list[int], list[int], float]
"""A prompt, a reply, and its advantage."""


def load(
    model: str,
    rank: int,
    alpha: int,
    lr: float,
    weight_decay: float,
    max_grad_norm: float,
    dtype: str,
    device: str,
    num_threads: int,
    seed: int,
) -> Callable[..., dict[str, float]]:
    """Load a model with a LoRA adapter; the function returned makes one optimizer step."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(num_threads)
    lm: Any = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    torch.manual_seed(seed)
    lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    get_peft_model(lm, lora).to(device)
    lm.eval()
    trained = [p for p in lm.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=weight_decay, fused=True)

    def train(batches: Sequence[Sequence[Row]]) -> dict[str, float]:
        start = time.perf_counter()
        num_tokens = sum(len(reply) for batch in batches for _, reply, _ in batch)
        for batch in batches:
            ids_BL = torch.zeros(
                len(batch), max(len(p) + len(r) for p, r, _ in batch), dtype=torch.long
            )
            mask_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
            for row, (prompt, reply, _) in enumerate(batch):
                ids_BL[row, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
                mask_BL[row, len(prompt) : len(prompt) + len(reply)] = True
            ids_BL = ids_BL.to(device)
            row_N, column_N = mask_BL.to(device).nonzero(as_tuple=True)
            advantage_B = torch.tensor([advantage for *_, advantage in batch], device=device)
            with nullcontext() if dtype == "float32" else torch.autocast(device, torch.bfloat16):
                hidden_BLH = lm.model(input_ids=ids_BL, use_cache=False).last_hidden_state
                logits_NV = lm.lm_head(hidden_BLH[row_N, column_N - 1])
            loss_N = cross_entropy(logits_NV.float(), ids_BL[row_N, column_N], reduction="none")
            torch.autograd.backward((advantage_B[row_N] * loss_N).sum() / num_tokens)
        norm = torch.nn.utils.clip_grad_norm_(trained, max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": float(norm), "seconds": time.perf_counter() - start}

    return train
