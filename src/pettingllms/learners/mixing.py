"""Mixing networks: from values per role to the team's value.

J joint actions, R roles, E width of the network, H size of the state.
"""

# ruff: noqa: N803, N806

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, layer_norm

from pettingllms.algos.base import Mixer

WIDTH = 32


class SumMixer(nn.Module):
    """VDN: the team's value is the sum (Sunehag et al., 2018)."""

    def forward(self, value_JR: Tensor, acted_JR: Tensor, _state_JH: Tensor) -> Tensor:
        """The team's values; roles that did not act are excluded."""
        return torch.where(acted_JR, value_JR, 0).sum(1)


class MonotonicMixer(nn.Module):
    """QMIX: two layers whose weights a hypernetwork computes from the state (Rashid et al., 2018).

    Weights on role values are non-negative and ELU is monotonic, so the team's value never falls
    when a role's value rises. Biases may have any sign. They are initialized to zero, so that role
    values of 0 mix to 0. The second layer is divided by the width: initially the team's value rises
    by about a fifth of a role's rise, for any width.
    """

    def __init__(self, num_roles: int, state_size: int, width: int = WIDTH) -> None:
        super().__init__()
        self._num_roles, self._width = num_roles, width
        self.first = nn.Linear(state_size, num_roles * width)
        self.first_bias = nn.Linear(state_size, width)
        self.second = nn.Linear(state_size, width)
        self.second_bias = nn.Sequential(
            nn.Linear(state_size, width), nn.ReLU(), nn.Linear(width, 1)
        )
        for parameter in [*self.first_bias.parameters(), *self.second_bias[-1].parameters()]:
            nn.init.zeros_(parameter)

    def forward(self, value_JR: Tensor, acted_JR: Tensor, state_JH: Tensor) -> Tensor:
        """The team's values; roles that did not act are excluded."""
        state_JH = layer_norm(state_JH, state_JH.shape[1:])
        first_JRE = self.first(state_JH).abs().view(-1, self._num_roles, self._width)
        second_JE = self.second(state_JH).abs() / self._width
        value_JR = torch.where(acted_JR, value_JR, 0)
        mixed_JE = torch.einsum("jr,jre->je", value_JR, first_JRE)
        hidden_JE = elu(mixed_JE + self.first_bias(state_JH))
        mixed_J: Tensor = (hidden_JE * second_JE).sum(1) + self.second_bias(state_JH).squeeze(1)
        return mixed_J


def make_mixer(mixer: Mixer, num_roles: int, state_size: int) -> SumMixer | MonotonicMixer:
    """Create the mixer of that name."""
    return SumMixer() if mixer == "sum" else MonotonicMixer(num_roles, state_size)
