"""Sections of the engines: inference, learner, loss and cluster."""

import math
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from pettingllms.config.section import Section
from pettingllms.registry import ENGINES

Dtype = Literal["float32", "bfloat16"]
DtypeOption = Literal["auto", "float32", "bfloat16"]
LAST_RATE = 0.1
"""Default share of the learning rate that remains after decay."""
MISMATCH_BOUNDS: dict[Dtype, float] = {"float32": 1e-4, "bfloat16": 0.1}
"""About ten times and twice what correct weights of SmolLM2 give; see "Weight sync" in the docs."""


def resolve_dtype(dtype: DtypeOption, device: str) -> Dtype:
    """The dtype in use on a device: `auto` is bfloat16 on GPUs and float32 on CPU."""
    if dtype != "auto":
        return dtype
    return "float32" if device == "cpu" else "bfloat16"


class InferenceConfig(Section):
    """The inference engine, which answers for policies of the kinds full, lora and frozen."""

    engine: str = "vllm"
    """`vllm`, `torch`, or `file.py:Class`. `torch` is plain PyTorch on CPU: it starts in seconds
    and is faster for models of a few million parameters."""
    dtype: DtypeOption = "auto"
    """Type of the weights during sampling. `auto`: bfloat16 on GPUs, float32 on CPU. float32 gives
    the smallest mismatch with the learner; vLLM cannot serve LoRA adapters in float32 on GPUs."""
    num_replicas: int = Field(default=1, ge=1)
    """Engines per model. Requests for the same task go to the same engine, which keeps its prefix
    cache effective. `resources` of a policy overrides it."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs per engine, all on one node. `resources` of a policy overrides it."""
    max_model_len: int = Field(default=2048, ge=16)
    """Maximum tokens of prompt and reply together. If it truncates a reply before
    rollout.max_reply_tokens, or a prompt exceeds it, the episode ends: see rollout.on_limit."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Maximum concurrent sequences per engine. Further requests queue in order of arrival."""
    cache_gib: int = Field(default=1, ge=1)
    """CPU: size of an engine's KV cache in GiB."""
    gpu_memory_utilization: float = Field(default=0.8, gt=0, le=1)
    """GPU: share of a device's memory that one engine uses."""
    max_mismatch: float | None = Field(default=None, gt=0)
    """Mean train-inference mismatch (absolute difference of log-probs between sampler and learner)
    above which the run stops. Left out: 0.0001 if both compute in float32 without
    learner.base_bits, else 0.1."""
    start_timeout: float = Field(default=600.0, gt=0)
    """Seconds that an engine or rollout worker may take to start."""
    engine_timeout: float = Field(default=900.0, gt=0)
    """Seconds after which an engine or rollout worker that does not answer is killed and replaced.
    Engines in plain PyTorch answer between batches."""
    guided: bool = False
    """Let vLLM constrain replies to a JSON schema when a program requests it through the gateway.
    Loads the tokenizer in the engine. Constrained replies are excluded from training."""
    in_flight_updates: bool | None = None
    """Asynchronous training: new weights of a full model do not wait for replies in progress, which
    continue with them. Each token keeps the log-prob and the version of the weights that sampled
    it. false: engines finish all replies in progress first. Models for images always do. Left out:
    true if the engine can, as `vllm`. Adapters are loaded beside running requests in any case."""
    merge_single_adapter: bool = False
    """Merge the adapter of a base's only policy into the base while training samples, so that
    sampling costs what the base costs. Published weights are then those of the whole model. Needs
    float32 in inference.dtype and learner.dtype: in bfloat16 most weights would round to the base.
    """
    recording: str | None = None
    """Folder in which every reply is recorded. A request that was recorded before gets the recorded
    reply. For runs that must repeat bit for bit."""

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, name: str) -> str:
        if name not in ENGINES.names():  # those that ship import this module
            ENGINES.load(name)
        return name

    @property
    def capabilities(self) -> Any:
        """What the engine can do, as `inference.engines.base.Capabilities`."""
        return ENGINES.load(self.engine).capabilities

    def unused_keys(self) -> set[str]:
        """A timeout at its usual value, and keys of vLLM."""
        if self.engine == "vllm":
            return {"engine_timeout"}
        return {"engine_timeout", "tensor_parallel", "cache_gib", "gpu_memory_utilization"}


class LearnerConfig(Section):
    """PyTorch with FSDP2 and PEFT, which trains policies of the kinds full and lora."""

    dtype: DtypeOption = "auto"
    """Type of the arithmetic, and of the frozen base of LoRA adapters. `auto`: bfloat16 on GPUs,
    float32 on CPU. Trained weights and optimizer state are always float32."""
    base_bits: Literal[8, 4] | None = None
    """Bits per weight of frozen bases of LoRA adapters. Their linear layers are held quantized: 8
    bits are integers, 4 bits NF4, and 64 weights share a scale. Adapters, gradients and optimizer
    state stay float32. Engines keep sampling with the unquantized base, so the train-inference
    mismatch grows: on SmolLM2-135M to 0.04 with 8 bits, which importance weights of `loss.type`
    `clip` and `gspo` can correct, and to 0.8 with 4 bits, which stops the run. Prefer 8; use 4 only
    with models whose measured mismatch is small. The KL penalty refers to the quantized base. Not
    for policies of the kind full, nor for models with experts. Never run on a GPU. Left out: not
    quantized."""
    num_ranks: int = Field(default=1, ge=1)
    """Processes, or GPUs, that each model is sharded over. `resources` of a policy overrides it."""
    max_batch_tokens: int = Field(default=8192, ge=16)
    """Distinct tokens per forward and backward pass: a prefix that several turns share counts
    once. Models that cannot read token trees count padding too. Gradients accumulate over
    passes."""
    activation_checkpointing: bool | None = None
    """Keep only the inputs of each decoder layer for the backward pass, and compute the layer again
    there. Gradients stay the same. A 32k-token pass of an 8B model with LoRA takes 18 GB of
    activations instead of 226 GB, and about a third more time. Left out: on with GPUs, off on
    CPU."""
    compile: bool | None = None
    """Compile decoder layers with torch.compile, which takes up to two minutes at the first start
    and a quarter of that later. Left out: on for bfloat16 if the model has at least 100 million
    parameters and the machine a C++ compiler; off for float32, which gains nothing on CPU."""
    skip_zero: bool = False
    """Skip replies with zero advantage, such as siblings with equal rewards. They contribute only
    to the entropy bonus and the KL penalty, at full cost. Loss means are then over the remaining
    replies, as in DAPO's dynamic sampling: if three of four are skipped, gradients are four times
    as large."""
    mask_truncated: bool = False
    """Exclude replies from the loss that rollout.max_reply_tokens truncated (overlong filtering of
    DAPO): their reward depends on where they were cut. They still count in the baselines of their
    group, so a low reward of a truncated reply raises the advantages of complete ones, and a policy
    cannot gain by being cut. Replies cut by the context length follow rollout.on_limit instead."""
    num_minibatches: int = Field(default=1, ge=1)
    """Optimizer steps per pass over a batch."""
    num_epochs: int = Field(default=1, ge=1)
    """Passes over each batch."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm (gradient clipping). The metric `grad_norm` of each policy is the norm
    before clipping."""
    optimizer: Literal["adamw", "adamw_8bit", "adafactor"] = "adamw"
    """`adamw`: two float32 moments per weight, 8 bytes. `adamw_8bit`: the same in 2 bytes, on GPUs,
    with torchao. `adafactor`: one mean of squared gradients per row and per column of a matrix,
    almost no memory, and no momentum; try a higher learning rate and `warmup_steps`."""
    offload_optimizer: bool = False
    """GPU: keep the optimizer's state in host memory between updates, which frees device memory for
    activations and costs two transfers per update. On CPU nothing changes."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, scaled by the learning rate. It applies to matrices, LoRA matrices
    included. Biases, norms and embeddings do not decay."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """First beta of AdamW. In self-play the best direction changes at every step, and momentum
    carries a policy past an equilibrium: try 0 there."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Second beta of AdamW: the decay of its running mean of squared gradients. Smaller values,
    such as 0.95, adapt faster after a jump of the gradient norm."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Epsilon of AdamW, added to the root of the mean of squared gradients."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps of linear learning-rate warmup."""
    decay_steps: int = Field(default=0, ge=0)
    """Training steps over which the learning rate decays to `min_lr_share`, where it stays. 0:
    constant. Self-play at a constant rate can lose a good policy again. `sft`, `dpo` and `verifier`
    use their own number of steps instead."""
    decay_tokens: int = Field(default=0, ge=0)
    """The same decay by sampled tokens, counted as in train.max_tokens. 0: use `decay_steps`. Use
    it with a token budget: runs with equal budgets take different numbers of steps, and with
    decay_steps they would end at different points of the schedule."""
    decay: Literal["linear", "cosine", "constant"] = "linear"
    """Shape of the decay over `decay_steps` or `decay_tokens`. `cosine`: slow at both ends.
    `constant`: no decay, also in `sft`, `dpo` and `verifier`."""
    min_lr_share: float = Field(default=LAST_RATE, ge=0, le=1)
    """Share of the learning rate at the end of the decay."""
    decay_entropy: bool = True
    """Decay `loss.entropy_coef` along with the learning rate, so that exploration decreases. Try
    false in self-play, where no opponent punishes a policy that stops exploring."""

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        if self.decay_steps and self.decay_tokens:
            raise ValueError("decay_steps and decay_tokens exclude each other; set one of them")
        is_constant = self.decay == "constant"
        if is_constant and self._has_length:
            raise ValueError(
                'decay = "constant" has no length; leave decay_steps and decay_tokens out'
            )
        is_shaped = self.decay == "cosine" or self.min_lr_share != LAST_RATE
        if is_shaped and (is_constant or not self._has_length):
            raise ValueError(
                f'decay = "{self.decay}" with min_lr_share = {self.min_lr_share:g} needs a length; '
                "set decay_steps (such as train.num_steps) or decay_tokens"
            )
        return self

    @model_validator(mode="after")
    def _own_moments(self) -> Self:
        unused = [
            name
            for name in ("momentum", "beta2", "epsilon")
            if getattr(self, name) != type(self).model_fields[name].default
        ]
        if self.optimizer == "adafactor" and unused:
            raise ValueError(f"adafactor has no {' and no '.join(unused)}; leave it out")
        return self

    def optimizer_problem(self, device: str) -> str:
        """Why the optimizer cannot run on a device, `cpu` or another; empty if it can."""
        if self.optimizer != "adamw_8bit":
            return ""
        if device == "cpu":
            return (
                'learner.optimizer: "adamw_8bit" runs only on GPUs, and learners are on CPU; '
                'set "adamw" or "adafactor"'
            )
        if find_spec("torchao") is None:
            return (
                'learner.optimizer: "adamw_8bit" needs torchao, which is not installed; '
                'pip install torchao, or set "adamw" or "adafactor"'
            )
        return ""

    @property
    def _has_length(self) -> bool:
        return bool(self.decay_steps or self.decay_tokens)

    def unused_keys(self) -> set[str]:
        """Keys of a schedule, and details of the optimizer at their usual values."""
        schedule = set() if self._has_length else {"decay", "min_lr_share", "decay_entropy"}
        return {"optimizer", "beta2", "epsilon", *schedule}

    def over(self, num_steps: int) -> Self:
        """The same options, with a decay over a number of steps unless it is constant."""
        decay_steps = 0 if self.decay == "constant" else num_steps
        return self.model_copy(update={"decay_steps": decay_steps, "decay_tokens": 0})

    def rate(self, num_updates: int, step: int, num_tokens: int) -> float:
        """Factor of the learning rate after `num_updates` optimizer steps, in a training step that
        starts with `num_tokens` sampled."""
        rise = min(1.0, (num_updates + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return rise * self.cooled(step, num_tokens)

    def cooled(self, step: int, num_tokens: int) -> float:
        """Decay factor in a training step."""
        fall = 0.0
        if self.decay_tokens:
            fall = min(1.0, num_tokens / self.decay_tokens)
        elif self.decay_steps:
            fall = min(1.0, (step - 1) / self.decay_steps)
        if self.decay == "cosine":
            fall = (1 - math.cos(math.pi * fall)) / 2
        return 1 - (1 - self.min_lr_share) * fall


class ClusterConfig(Section):
    """The Ray cluster that runs inference engines and learners."""

    address: str = ""
    """Address of a running Ray cluster on a private network. Empty: start a cluster for this run
    that listens only on this machine. Both use token authentication."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Device of the models. `auto`: GPUs if there are any."""
    placement: Literal["separate", "colocated"] = "separate"
    """GPU: `separate` gives learners and engines their own devices. `colocated` lets the engines
    and the learner of a model share theirs: num_replicas * tensor_parallel must equal num_ranks,
    and engines sleep while learners work. Never run on a GPU."""
    max_restarts: int = Field(default=3, ge=0)
    """Restarts of an engine or rollout worker before the run stops. Learners that are lost restart,
    and the run goes back to its newest checkpoint, at most this often without a newer one."""
    transfer_timeout: float = Field(default=600.0, gt=0)
    """Seconds that streaming a full model to its engines may take before the run stops."""
    learner_timeout: float = Field(default=1800, gt=0)
    """Seconds without progress after which a learner counts as hanging and is restarted. Each pass
    of a batch is progress. After a sixth of it, a message names the ranks that do not answer."""

    def unused_keys(self) -> set[str]:
        """Timeouts at their usual values."""
        return {"transfer_timeout", "learner_timeout"}


def base_problem(bits: int, policy: str) -> str:
    """Why a base cannot be quantized, if a policy trains it."""
    return (
        f'learner.base_bits: {bits} is for frozen bases, but policies.{policy} (kind = "full") '
        'trains all weights of its model; set kind = "lora", or leave learner.base_bits out'
    )


def base_problems(learner: LearnerConfig, policies: Mapping[str, Any]) -> Iterator[str]:
    """Policies whose base cannot be quantized, and an option that no policy uses."""
    bits, kinds = learner.base_bits, {name: policy.kind for name, policy in policies.items()}
    if bits is None:
        return
    yield from (base_problem(bits, name) for name, kind in kinds.items() if kind == "full")
    if "lora" not in kinds.values() and "full" not in kinds.values():
        yield (
            f"learner.base_bits: {bits} quantizes bases of LoRA adapters, but no policy has "
            'kind = "lora"; leave the key out'
        )


def engine_problems(inference: InferenceConfig, policies: Mapping[str, Any]) -> Iterator[str]:
    """Capabilities that the policies need and the inference engine does not have."""
    can = inference.capabilities
    kinds = {policy.kind: name for name, policy in policies.items()}
    needed = {
        "lora": (can.lora and can.logprobs, "serve LoRA adapters with log-probs"),
        "full": (can.weight_transfer and can.logprobs, "take new weights and return log-probs"),
    }
    for kind, (is_able, what) in needed.items():
        if kind in kinds and not is_able:
            yield (
                f"inference.engine: '{inference.engine}' cannot {what}, which "
                f'policies.{kinds[kind]} (kind = "{kind}") needs; set another engine'
            )
    if inference.guided and not can.guided:
        yield (
            f"inference.guided: '{inference.engine}' cannot constrain replies to a schema; leave "
            "the key out, or set another engine"
        )
