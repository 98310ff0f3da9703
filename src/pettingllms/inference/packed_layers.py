"""Layers that vLLM computes from packed copies of their weights on CPU."""

from typing import Any


def repack(model: Any) -> int:
    """Repack the layers that keep plain weights beside a packed copy; their number.

    On CPU vLLM multiplies by a packed copy of a layer's weights. Reloading repacks only layers
    whose weights it loads. An output layer that is tied to the embedding is not among them: it
    would keep its initial weights.
    """
    layers = [
        layer for layer in model.modules() if hasattr(layer, "cpu_linear") and layer.weight.numel()
    ]
    for layer in layers:
        layer.quant_method.process_weights_after_loading(layer)
    return len(layers)
