"""A vLLM engine whose workers note the weights that they load, and fail or dawdle on request."""

import hashlib
import time
from typing import Any

from pettingllms.inference.engines.vllm import VllmEngine
from pettingllms.inference.engines.vllm_worker import EngineExtension


class StreamProbe(EngineExtension):
    """Methods in the workers."""

    def watch(self) -> None:
        """Note what is loaded from now on."""
        model = self.model_runner.get_model()
        self.hashes: dict[str, str] = {}
        self.fails_at, self.pause = -1, 0.0
        plain = type(model).load_weights

        def noted(weights: Any) -> Any:
            import torch

            for name, tensor in weights:
                content = tensor.contiguous().view(torch.uint8).numpy().tobytes()
                self.hashes[name] = hashlib.sha256(content).hexdigest()
                self.fails_at -= 1
                if self.fails_at == 0:
                    raise RuntimeError("this worker fails on purpose")
                yield name, tensor
            time.sleep(self.pause)

        model.load_weights = lambda weights: plain(model, noted(weights))

    def fail_at(self, tensor: int) -> None:
        """Fail once, at the n-th tensor from now."""
        self.fails_at = tensor

    def dawdle(self, seconds: float) -> None:
        """Take longer for every bucket."""
        self.pause = seconds

    def loaded(self) -> dict[str, str]:
        """Hashes of the tensors loaded since the last call."""
        found, self.hashes = self.hashes, {}
        return found


class ProbedEngine(VllmEngine):
    extension = "stream_probe.StreamProbe"

    async def probe(self, method: str, *args: Any) -> Any:
        """The answer of the first worker."""
        return (await self._vllm.collective_rpc(method, args=args))[0]
