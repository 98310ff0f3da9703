"""A worker of vLLM with its own LoRA kernels, for a test that shows what is wrong with them."""

from pettingllms.inference import lora_kernels

lora_kernels.uninstall()


class StockKernels:
    """Nothing of ours."""
