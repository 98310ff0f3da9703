"""The engines under a run: how policies are sampled from, how they learn, where all of it runs."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from pettingllms.config.section import Section
from pettingllms.registry import ENGINES

Dtype = Literal["float32", "bfloat16"]
LAST_RATE = 0.1
"""Share of the learning rate that is left once it has fallen."""
MISMATCH_BOUNDS: dict[Dtype, float] = {"float32": 1e-4, "bfloat16": 0.1}
"""About ten times and twice what correct weights of SmolLM2 give; see "Weight sync" in the docs."""


class InferenceConfig(Section):
    """The inference engine, which answers for policies of the kinds full, lora and frozen."""

    engine: str = "vllm"
    """`vllm`, `torch`, or `file.py:Class`. `torch` is plain PyTorch on CPU: it starts in seconds
    and is faster for models of a few million parameters."""
    dtype: Dtype = "float32"
    """Type of the weights while sampling. bfloat16 on GPUs; float32 agrees with the learner."""
    num_replicas: int = Field(default=1, ge=1)
    """Engines for each model. The same task goes to the same one, for its prefix cache."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that one engine is split over."""
    max_model_len: int = Field(default=2048, ge=16)
    """Prompt and reply together. A reply that this cuts short of rollout.max_reply_tokens, or a
    prompt that grew beyond it, ends its episode: see rollout.on_limit."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Replies that one engine writes at once. Requests beyond that wait in the order in which they
    came."""
    cache_gib: int = Field(default=1, ge=1)
    """CPU: memory of one engine's key-value cache."""
    gpu_memory_utilization: float = Field(default=0.8, gt=0, le=1)
    """GPU: share of a device's memory that one engine takes."""
    max_mismatch: float | None = Field(default=None, gt=0)
    """Mean difference of log-probs between sampler and learner past which the run stops. Left out:
    0.0001 if both compute in float32, else 0.1."""
    start_timeout: float = Field(default=600.0, gt=0)
    """How long an engine may take to start."""
    guided: bool = False
    """Let vLLM hold replies to a JSON schema, where a program asks for it through the gateway. It
    loads the tokenizer for that. Nobody trains on such replies."""
    recording: str | None = None
    """Folder in which every reply is recorded; a request that was answered before gets the reply
    it got then. For runs that must repeat bit for bit."""

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
        """Keys of vLLM."""
        if self.engine == "vllm":
            return set()
        return {"tensor_parallel", "cache_gib", "gpu_memory_utilization"}


class LearnerConfig(Section):
    """PyTorch with FSDP2 and PEFT, which trains policies of the kinds full and lora."""

    dtype: Dtype = "float32"
    """Type of the arithmetic. Trained weights and optimizer are float32 either way."""
    num_ranks: int = Field(default=1, ge=1)
    """Processes, or GPUs, that each model is sharded over."""
    max_batch_tokens: int = Field(default=8192, ge=16)
    """Tokens, with padding, of one pass forward and back; gradients add up over passes."""
    skip_zero: bool = False
    """Leave out replies whose advantage is 0, such as siblings that were all paid alike. They teach
    nothing but entropy and KL, and cost as much. Means of the loss are then over the others alone,
    as in DAPO's dynamic sampling: where three of four are left out, gradients are four times as
    large."""
    num_minibatches: int = Field(default=1, ge=1)
    """Optimizer steps over each batch."""
    num_epochs: int = Field(default=1, ge=1)
    """How often each batch is gone through."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Share of the last steps' direction that AdamW keeps, its first beta. In self-play the best
    direction turns with every step, and momentum carries a policy past the place where it could
    rest: try 0 there."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises to its value."""
    decay_steps: int = Field(default=0, ge=0)
    """Steps of the run over which the learning rate falls to a tenth, and stays there; 0: never.
    Self-play that has found good play can lose it again at a rate that does not fall."""
    decay_tokens: int = Field(default=0, ge=0)
    """The same by sampled tokens, counted as in train.max_tokens; 0: by `decay_steps`. Use it in
    runs that a token budget ends: runs with the same budget take different numbers of steps, and
    by steps they would end at different points of the schedule."""
    decay_entropy: bool = True
    """Let `loss.entropy_coef` fall along with it, so that a policy tries less in the end. Try false
    in self-play, where nobody else punishes what a policy no longer tries."""

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        if self.decay_steps and self.decay_tokens:
            raise ValueError("decay_steps and decay_tokens exclude each other; set one of them")
        return self

    def unused_keys(self) -> set[str]:
        """Keys of a schedule."""
        return set() if self.decay_steps or self.decay_tokens else {"decay_entropy"}

    def rate(self, num_updates: int, step: int, num_tokens: int) -> float:
        """Share of the learning rate in a step of the run, after so many optimizer steps, with so
        many tokens sampled before the step."""
        rise = min(1.0, (num_updates + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return rise * self.cooled(step, num_tokens)

    def cooled(self, step: int, num_tokens: int) -> float:
        """What is left in a step of the run of all that falls."""
        fall = 0.0
        if self.decay_tokens:
            fall = min(1.0, num_tokens / self.decay_tokens)
        elif self.decay_steps:
            fall = min(1.0, (step - 1) / self.decay_steps)
        return 1 - (1 - LAST_RATE) * fall


class ClusterConfig(Section):
    """Ray, which holds samplers and learners together."""

    address: str = ""
    """Address of a running Ray cluster, on a network that nobody else reaches. Empty: one is
    started for the run, which listens on this machine alone. Either has token authentication."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where models run; auto: on GPUs if there are any."""
    placement: Literal["separate", "colocated"] = "separate"
    """GPU: learners and engines on devices of their own, or sharing them, engines asleep while
    learners work."""
    max_restarts: int = Field(default=3, ge=0)
    """How often an engine that died is started again before the run stops."""


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
