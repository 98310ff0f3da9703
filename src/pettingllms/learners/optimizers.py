"""Optimizers of learners and critics: parameter groups, gradient clipping, and state by name."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from pettingllms.config import LearnerConfig
from pettingllms.learners.weights import set_tensor, whole

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""State that AdamW keeps of each parameter."""

Part = tuple[Mapping[str, Tensor], float]
"""Parameters by name, and their learning rate."""


class NamedOptimizer:
    """An optimizer whose parameters have names, so that its state can be saved and restored.

    Only matrices decay. Biases, gains of norms and embeddings do not: pulling them toward zero
    changes the scale of activations, or forgets rare tokens, and does not regularize.
    """

    def __init__(
        self, parts: Sequence[Part], config: LearnerConfig, embeddings: frozenset[int]
    ) -> None:
        """`embeddings`: from `embeddings_of` the model."""
        self.parameters = {name: p for part, _ in parts for name, p in part.items()}
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            list(_groups(parts, config.weight_decay, embeddings)),
            betas=(config.momentum, config.beta2),
            eps=config.epsilon,
            fused=True,
        )
        self._max_norm = config.max_grad_norm

    def clip(self) -> float:
        """Clip the gradients; their norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self._max_norm)
        return float(whole(norm))

    def step(self, share: float) -> None:
        """Update the parameters with a share of their learning rates."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * share
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Free the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """The state of each parameter; empty before its first step. All ranks must call this."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            state = self.optimizer.state.get(parameter, {})
            found |= {f"{moment}.{name}": whole(state[moment]) for moment in MOMENTS if state}
        return found

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Restore the state."""
        for name, parameter in self.parameters.items():
            if f"step.{name}" not in saved:
                continue
            state = {"step": saved[f"step.{name}"].to(parameter.device, copy=True)}
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.zeros_like(parameter)
                set_tensor(state[moment], saved[f"{moment}.{name}"])
            self.optimizer.state[parameter] = state


def embeddings_of(model: nn.Module) -> frozenset[int]:
    """Ids of the parameters of embedding layers, also where an output layer shares them."""
    layers = (module for module in model.modules() if isinstance(module, nn.Embedding))
    return frozenset(id(parameter) for layer in layers for parameter in layer.parameters())


def _groups(
    parts: Sequence[Part], weight_decay: float, embeddings: frozenset[int]
) -> Iterator[dict[str, object]]:
    """Parameter groups by learning rate, and by whether they decay if there is a weight decay."""
    for parameters, lr in parts:
        by_decay: dict[float, list[Tensor]] = {}
        for parameter in parameters.values():
            decays = parameter.ndim > 1 and id(parameter) not in embeddings
            by_decay.setdefault(weight_decay if decays else 0.0, []).append(parameter)
        for decay, params in by_decay.items():
            yield {"params": params, "base": lr, "weight_decay": decay}
