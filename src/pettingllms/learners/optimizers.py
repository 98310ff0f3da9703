"""Optimizers of learners and critics: parameter groups, gradient clipping, and state by name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pettingllms.config import LearnerConfig
from pettingllms.errors import LearnerError
from pettingllms.learners import adafactor, eight_bit
from pettingllms.learners.adafactor import Adafactor
from pettingllms.learners.offload import HostState
from pettingllms.learners.weights import whole

MOMENTS = {
    "adamw": ("exp_avg", "exp_avg_sq", "step"),
    "adamw_8bit": ("exp_avg", "exp_avg_sq", "step"),
    "adafactor": adafactor.MOMENTS,
}
"""State that an optimizer can have of a parameter."""

Part = tuple[Mapping[str, Tensor], float]
"""Parameters by name, and their learning rate."""


class NamedOptimizer:
    """An optimizer whose parameters have names, so that its state can be saved and restored.

    Only matrices decay. Biases, gains of norms and embeddings do not: pulling them toward zero
    changes the scale of activations, or forgets rare tokens, and does not regularize.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        config: LearnerConfig,
        embeddings: frozenset[int],
        device: torch.device,
    ) -> None:
        """`embeddings`: from `embeddings_of` the model."""
        if problem := config.optimizer_problem(device.type):
            raise LearnerError(problem)
        self.parameters = {name: p for part, _ in parts for name, p in part.items()}
        groups = list(_groups(parts, config.weight_decay, embeddings))
        self.optimizer = _made(config, groups)
        self._moments = MOMENTS[config.optimizer]
        self._max_norm = config.max_grad_norm
        self.learning_rate = 0.0
        """That of the first part in the last step."""
        offloads = config.offload_optimizer and device.type != "cpu"
        self._host = HostState(self.optimizer, device) if offloads else None

    def clip(self) -> float:
        """Clip the gradients; their norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self._max_norm)
        return float(whole(norm))

    def step(self, share: float) -> None:
        """Update the parameters with a share of their learning rates."""
        self.learning_rate = self.optimizer.param_groups[0]["base"] * share
        for group in self.optimizer.param_groups:
            lr = group["base"] * share
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)  # compiled code holds the tensor
            else:
                group["lr"] = lr
        with self._on_device():
            self.optimizer.step()

    def zero_grad(self) -> None:
        """Free the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """The state of each parameter, sharded as it is; empty before its first step."""
        with self._on_device():
            return {
                f"{moment}.{name}": self._kept(eight_bit.as_floats(state[moment]))
                for name, parameter in self.parameters.items()
                if (state := self.optimizer.state.get(parameter))
                for moment in self._moments
                if moment in state
            }

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Restore the state; parameters that have none start anew."""
        names = [name for name in self.parameters if f"step.{name}" in saved]
        with self._on_device():
            self.optimizer.state.clear()
            _make_states(self.optimizer, [self.parameters[name] for name in names])
            for name in names:
                for moment, tensor in self.optimizer.state[self.parameters[name]].items():
                    if f"{moment}.{name}" not in saved:
                        raise LearnerError(
                            "the saved state is that of another optimizer; set learner.optimizer "
                            "to the one that the run was started with"
                        )
                    eight_bit.set_state(tensor, saved[f"{moment}.{name}"])

    def _kept(self, tensor: Tensor) -> Tensor:
        """A copy that outlives the state on the device, if it is there only now."""
        return tensor.clone() if self._host else tensor

    def _on_device(self) -> AbstractContextManager[None]:
        return self._host.on_device() if self._host else nullcontext()


def embeddings_of(model: nn.Module) -> frozenset[int]:
    """Ids of the parameters of embedding layers, also where an output layer shares them."""
    layers = (module for module in model.modules() if isinstance(module, nn.Embedding))
    return frozenset(id(parameter) for layer in layers for parameter in layer.parameters())


def _groups(
    parts: Sequence[Part], weight_decay: float, embeddings: frozenset[int]
) -> Iterator[dict[str, Any]]:
    """Parameter groups by learning rate, and by whether they decay if there is a weight decay."""
    for parameters, lr in parts:
        by_decay: dict[float, list[Tensor]] = {}
        for parameter in parameters.values():
            decays = parameter.ndim > 1 and id(parameter) not in embeddings
            by_decay.setdefault(weight_decay if decays else 0.0, []).append(parameter)
        for decay, params in by_decay.items():
            yield {"params": params, "base": lr, "weight_decay": decay}


def _made(config: LearnerConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if config.optimizer == "adafactor":
        return Adafactor(groups)
    betas, eps = (config.momentum, config.beta2), config.epsilon
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, betas=betas, eps=eps, fused=True)
    return eight_bit.make_adamw(groups, betas, eps)


def _make_states(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
    """Give parameters the state of an optimizer that made no step."""
    for parameter in parameters:
        if isinstance(optimizer, torch.optim.AdamW):
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            step = torch.zeros((), dtype=torch.float32, device=parameter.device)
            optimizer.state[parameter] = {"step": step, **moments}
        elif isinstance(optimizer, Adafactor):
            optimizer.state[parameter] = adafactor.empty_state(parameter)
        else:
            optimizer.state[parameter] = eight_bit.empty_state(optimizer, parameter)
