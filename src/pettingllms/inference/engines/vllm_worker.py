"""Loaded into vLLM's own worker processes.

They end with the process that owns the engine: else they would outlive an owner that was killed,
and keep their memory and cores for ever. After weights were reloaded, they pack the output layer
anew. On CPU they compute adapters with the kernels of `lora_kernels`.
"""

import os
import shutil
import signal
import threading
import time
from typing import Any

OWNER = "PETTINGLLMS_ENGINE_OWNER"
"""Environment variable with the process id of the owner."""
FOLDER = "PETTINGLLMS_ENGINE_FOLDER"
"""Environment variable with the folder of the owner's files, which go with it."""


class EngineExtension:
    """Methods that vLLM adds to its own worker."""

    model_runner: Any

    def repack(self) -> int:
        """Pack again what is computed from packed copies; how many layers that were.

        On CPU vLLM multiplies by a packed copy of a layer's weights. Reloading packs the layers
        whose weights it loads, and an output layer that is tied to the embedding is not among
        them: it would go on with the weights of the start.
        """
        layers = [
            layer
            for layer in self.model_runner.get_model().modules()
            if hasattr(layer, "cpu_linear") and layer.weight.numel()
        ]
        for layer in layers:
            layer.quant_method.process_weights_after_loading(layer)
        return len(layers)


EXTENSION = f"{__name__}.{EngineExtension.__name__}"
"""What vLLM is told to load, by its name."""


def end_with(owner: int, seconds: float = 1.0) -> None:
    """Wait for the owner to go, then end the engine's process and this one."""
    engine = os.getppid()
    while os.path.exists(f"/proc/{owner}"):  # noqa: PTH110 - a look at a process, not at a file
        time.sleep(seconds)
    shutil.rmtree(os.environ.get(FOLDER, ""), ignore_errors=True)
    if os.getppid() == engine:
        os.kill(engine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def prepare() -> None:
    """Get a worker process ready, before it loads the model."""
    from vllm.platforms import current_platform

    from pettingllms.inference import lora_kernels

    threading.Thread(target=end_with, args=(int(os.environ[OWNER]),), daemon=True).start()
    if current_platform.is_cpu():
        lora_kernels.install()


if OWNER in os.environ:
    prepare()
