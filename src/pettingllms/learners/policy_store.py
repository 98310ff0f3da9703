"""Weights and optimizer state of policies that share a model, as files of any number of ranks."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from pettingllms.learners.adapters import Adapters
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.optimizers import NamedOptimizer
from pettingllms.learners.policy_model import LogProbModel
from pettingllms.learners.sharding import reshard, trim_heap
from pettingllms.learners.weight_stream import PiecesOf, collect, shards, write_tensors
from pettingllms.learners.weights import fingerprint, load_tensors, tensors_in, to_bytes
from pettingllms.policies.files import (
    ADAPTER_CONFIG,
    ADAPTER_FILE,
    CRITIC_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
    Files,
)


class PolicyStore:
    """The part of a learner that saves and loads policies."""

    _spec: LearnerSpec
    _rank: int
    _device: torch.device
    _model: LogProbModel
    _adapters: Adapters | None
    _optimizers: dict[str, NamedOptimizer]
    _num_updates: dict[str, int]

    def files(self, policy: str) -> tuple[dict[str, bytes], str]:
        """The policy's weights as files that vLLM, PEFT and Transformers load, and their hash.

        All ranks must call this to gather the shards; only rank 0 returns files."""
        reshard(self._model)
        weights = collect(self._parameters(policy))
        if self._rank:
            return {}, ""
        weight_hash = fingerprint(weights)
        if self._adapters:
            return self._adapters.files(policy, weights), weight_hash
        return {MODEL_FILE: to_bytes(weights)}, weight_hash

    def write(self, policy: str, folder: Path) -> str:
        """Write the files of `files` to a folder that rank 0 can reach, without a copy of the whole
        model in memory; return the hash of the weights."""
        if not self._adapters:
            reshard(self._model)
            return write_tensors(folder / MODEL_FILE, self._parameters(policy))
        files, weight_hash = self.files(policy)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return weight_hash

    def write_merged(self, policy: str, folder: Path) -> str:
        """Write the whole model that engines sample a policy with, as `write` does."""
        reshard(self._model)
        return write_tensors(folder / MODEL_FILE, *self.sampled(policy))

    def merged_files(self, policy: str) -> tuple[dict[str, bytes], str]:
        """The file of `write_merged` in memory, and its hash."""
        reshard(self._model)
        tensors, pieces_of = self.sampled(policy)
        weights = collect(tensors, pieces_of)
        return ({}, "") if self._rank else ({MODEL_FILE: to_bytes(weights)}, fingerprint(weights))

    def sampled(self, policy: str) -> tuple[Mapping[str, Tensor], PiecesOf]:
        """The whole model that engines sample a policy with, an adapter merged into its base: its
        tensors in the base's format, and how to read their values."""
        if self._adapters:
            merged = self._adapters.merged(policy)
            return merged.tensors, merged.pieces
        return self._parameters(policy), lambda _, tensor: shards(tensor)

    def state(self, policy: str) -> dict[str, bytes]:
        """Optimizer state and value head: what training needs besides the weights to resume."""
        found = {name: collect(tensors) for name, tensors in self._state(policy).items()}
        return {} if self._rank else {name: to_bytes(tensors) for name, tensors in found.items()}

    def parts(self, policy: str) -> tuple[dict[str, dict[str, Tensor]], dict[str, bytes]]:
        """What a checkpoint has of the policy: sharded tensors by file, and other files."""
        state = self._state(policy)  # first: it reshards, and gathered weights lose their memory
        adapters, weights = self._adapters, self._parameters(policy)
        if adapters is None:
            return {MODEL_FILE: weights, **state}, {}
        settings = {ADAPTER_CONFIG: adapters.settings(policy)}
        return {ADAPTER_FILE: adapters.plain(policy, weights), **state}, settings

    def _state(self, policy: str) -> dict[str, dict[str, Tensor]]:
        """Sharded tensors of the files of `state`."""
        trim_heap()
        reshard(self._model)
        head = self._head(policy)
        tensors = self._optimizers[policy].state()
        tensors["num_updates"] = torch.tensor(self._num_updates[policy])
        return {OPTIMIZER_FILE: tensors, **({CRITIC_FILE: head} if head else {})}

    def load(self, policy: str, files: Files) -> None:
        """Load weights, and optimizer state if present, saved by any number of ranks. Of a file
        that is given by its path, each rank reads its shard."""
        reshard(self._model)
        parameters, head = self._parameters(policy), self._head(policy)
        adapters = self._adapters
        weights = adapters.weights(policy, files) if adapters else tensors_in(files[MODEL_FILE])
        load_tensors(parameters, weights, f"'{policy}'")
        if head and CRITIC_FILE in files:
            load_tensors(head, tensors_in(files[CRITIC_FILE]), f"the value head of '{policy}'")
        if OPTIMIZER_FILE in files:
            moments = tensors_in(files[OPTIMIZER_FILE])
            self._optimizers[policy].load_state(moments)
            self._num_updates[policy] = int(moments["num_updates"])

    def _parameters(self, policy: str) -> dict[str, Tensor]:
        if self._adapters:
            return self._adapters.parameters(policy)
        return dict(self._model.lm.named_parameters())

    def _head(self, policy: str) -> dict[str, Tensor]:
        """Parameters of the policy's value head, which inference engines do not have."""
        if not self._spec.critic:
            return {}
        return dict(self._model.head(policy).named_parameters(prefix="head"))

    def _rates(self, policy: str) -> list[tuple[dict[str, Tensor], float]]:
        """Parameter groups of the policy's optimizer, each with its learning rate."""
        lr, critic = self._spec.policies[policy].lr, self._spec.critic
        heads = [(self._head(policy), critic.head_lr or 10 * lr)] if critic else []
        return [(self._parameters(policy), lr), *heads]
