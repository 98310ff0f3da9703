"""The loss contract: log-probs and advantages in, a per-token objective out.

Shapes: B replies in a micro-batch, T tokens of the longest reply.

A loss class also declares its options and needs, which a configuration is checked against. So its
module imports torch only inside functions: reading a configuration must work without torch.
"""
# ruff: noqa: N803, N815 - shapes are in capitals

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from pettingllms.config import LossConfig
from pettingllms.errors import nearest

if TYPE_CHECKING:
    from torch import Tensor

Need = Literal["entropy", "reference_logprobs", "pairs"]
Terms = tuple["Tensor", dict[str, "Tensor"]]
"""Each token's objective, and metrics per token."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch. Values outside the mask are arbitrary, even NaN, until `policy_loss` zeroes
    them; `advantage_BT` keeps them."""

    logp_BT: "Tensor"
    """The learner's current log-probs, with gradient."""
    old_logp_BT: "Tensor"
    """The learner's log-probs before the first update on the batch."""
    sampler_logp_BT: "Tensor"
    """The inference engine's log-probs."""
    advantage_BT: "Tensor"
    """Advantages per token; a single column if all tokens of a reply share one."""
    mask_BT: "Tensor"
    """True on the tokens of the response."""
    entropy_BT: "Tensor | None" = None
    """With gradient; given if loss.entropy_coef is not 0, or if the loss needs "entropy"."""
    ref_logp_BT: "Tensor | None" = None
    """The reference model's log-probs; given if loss.kl_coef is not 0, or if the loss needs
    "reference_logprobs"."""
    stale_BT: "Tensor | None" = None
    """True on tokens that an older version of the policy sampled; None: there are none."""

    def token_advantages(self) -> "Tensor":
        """Advantages of all tokens, 0 outside the mask."""
        return self.advantage_BT.where(self.mask_BT, 0)


class Loss(ABC):
    """Turns log-probs and advantages into a per-token objective, which the learner maximizes.

    The learner adds the KL penalty and the entropy bonus, divides as `loss.normalize` names, and
    averages metrics over tokens. A loss of your own is one file, here CISPO (MiniMax, 2025):

        from pettingllms import Loss, LossConfig, LossInputs


        class CispoConfig(LossConfig):
            max_ratio: float = 5.0
            \"\"\"Upper bound of the ratio.\"\"\"


        class Cispo(Loss):
            Config = CispoConfig
            config: CispoConfig

            def objective(self, inputs: LossInputs):
                ratio_BT = (inputs.logp_BT - inputs.old_logp_BT).exp().detach()
                weight_BT = ratio_BT.clamp(max=self.config.max_ratio)
                objective_BT = weight_BT * inputs.token_advantages() * inputs.logp_BT
                return objective_BT, {"ratio": ratio_BT}

    A configuration names it by its file: `loss.type = "cispo.py:Cispo"`, `loss.max_ratio = 4.0`.
    """

    Config: ClassVar[type[LossConfig]] = LossConfig
    """The options that a configuration file may set under [loss]."""
    config: LossConfig
    """Their values. A loss with its own options annotates this with their class."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What the learner must provide besides log-probs and advantages. "entropy": the entropy per
    token. "reference_logprobs": log-probs of the model before training. "pairs": replies in pairs,
    the chosen one before the rejected one, with reference log-probs."""
    reply_metrics: ClassVar[frozenset[str]] = frozenset()
    """Metrics that are means over replies. Such a loss also measures "replies", whose sum is the
    number of replies."""

    def __init__(self, config: LossConfig | None = None) -> None:
        self.config = config or self.Config()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        given: Any = cls.needs
        needs = {given} if isinstance(given, str) else set(given)
        for unknown in sorted(needs - set(get_args(Need))):
            raise TypeError(f"{cls.__name__} needs '{unknown}'; {nearest(unknown, get_args(Need))}")

    @classmethod
    def needs_reference(cls, config: LossConfig) -> bool:
        """Whether the learner must compute reference log-probs; pairs bring theirs."""
        needed = config.kl_coef > 0 or "reference_logprobs" in cls.needs
        return needed and "pairs" not in cls.needs

    @abstractmethod
    def objective(self, inputs: LossInputs) -> Terms:
        """Each token's objective, and metrics per token by name.

        Inputs are 0 outside the mask, apart from `advantage_BT`. The importance weight for the
        train-inference mismatch is part of the objective: exp(old_logp_BT - sampler_logp_BT)."""


def reply_mean(value_BT: "Tensor", mask_BT: "Tensor") -> "Tensor":
    """The mean over each reply's tokens, as a column; 0 for a row of padding."""
    return value_BT.sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(min=1)
