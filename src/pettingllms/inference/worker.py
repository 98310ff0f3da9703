"""Loaded into vLLM's own worker processes: they end with the process that owns the engine.

vLLM's engine runs in processes of its own, which outlive an owner that was killed and would keep
their memory and cores for ever.
"""

import os
import signal
import threading
import time

OWNER = "PETTINGLLMS_ENGINE_OWNER"
"""Environment variable with the process id of the owner."""


class Worker:
    """Adds nothing to vLLM's worker; loading this module is what counts."""


def end_with(owner: int, seconds: float = 1.0) -> None:
    """Wait for the owner to go, then end the engine's process and this one."""
    engine = os.getppid()
    while os.path.exists(f"/proc/{owner}"):  # noqa: PTH110 - a look at a process, not at a file
        time.sleep(seconds)
    if os.getppid() == engine:
        os.kill(engine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if OWNER in os.environ:
    threading.Thread(target=end_with, args=(int(os.environ[OWNER]),), daemon=True).start()
