"""Seconds that engines and learners need, as coefficients: assumed for GPUs or fitted to runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSpeed:
    """One engine of a model."""

    step: float
    """Seconds of a decoding step, whatever it decodes."""
    weights: float = 0.0
    """Seconds to read the weights, in each step. Arithmetic happens at the same time."""
    token: float = 0.0
    """Seconds of arithmetic per decoded token."""
    context: float = 0.0
    """Seconds to read the keys and values of one token, in each step."""
    prefill: float = 0.0
    """Seconds per token of a prompt that is not in the prefix cache."""
    call: float = 0.0
    """Lockstep engines: seconds per batch of requests."""
    request: float = 0.0
    """Seconds from a rollout worker to the engine and back."""
    capacity: float = math.inf
    """Tokens that its KV cache holds."""

    def step_seconds(self, num_replies: int) -> float:
        """Seconds of a step, without reading keys and values."""
        return self.step + max(self.weights, self.token * num_replies)

    def decode_seconds(self, num_steps: float, num_replies: int, num_cached: float) -> float:
        """Seconds of several steps of the same replies, whose context grows."""
        reads = num_cached * num_steps + num_replies * num_steps * num_steps / 2
        return self.step_seconds(num_replies) * num_steps + self.context * reads

    def steps_within(self, seconds: float, num_replies: int, num_cached: float) -> float:
        """The steps of `decode_seconds` that so many seconds allow."""
        each = self.step_seconds(num_replies) + self.context * num_cached
        growth = self.context * num_replies
        if growth * seconds < 1e-9 * each * each:
            return seconds / each
        return (math.sqrt(each * each + 2 * growth * seconds) - each) / growth


@dataclass(frozen=True, slots=True)
class LearnerSpeed:
    """All ranks of a learner or critic together."""

    token: float
    """Seconds of arithmetic per distinct token, forward and backward."""
    read: float = 0.0
    """Seconds per token of a pass without gradients."""
    batch: float = 0.0
    """Seconds per update beyond the rest: optimizer, exchange of gradients, calls."""
    pass_tokens: float = math.inf
    """Tokens of all ranks in one pass."""
    pass_seconds: float = 0.0
    """Seconds to exchange weights in a pass, while others compute."""
    reply: float = 0.0
    """Seconds per reply."""

    def train_seconds(self, num_tokens: float, num_replies: int = 0, num_reads: int = 0) -> float:
        """Seconds of an update. `num_reads`: further passes without gradients over the batch."""
        num_passes = math.ceil(num_tokens / self.pass_tokens) if num_tokens else 0
        exchange = self.pass_seconds * num_passes
        compute = self.token * num_tokens
        reads = num_reads * max(self.read * num_tokens, exchange / 3)
        return self.batch + max(compute, exchange) + reads + self.reply * num_replies

    def read_seconds(self, num_tokens: float) -> float:
        """Seconds of one pass without gradients."""
        num_passes = math.ceil(num_tokens / self.pass_tokens) if num_tokens else 0
        return max(self.read * num_tokens, self.pass_seconds * num_passes / 3)


@dataclass(frozen=True, slots=True)
class PublishSpeed:
    """Publishing one policy."""

    seconds: float
    """From the call to the last engine that has loaded the weights."""
    check: float = 0.0
    """Comparing sampler and learner, afterward."""
    drains: bool = False
    """Whether engines finish running requests first, and admit none until they have the weights."""
    pauses: bool = False
    """Whether running requests pause meanwhile, and continue with the new weights."""


@dataclass(frozen=True, slots=True)
class ModelSpeeds:
    """Everything about one model of a run."""

    engine: EngineSpeed
    learner: LearnerSpeed | None
    publish: PublishSpeed


@dataclass(frozen=True, slots=True)
class LoopSpeed:
    """The driver and the rollout workers."""

    env: float
    """Seconds of an environment step; steps run side by side."""
    worker: float
    """Seconds of a rollout worker per turn, one after another."""
    step: float
    """Seconds of the driver per step."""
    turn: float = 0.0
    """Seconds of the driver per turn of a batch."""
    num_workers: int = 1
    concurrent_learners: bool = True
    """Whether learners of several models run at the same time."""
    sleep: float = 0.0
    """Colocated: seconds to free the memory of engines, and again to take it."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """A whole run."""

    models: Mapping[str, ModelSpeeds]
    """By the names of model groups."""
    critics: Mapping[str, LearnerSpeed]
    loop: LoopSpeed
