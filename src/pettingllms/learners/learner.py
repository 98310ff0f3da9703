"""One rank of a learner: a model, the policies that share it, and one optimizer per policy.

Policies that share a model are trained one after another. Only the active policy's adapter is in
the graph, and each optimizer holds only its policy's parameters, so gradients cannot mix.
"""

# ruff: noqa: N803, N806

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from pettingllms.config import LossConfig
from pettingllms.config.engines import base_problem
from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.accumulation import accumulated
from pettingllms.learners.adapters import Adapters
from pettingllms.learners.batch_metrics import MAXIMA, Sums, mean_mismatch
from pettingllms.learners.batches import Item, Unit, replies_of, split
from pettingllms.learners.checkpointing import checkpoint_layers
from pettingllms.learners.compiled import compile_layers
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.logits_check import check_logits
from pettingllms.learners.losses.base import Loss, LossInputs
from pettingllms.learners.losses.policy_loss import Scale, policy_loss
from pettingllms.learners.micro_batches import KeptLogProbs, MicroBatches, rows_of
from pettingllms.learners.optimizers import NamedOptimizer, embeddings_of
from pettingllms.learners.policy_model import LogProbModel, decoder_layers
from pettingllms.learners.quantized_linear import quantize_layers
from pettingllms.learners.reply_batch import ReplyBatch
from pettingllms.learners.serialization import Rows
from pettingllms.learners.sharded_load import PendingWeights, open_lm
from pettingllms.learners.sharding import (
    DTYPES,
    arithmetic,
    gather_rows,
    num_ranks,
    own_rank,
    place_model,
    reduce_metrics,
    release_memory,
    reshard,
    trimmed_layers,
)
from pettingllms.learners.tree_check import checked
from pettingllms.learners.value_head import num_targets, squared_errors, value_metrics
from pettingllms.learners.weight_sender import WeightSender
from pettingllms.learners.weights import whole
from pettingllms.registry import LOSSES
from pettingllms.seeds import derive_seed
from pettingllms.types import LogProbs, Values
from pettingllms.vision.processor import load_image_processor


class Learner(WeightSender):
    """Trains the policies that share one model."""

    def __init__(self, spec: LearnerSpec) -> None:
        self._spec = spec
        self._ranks, self._rank = num_ranks(), own_rank()
        self._device = torch.device(spec.device)
        self._dtype = DTYPES[spec.dtype]
        lora = {n: p for n, p in spec.policies.items() if isinstance(p, LoraPolicy)}
        bits = spec.config.base_bits
        if bits and len(lora) < len(spec.policies):
            full = next(name for name in spec.policies if name not in lora)
            raise LearnerError(base_problem(bits, full))
        # A frozen base needs no more precision than it computes with.
        lm, pending = open_lm(spec.model, self._dtype if lora else torch.float32, bool(bits))
        attend = compile_layers(lm, spec.config.compile, self._device, self._dtype)
        if bits:
            quantize_layers(lm, bits)
        checkpoint_layers(lm, spec.config.activation_checkpointing, self._device)
        self._adapters = Adapters(lm, lora, spec.seed) if lora else None
        heads = spec.policies if spec.critic else ()
        trained = self._adapters.model if self._adapters else lm
        self._model = LogProbModel(trained, tuple(heads), attend)
        micro_batches = MicroBatches(
            spec.config.max_batch_tokens,
            self._device,
            self._model.can_use_trees,
            spec.critic is not None,
            load_image_processor(spec.model),
        )
        self._loss: type[Loss] = LOSSES.load(spec.loss.type)
        self._place(self._model, pending)
        self._reference: LogProbModel | None = None
        if self._loss.needs_reference(spec.loss) and not self._adapters:
            copy, pending = open_lm(spec.model, self._dtype)
            self._reference = LogProbModel(copy).requires_grad_(False)
            self._place(self._reference, pending)
        with trimmed_layers(self._model):
            check_logits(self._model, micro_batches, arithmetic(self._device, self._dtype))
            self._micro_batches, self.notice = checked(
                micro_batches,
                lambda batch: self._forward(self._model, batch, 1.0)[0],
                self._dtype,
                lm.config,
            )
            """Why the model cannot read token trees, or empty."""
        reshard(self._model)
        embeddings = embeddings_of(self._model)
        self._optimizers = {
            name: NamedOptimizer(self._rates(name), spec.config, embeddings, self._device)
            for name in spec.policies
        }
        self._num_updates = dict.fromkeys(spec.policies, 0)
        self._skipped: dict[str, list[Item]] = {}
        self._kept: KeptLogProbs | None = None

    def _place(self, model: LogProbModel, pending: PendingWeights | None) -> None:
        layers = decoder_layers(model.lm) if self._ranks > 1 else []
        place_model(model, layers, self._device, self._dtype, pending)

    def train(
        self,
        policy: str,
        units: Sequence[Unit],
        step: int,
        keep_logprobs: bool = False,
        num_tokens: int = 0,
        max_mismatch: float | None = None,
    ) -> dict[str, float]:
        """Train on a batch; metrics are means over its tokens.

        `keep_logprobs`: for `take_logprobs`. `num_tokens`: tokens sampled before this step. If
        the train-inference mismatch per token exceeds `max_mismatch` before the first optimizer
        step, no update is made and only the mismatch is returned."""
        self._activate(policy)
        items = replies_of(units)
        in_pairs = len(items) == 2 * len(units)
        assert in_pairs == ("pairs" in self._loss.needs) or not units  # noqa: S101
        self._kept = KeptLogProbs(items) if keep_logprobs else None
        start, config = time.perf_counter(), self._spec.config
        loss_config = self._loss_config(step, num_tokens)
        minibatches = split(units, config.num_minibatches, self._seed(policy, step, 0))
        epochs = [minibatches]
        for epoch in range(1, config.num_epochs):
            epochs += split(minibatches, 1, self._seed(policy, step, epoch))
        needs_old = sum(map(len, epochs)) > 1 or self._dropout(policy) > 0
        old = self._old_logprobs(policy, minibatches) if needs_old else None
        bound = np.inf if max_mismatch is None else max_mismatch
        sums = Sums(self._loss.reply_metrics)
        if old is not None and not (mismatch := mean_mismatch(items, old)) <= bound:
            return {"mismatch": mismatch}
        grad_norms, num_skipped, loss = [], 0, 0.0
        for part in chain.from_iterable(epochs):
            with self._with_dropout(policy, step):
                part_loss, part_sums = self._accumulate(policy, part, old, loss_config)
            sums.add(part_sums)
            if old is None and not (mismatch := sums.means()["mismatch"]) <= bound:
                self._optimizers[policy].zero_grad()
                return {"mismatch": mismatch}
            grad_norm = self._optimizers[policy].clip()
            if np.isfinite(grad_norm) and np.isfinite(part_loss):
                self._update(policy, step, num_tokens)
                grad_norms.append(grad_norm)
                loss += part_loss
            else:
                num_skipped += 1
                self._skipped.setdefault(policy, []).extend(replies_of(part))
            self._optimizers[policy].zero_grad()
        errors = sums.pop("value_errors", 0.0) / config.num_epochs
        valued = value_metrics(items, errors) if self._spec.critic else {}
        release_memory(self._device)
        return (
            sums.means()
            | valued
            | {
                "loss": loss / max(1, len(grad_norms)),
                "grad_norm": float(np.mean(grad_norms)) if grad_norms else 0.0,
                "skipped_updates": num_skipped,
                "updates": self._num_updates[policy],
                "learning_rate": self._optimizers[policy].learning_rate,
                "tokens": sum(item.num_tokens for item in items),
                "seconds": time.perf_counter() - start,
            }
        )

    def gradient(self, policy: str, units: Sequence[Unit]) -> Values:
        """The gradient of a batch without an update, as one row; for benchmarks and tests."""
        self._activate(policy)
        self._accumulate(policy, units, None, self._loss_config(1, 0))
        parameters = self._optimizers[policy].parameters.values()
        found = [whole(p.grad).flatten() for p in parameters if p.grad is not None]
        self._optimizers[policy].zero_grad()
        return torch.cat(found).numpy()

    def num_computed(self, units: Sequence[Unit]) -> int:
        """Tokens that this rank computes for a batch, padding included."""
        passes = map(replies_of, self._micro_batches.split(units))
        return sum(self._micro_batches.batch(p).sequences.num_positions for p in passes)

    def use_trees(self, use: bool) -> None:
        """Read token trees if the model can, or padded rows; for benchmarks and tests."""
        use_trees = use and not self.notice
        self._micro_batches = replace(self._micro_batches, use_trees=use_trees)

    def take_skipped(self, policy: str) -> list[Item]:
        """Replies of the minibatches that were skipped for a non-finite loss or gradient."""
        return self._skipped.pop(policy, [])

    def take_logprobs(self) -> list[LogProbs]:
        """Log-probs of the last batch before its first update, in the order of the batch."""
        kept, self._kept = self._kept, None
        assert kept is not None  # noqa: S101 - `train` was asked to keep them
        return Rows(gather_rows(kept.items, kept.found))

    def logprobs(
        self, policy: str, items: Sequence[Item], temperature: float | None = None
    ) -> list[LogProbs]:
        """Log-probs of replies under the learner's weights, in the order of the items."""
        self._activate(policy)
        own = self._spec.policies[policy].temperature
        return self._read_logprobs(items, own if temperature is None else temperature)

    def base_logprobs(self, items: Sequence[Item]) -> list[LogProbs]:
        """Log-probs under the base model without any adapter, at temperature 1."""
        with self._without_adapter():
            return self._read_logprobs(items, 1.0)

    def _read_logprobs(self, items: Sequence[Item], temperature: float) -> list[LogProbs]:
        def compute(replies: Sequence[Item], batch: ReplyBatch) -> list[LogProbs]:
            logp_N, _, _ = self._forward(self._model, batch, temperature)
            return rows_of(replies, batch.spread(logp_N))

        return Rows(self._micro_batches.map(items, compute))

    def values(self, policy: str, items: Sequence[Item]) -> list[Values]:
        """Values of the policy's value head, in the order of the items."""
        self._activate(policy)

        def compute(replies: Sequence[Item], batch: ReplyBatch) -> list[Values]:
            _, _, value_M = self._forward(self._model, batch, 1.0, head=policy)
            assert value_M is not None  # noqa: S101 - there is a head
            return rows_of(replies, batch.spread_values(value_M), 1)

        return Rows(self._micro_batches.map(items, compute))

    def _activate(self, policy: str) -> None:
        if policy not in self._spec.policies:
            raise LearnerError(f"this learner does not train '{policy}'")
        if self._adapters:
            reshard(self._model)
            self._adapters.activate(policy)

    def _forward(
        self,
        model: LogProbModel,
        batch: ReplyBatch,
        temperature: float,
        entropy: bool = False,
        head: str | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        with arithmetic(self._device, self._dtype):
            result: tuple[Tensor, Tensor | None, Tensor | None] = model(
                batch, temperature, entropy, head
            )
        return result

    def _dropout(self, policy: str) -> float:
        found = self._spec.policies[policy]
        return found.dropout if isinstance(found, LoraPolicy) else 0.0

    def _with_dropout(self, policy: str, step: int) -> AbstractContextManager[None]:
        """Dropout in passes that compute gradients, drawn anew for each update and rank."""
        if self._adapters is None or not self._dropout(policy):
            return nullcontext()
        names = ("dropout", policy, step, self._num_updates[policy], self._rank)
        return self._adapters.dropout(policy, derive_seed(self._spec.seed, *names))

    def _seed(self, policy: str, step: int, epoch: int) -> int:
        return derive_seed(self._spec.seed, policy, step, epoch)

    def _old_logprobs(self, policy: str, parts: Sequence[Sequence[Unit]]) -> dict[int, LogProbs]:
        """Log-probs before the first update; needed only with several updates per batch.

        They are computed by minibatches, as training will: in bfloat16, sharing prompts among other
        replies changes log-probs by more than GSPO's clip bounds."""
        old: dict[int, LogProbs] = {}
        for items in map(replies_of, parts):
            old |= zip(map(id, items), self.logprobs(policy, items), strict=True)
        return old

    def _accumulate(
        self,
        policy: str,
        units: Sequence[Unit],
        old: Mapping[int, LogProbs] | None,
        config: LossConfig,
    ) -> tuple[float, dict[str, float]]:
        """Accumulate a minibatch's gradients over micro-batches; its loss and summed metrics."""
        items = replies_of(units)
        num_tokens = sum(len(item.response_ids) for item in items)
        scale = Scale(num_tokens, len(items), self._spec.max_reply_tokens)
        temperature = self._spec.policies[policy].temperature
        want_entropy = config.entropy_coef > 0 or "entropy" in self._loss.needs
        total = torch.zeros(())
        sums: dict[str, Tensor] = {}
        for part in accumulated(self._model, self._micro_batches.split(units)):
            replies = replies_of(part)
            batch = self._micro_batches.batch(replies)
            logp_N, entropy_N, value_M = self._forward(
                self._model,
                batch,
                temperature,
                want_entropy,
                policy if self._spec.critic else None,
            )
            logp_BT = batch.spread(logp_N)
            old_logp_BT = logp_BT.detach()
            if old is not None and replies:
                values = np.concatenate([old[id(item)] for item in replies])
                old_logp_BT = batch.spread(torch.from_numpy(values).to(self._device))
            if self._kept is not None:
                self._kept.add(replies, old_logp_BT)
            inputs = LossInputs(
                logp_BT=logp_BT,
                old_logp_BT=old_logp_BT,
                sampler_logp_BT=batch.sampler_logp_BT,
                advantage_BT=batch.advantage_BT,
                mask_BT=batch.mask_BT,
                entropy_BT=None if entropy_N is None else batch.spread(entropy_N),
                ref_logp_BT=self._reference_logprobs(batch, temperature),
                stale_BT=batch.stale_BT,
            )
            loss, measured = policy_loss(inputs, scale, config)
            if value_M is not None:
                errors = self._value_errors(batch, value_M)
                loss = loss + config.value_coef * errors / max(1, num_targets(items))
                measured["value_errors"] = errors.detach()
            torch.autograd.backward(loss)
            total += loss.detach().cpu()
            for name, value in measured.items():
                join = torch.maximum if name in MAXIMA else torch.add
                sums[name] = join(sums.get(name, torch.zeros(())), value.cpu())
        return reduce_metrics(total, sums, MAXIMA, self._device)

    def _loss_config(self, step: int, num_tokens: int) -> LossConfig:
        """The loss options of a step, with a decayed entropy bonus."""
        loss, config = self._spec.loss, self._spec.config
        if not config.decay_entropy:
            return loss
        return loss.model_copy(
            update={"entropy_coef": loss.entropy_coef * config.cooled(step, num_tokens)}
        )

    def _value_errors(self, batch: ReplyBatch, value_M: Tensor) -> Tensor:
        assert self._spec.critic is not None  # noqa: S101 - there is a head
        value_BS = batch.spread_values(value_M)
        clip = self._spec.critic.clip
        return squared_errors(value_BS, batch.old_value_BS, batch.target_BS, clip)

    def _reference_logprobs(self, batch: ReplyBatch, temperature: float) -> Tensor | None:
        """Log-probs of the reference model: a frozen copy, or the base without its adapter."""
        if "pairs" in self._loss.needs:
            return batch.reference_BT
        if not self._loss.needs_reference(self._spec.loss):
            return None
        with torch.no_grad(), self._without_adapter():
            logp_N, _, _ = self._forward(self._reference or self._model, batch, temperature)
        return batch.spread(logp_N)

    def _without_adapter(self) -> AbstractContextManager[None]:
        return self._adapters.disabled() if self._adapters else nullcontext()

    def _update(self, policy: str, step: int, num_tokens: int) -> None:
        share = self._spec.config.rate(self._num_updates[policy], step, num_tokens)
        self._optimizers[policy].step(share)
        self._num_updates[policy] += 1
