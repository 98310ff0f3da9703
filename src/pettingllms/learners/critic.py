"""One rank of a critic with its own model: values out, targets in.

A mixing critic is trained on the team's value, which combines replies of different micro-batches
and ranks. So values of a minibatch are first computed without gradients; each rank mixes all of
them and computes the gradient of the loss by every value. Then each micro-batch backpropagates
these gradients through its own values. Mixing is cheap, and every rank repeats it, so the mixer is
not sharded.
"""

# ruff: noqa: N806

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pettingllms.algos.base import Mixer
from pettingllms.config import CriticConfig, LearnerConfig
from pettingllms.config.engines import resolve_dtype
from pettingllms.config.policies import LoraPolicy
from pettingllms.learners.accumulation import accumulated
from pettingllms.learners.adapters import Adapters
from pettingllms.learners.batches import Item, JointAction, split
from pettingllms.learners.checkpointing import checkpoint_layers
from pettingllms.learners.compiled import compile_layers
from pettingllms.learners.micro_batches import MicroBatches, rows_of
from pettingllms.learners.mixing import make_mixer
from pettingllms.learners.optimizers import NamedOptimizer, embeddings_of
from pettingllms.learners.policy_model import ValueModel, decoder_layers
from pettingllms.learners.reply_batch import ReplyBatch
from pettingllms.learners.sharded_load import open_lm
from pettingllms.learners.sharding import (
    DTYPES,
    arithmetic,
    num_ranks,
    own_rank,
    place_model,
    release_memory,
    reshard,
    trim_heap,
    trimmed_layers,
)
from pettingllms.learners.tree_check import checked
from pettingllms.learners.value_head import (
    binary_errors,
    explained,
    explained_variance,
    hidden_size,
    num_targets,
    squared_errors,
)
from pettingllms.learners.weight_stream import collect
from pettingllms.learners.weights import (
    load_tensors,
    tensors_in,
    to_bytes,
)
from pettingllms.policies.files import CRITIC_FILE, OPTIMIZER_FILE, Files
from pettingllms.seeds import derive_seed
from pettingllms.types import Values
from pettingllms.vision.processor import load_image_processor


@dataclass(frozen=True, slots=True)
class CriticSpec:
    """What a critic is created from."""

    model: Path
    critic: CriticConfig
    config: LearnerConfig
    seed: int
    mixer: Mixer | None = None
    roles: tuple[str, ...] = ()
    """Roles whose values are mixed."""
    device: str = "cpu"
    adapter: LoraPolicy | None = None
    """If set, the model is frozen, and an adapter is trained with the value head."""
    loss: Literal["squared", "binary"] = "squared"
    """`binary`: targets are 0 or 1, and values the log-odds of 1."""


class Critic:
    """Learns the values of replies."""

    def __init__(self, spec: CriticSpec) -> None:
        self._spec = spec
        self._ranks, self._rank = num_ranks(), own_rank()
        self._device = torch.device(spec.device)
        self._dtype = DTYPES[resolve_dtype(spec.config.dtype, spec.device)]
        lm, pending = open_lm(spec.model, self._dtype if spec.adapter else torch.float32)
        attend = compile_layers(lm, spec.config.compile, self._device, self._dtype)
        checkpoint_layers(lm, spec.config.activation_checkpointing, self._device)
        if spec.adapter is not None:
            lm = Adapters(lm, {"critic": spec.adapter}, spec.seed).model.get_base_model()
        self._model = ValueModel(lm, attend)
        micro_batches = MicroBatches(
            spec.config.max_batch_tokens,
            self._device,
            self._model.can_use_trees,
            True,
            load_image_processor(spec.model),
        )
        layers = decoder_layers(self._model.decoder) if self._ranks > 1 else []
        place_model(self._model, layers, self._device, self._dtype, pending)
        with trimmed_layers(self._model):
            self._micro_batches, self.notice = checked(
                micro_batches,
                lambda batch: self._forward(batch)[1],
                self._dtype,
                lm.config,
            )
            """Why the model cannot read token trees, or empty."""
        reshard(self._model)
        named = self._model.named_parameters()
        trained: dict[str, Tensor] = {name: p for name, p in named if p.requires_grad}
        rates: list[tuple[dict[str, Tensor], float]] = [(trained, spec.critic.lr)]
        self._mixer = None
        if spec.mixer is not None:
            torch.manual_seed(derive_seed(spec.seed, "mixer"))
            self._mixer = make_mixer(spec.mixer, len(spec.roles), hidden_size(lm))
            self._mixer.to(self._device)
            rates.append(
                ({f"mixer.{n}": p for n, p in self._mixer.named_parameters()}, spec.critic.mixer_lr)
            )
        embeddings = embeddings_of(self._model)
        self._parts = [  # sharded and plain parameters cannot share an optimizer
            NamedOptimizer([(parameters, lr)], spec.config, embeddings, self._device)
            for parameters, lr in rates
            if parameters
        ]
        self._num_updates = 0

    def values(self, joint_actions: Sequence[JointAction]) -> list[tuple[Values, float | None]]:
        """Values of every reply, and the team's value without that reply, if values are mixed."""
        items = [item for joint_action in joint_actions for item in joint_action.items]
        values, states = self._read(items)
        if self._mixer is None:
            return [(row, None) for row in values]
        return list(zip(values, self._mix(joint_actions, values, states), strict=True))

    def train(
        self, joint_actions: Sequence[JointAction], step: int, num_tokens: int = 0
    ) -> dict[str, float]:
        """Train on a batch and return metrics. `num_tokens`: tokens sampled before this step, for
        schedules by tokens."""
        start, config = time.perf_counter(), self._spec.config
        items = [item for joint_action in joint_actions for item in joint_action.items]
        losses, norms, num_skipped = [], [], 0
        values: list[float] = []
        returns: list[float] = []
        for epoch in range(config.num_epochs):
            seed = derive_seed(self._spec.seed, "critic", step, epoch)
            for part in split(joint_actions, config.num_minibatches, seed):
                mixed = None
                if self._mixer is not None:
                    mixed = self._value_gradients(part)
                    if not epoch:
                        values += mixed.values
                        returns += mixed.returns
                loss = self._accumulate(part, mixed)
                norm = self._clip()
                if np.isfinite(norm) and np.isfinite(loss):
                    self._update(step, num_tokens)
                    losses.append(loss)
                    norms.append(norm)
                else:
                    num_skipped += 1
                for moved in self._parts:
                    moved.zero_grad()
        release_memory(self._device)
        return {
            "value_loss": float(np.mean(losses)) if losses else 0.0,
            "explained_variance": explained(items)
            if self._mixer is None
            else explained_variance(np.array(values), np.array(returns)),
            "grad_norm": float(np.mean(norms)) if norms else 0.0,
            "skipped_updates": num_skipped,
            "updates": self._num_updates,
            "seconds": time.perf_counter() - start,
        }

    def saved(self) -> dict[str, bytes]:
        """Weights and optimizer state. All ranks must call this; only rank 0 returns files."""
        found = {name: collect(tensors) for name, tensors in self._tensors().items()}
        return {} if self._rank else {name: to_bytes(tensors) for name, tensors in found.items()}

    def parts(self, _: str) -> tuple[dict[str, dict[str, Tensor]], dict[str, bytes]]:
        """What a checkpoint has of the critic: sharded tensors by file, and other files."""
        return self._tensors(), {}

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """Sharded tensors of the files of `saved`."""
        trim_heap()
        reshard(self._model)
        moments: dict[str, Tensor] = {"num_updates": torch.tensor(self._num_updates)}
        for part in self._parts:
            moments |= part.state()
        weights = {n: p for part in self._parts for n, p in part.parameters.items()}
        return {CRITIC_FILE: weights, OPTIMIZER_FILE: moments}

    def load(self, files: Files) -> None:
        """Load weights, and optimizer state if present, saved by any number of ranks. Of a file
        that is given by its path, each rank reads its shard."""
        reshard(self._model)
        parameters = {n: p for part in self._parts for n, p in part.parameters.items()}
        load_tensors(parameters, tensors_in(files[CRITIC_FILE]), "a critic")
        if OPTIMIZER_FILE in files:
            moments = tensors_in(files[OPTIMIZER_FILE])
            for part in self._parts:
                part.load_state(moments)
            self._num_updates = int(moments["num_updates"])

    def _forward(self, batch: ReplyBatch) -> tuple[Tensor, Tensor]:
        """Values by reply and position, and the hidden state at each prompt's end."""
        with arithmetic(self._device, self._dtype):
            value_M, state_BH = self._model(batch)
        return batch.spread_values(value_M), state_BH

    def _read(self, items: Sequence[Item]) -> tuple[list[Values], list[Values]]:
        """Values, and hidden states at the ends of prompts, in the order of the items."""

        def compute(replies: Sequence[Item], batch: ReplyBatch) -> list[tuple[Values, Values]]:
            value_BS, state_BH = self._forward(batch)
            states = [state.copy() for state in state_BH[: len(replies)].cpu().numpy()]
            return list(zip(rows_of(replies, value_BS, 1), states, strict=True))

        both = self._micro_batches.map(items, compute)
        return [row for row, _ in both], [state for _, state in both]

    def _mix(
        self,
        joint_actions: Sequence[JointAction],
        values: Sequence[Values],
        states: Sequence[Values],
    ) -> list[float]:
        """For each item the team's value, given all replies of its joint action except its own."""
        table = JointValues(joint_actions, self._spec.roles, values, states, self._device)
        with torch.no_grad():
            without_JR = self._value_without_own(table)
        return [float(without_JR[index]) for index in table.indices]

    def _value_without_own(self, table: "JointValues") -> Tensor:
        """By role, the team's values given all replies except the role's own."""
        assert self._mixer is not None  # noqa: S101 - called only if values are mixed
        own_RR = torch.eye(len(self._spec.roles), dtype=torch.bool, device=self._device)
        columns = [
            self._mixer(
                torch.where(own_R, table.before_JR, table.after_JR), table.acted_JR, table.state_JH
            )
            for own_R in own_RR
        ]
        return torch.stack(columns, 1)

    def _value_gradients(self, joint_actions: Sequence[JointAction]) -> "ValueGradients":
        """Gradients of the mixed loss of a minibatch by every value, and by the mixer's weights."""
        assert self._mixer is not None  # noqa: S101 - as above
        items = [item for joint_action in joint_actions for item in joint_action.items]
        table = JointValues(joint_actions, self._spec.roles, *self._read(items), self._device)
        before_JR, after_JR = table.before_JR.requires_grad_(), table.after_JR.requires_grad_()
        return_J = torch.tensor(
            [_return(joint_action) for joint_action in joint_actions], device=self._device
        )
        without_JR, all_J = (
            self._value_without_own(table),
            self._mixer(after_JR, table.acted_JR, table.state_JH),
        )
        value_J = table.mean_over_acting(without_JR)
        errors_J = table.mean_over_acting((without_JR - return_J[:, None]).square())
        loss = (errors_J + (all_J - return_J).square()).mean() / 2
        torch.autograd.backward(loss)
        assert before_JR.grad is not None  # noqa: S101 - it was asked for
        assert after_JR.grad is not None  # noqa: S101 - as above
        gradients: dict[int, Values] = {}
        for item, index in zip(items, table.indices, strict=True):
            gradient = np.zeros(len(item.response_ids) + 1, dtype=np.float32)
            gradient[0] += float(before_JR.grad[index])
            gradient[-1] += float(after_JR.grad[index])
            gradients[id(item)] = gradient
        return ValueGradients(gradients, float(loss.detach()), value_J.tolist(), return_J.tolist())

    def _accumulate(
        self, joint_actions: Sequence[JointAction], mixed: "ValueGradients | None"
    ) -> float:
        """Accumulate a minibatch's gradients over micro-batches; its loss."""
        items = [item for joint_action in joint_actions for item in joint_action.items]
        count, clip = max(1, num_targets(items)), self._spec.critic.clip
        total = torch.zeros(())
        for replies in accumulated(self._model, self._micro_batches.split(items)):
            batch = self._micro_batches.batch(replies)
            value_BS, _ = self._forward(batch)
            if mixed is None and self._spec.loss == "binary":
                loss = binary_errors(value_BS, batch.target_BS) / count
            elif mixed is None:
                errors = squared_errors(value_BS, batch.old_value_BS, batch.target_BS, clip)
                loss = errors / count
            else:
                rows = np.zeros(tuple(value_BS.shape), dtype=np.float32)
                for row, item in enumerate(replies):
                    rows[row, : len(item.response_ids) + 1] = mixed.by_item[id(item)]
                loss = (value_BS * torch.from_numpy(rows).to(self._device)).sum()
            torch.autograd.backward(loss)
            total += loss.detach().cpu()
        if mixed is not None:
            return mixed.loss
        if self._ranks > 1:
            total = total.to(self._device)
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
        return float(total)

    def _clip(self) -> float:
        """Clip the gradients of each part by itself; the largest norm."""
        return float(np.max([part.clip() for part in self._parts]))

    def _update(self, step: int, num_tokens: int) -> None:
        share = self._spec.config.rate(self._num_updates, step, num_tokens)
        for part in self._parts:
            part.step(share)
        self._num_updates += 1


@dataclass(frozen=True, slots=True)
class ValueGradients:
    """Gradients of a mixed loss by the values of each item."""

    by_item: dict[int, Values]
    """By the item's id."""
    loss: float
    values: list[float]
    """The team's values given all replies except one, averaged over which."""
    returns: list[float]


class JointValues:
    """Values of joint actions by role: before and after each reply, which roles acted, the state.

    The state is the mean of the critic's hidden states at the prompts of the acting roles.
    """

    def __init__(
        self,
        joint_actions: Sequence[JointAction],
        roles: Sequence[str],
        values: Sequence[Values],
        states: Sequence[Values],
        device: torch.device,
    ) -> None:
        column = {role: at for at, role in enumerate(roles)}
        self.indices = [
            (row, column[role])
            for row, joint_action in enumerate(joint_actions)
            for role in joint_action.roles
        ]
        shape = (len(joint_actions), len(roles))
        before, after = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        acted = np.zeros(shape, np.bool_)
        state = np.zeros((len(joint_actions), len(states[0])), np.float32)
        for at, own, hidden in zip(self.indices, values, states, strict=True):
            before[at], after[at], acted[at] = own[0], own[-1], True
            state[at[0]] += hidden / len(joint_actions[at[0]].roles)
        self.before_JR = torch.from_numpy(before).to(device)
        self.after_JR = torch.from_numpy(after).to(device)
        self.acted_JR = torch.from_numpy(acted).to(device)
        self.state_JH = torch.from_numpy(state).to(device)

    def mean_over_acting(self, by_role: Tensor) -> Tensor:
        """For each joint action the mean over the roles that acted."""
        return torch.where(self.acted_JR, by_role, 0).sum(1) / self.acted_JR.sum(1)


def _return(joint_action: JointAction) -> float:
    targets = joint_action.items[0].targets
    assert targets is not None  # noqa: S101 - their turns have credit
    return float(targets[0])
