"""Networks that make the team's value of its roles' values.

J joints of replies, R roles, E width of the network, H size of the state.
"""

# ruff: noqa: N803, N806

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, layer_norm

from pettingllms.algos.base import Mixer

WIDTH = 32


class SumMixer(nn.Module):
    """The team's value is the sum (Sunehag et al., 2018)."""

    def forward(self, value_JR: Tensor, spoke_JR: Tensor, _state_JH: Tensor) -> Tensor:
        """The team's values; a role that did not speak has no part in them."""
        return torch.where(spoke_JR, value_JR, 0).sum(1)


class MonotonicMixer(nn.Module):
    """A network of two layers whose weights are made from the state (Rashid et al., 2018).

    No weight on a role's value is negative and ELU rises, so the team's value never falls when a
    role's rises. The biases may have any sign. They begin with zeros, so that values of 0 mix to 0:
    a critic that has learnt nothing expects nothing. The second layer is divided by the width: the
    team's value begins by rising about a fifth as far as a role's, however wide the network is.
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

    def forward(self, value_JR: Tensor, spoke_JR: Tensor, state_JH: Tensor) -> Tensor:
        """The team's values; a role that did not speak has no part in them."""
        state_JH = layer_norm(state_JH, state_JH.shape[1:])
        first_JRE = self.first(state_JH).abs().view(-1, self._num_roles, self._width)
        second_JE = self.second(state_JH).abs() / self._width
        value_JR = torch.where(spoke_JR, value_JR, 0)
        mixed_JE = torch.einsum("jr,jre->je", value_JR, first_JRE)
        hidden_JE = elu(mixed_JE + self.first_bias(state_JH))
        mixed_J: Tensor = (hidden_JE * second_JE).sum(1) + self.second_bias(state_JH).squeeze(1)
        return mixed_J


def make_mixer(mixer: Mixer, num_roles: int, state_size: int) -> SumMixer | MonotonicMixer:
    """The mixer of that name."""
    return SumMixer() if mixer == "sum" else MonotonicMixer(num_roles, state_size)
