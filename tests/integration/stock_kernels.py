"""A worker of vLLM with its own LoRA kernels, for a test that shows what is wrong with them."""

import importlib

from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

importlib.reload(lora_ops)
for name in ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice"):
    setattr(punica_cpu, name, getattr(lora_ops, name))


class StockKernels:
    """Nothing of ours."""
