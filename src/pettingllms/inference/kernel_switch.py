"""A vLLM worker whose LoRA kernels can be exchanged, for `bench sampling`."""

from typing import Any

from pettingllms.inference import lora_kernels
from pettingllms.inference.engines.vllm_worker import EngineExtension
from pettingllms.inference.packed_adapters import pack


class KernelSwitch(EngineExtension):
    """Methods that vLLM adds to its workers."""

    def use_kernels(self, side: str) -> None:
        """Use vLLM's own kernels if `side` is "vllm", else ours."""
        from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA

        lora_kernels.uninstall()
        if side != "vllm":
            lora_kernels.install()
        for layer in self.model_runner.get_model().modules():
            if isinstance(layer, BaseLinearLayerWithLoRA):
                unpack(layer)
                if side != "vllm":
                    pack(layer)
        # The rows of a batch are grouped when vLLM sets them, which it skips for equal batches.
        manager = self.model_runner.lora_manager._adapter_manager  # noqa: SLF001 - vLLM has no other
        manager._last_mapping = None  # noqa: SLF001 - as above


def unpack(layer: Any) -> None:
    """Keep the adapters of a layer as vLLM does, each in its own buffer."""
    layer.lora_a_stacked = tuple(part.contiguous() for part in layer.lora_a_stacked)
    layer.lora_b_stacked = tuple(part.contiguous() for part in layer.lora_b_stacked)
