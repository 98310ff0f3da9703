"""Code that is loaded into vLLM's worker processes.

Workers end with the process that owns the engine; otherwise they would outlive a killed owner and
keep its memory and cores. After weights are reloaded, they repack the output layer. They receive
streamed weights with `weight_receiver`. On CPU they compute adapters with the kernels of
`lora_kernels`.
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
"""Environment variable with the folder of the owner's files, which is removed with it."""


def receiver_of(device: str) -> str:
    """vLLM's name of the weight-transfer engine for a device."""
    return f"{'gloo' if device == 'cpu' else 'nccl'}_stream"


class EngineExtension:
    """Methods that vLLM adds to its workers."""

    model_runner: Any

    def repack(self) -> int:
        """Repack the layers that reloading leaves with old packed copies; their number."""
        from pettingllms.inference.packed_layers import repack

        return repack(self.model_runner.get_model())

    def abandon_update(self) -> None:
        """Forget that an interrupted weight update was active, so that another one can start."""
        self._weight_update_active = False


EXTENSION = f"{__name__}.{EngineExtension.__name__}"
"""The name by which vLLM loads the extension."""


def end_with(owner: int, seconds: float = 1.0) -> None:
    """Wait until the owner has ended, then end the engine's process and this one."""
    engine = os.getppid()
    while os.path.exists(f"/proc/{owner}"):  # noqa: PTH110 - a process, not a file
        time.sleep(seconds)
    shutil.rmtree(os.environ.get(FOLDER, ""), ignore_errors=True)
    if os.getppid() == engine:
        os.kill(engine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def prepare() -> None:
    """Prepare a worker process before it loads the model."""
    from vllm.platforms import current_platform

    from pettingllms.inference import lora_kernels, weight_receiver

    threading.Thread(target=end_with, args=(int(os.environ[OWNER]),), daemon=True).start()
    weight_receiver.register()
    if current_platform.is_cpu():
        lora_kernels.install()


if OWNER in os.environ:
    prepare()
