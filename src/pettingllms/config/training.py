"""Sections of the training loop: steps, checkpoints, evaluation, trackers."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pettingllms.config.section import Section
from pettingllms.types.sampling import WHOLE, Truncation


class TrainConfig(Section):
    """Length of a run, checkpoints, and which policies learn when."""

    init_from: str = ""
    """Folder of an `sft`, `dpo` or `train` run whose weights initialize the policies: those of the
    same name, or all policies if it trained only one."""
    num_steps: int = Field(default=100, ge=1)
    """Training steps. One step samples one batch and updates policies on it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Budget of sampled tokens of the policies that learn, including continuations. The run ends
    after the step that reaches it. Left out: only num_steps ends the run."""
    save_every: int = Field(default=10, ge=1)
    """Steps between checkpoints. The last step is always saved."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Checkpoints to keep; older ones are deleted."""
    keep_every: int = Field(default=0, ge=0)
    """Also keep the checkpoints of steps that this number divides, forever. 0: none."""
    background_saves: bool = True
    """Write checkpoints while training goes on, from a copy in host memory: for each process of a
    learner, its part of trained weights and optimizer state. `false`: the loop waits instead."""
    checkpoint_folder: str = ""
    """A second place for the checkpoints of this run: a folder or a URL that fsspec opens, such as
    `s3://bucket/run`. A resumed run whose folder has none fetches the newest one from there."""
    eval_every: int = Field(default=0, ge=0)
    """Steps between evaluations. 0: no evaluation."""
    alternate: list[str] = Field(default_factory=list)
    """Policies that learn in turn while the others are frozen. Left out: all learn in every
    step."""
    alternate_every: int = Field(default=10, ge=1)
    """Steps per turn of `alternate`."""

    def unused_keys(self) -> set[str]:
        """Keys of `alternate`, and details of saving at their usual values."""
        return {"background_saves"} | (set() if self.alternate else {"alternate_every"})

    @property
    def num_checkpoints(self) -> int:
        """Checkpoints that the run folder has in the end."""
        forever = self.num_steps // self.keep_every if self.keep_every else 0
        return self.keep_checkpoints + forever

    def is_over(self, num_steps: int, num_tokens: int) -> bool:
        """Whether a run with this many steps and tokens is over."""
        out_of_tokens = self.max_tokens is not None and num_tokens >= self.max_tokens
        return num_steps >= self.num_steps or out_of_tokens


class EvalConfig(Section):
    """Evaluation on test tasks, without learning."""

    num_tasks: int = Field(default=32, ge=1)
    """Number of test tasks."""
    first_task: int = Field(default=0, ge=0)
    """Index of the first test task. Use disjoint ranges for model selection and for final
    results."""
    num_samples: int = Field(default=1, ge=1)
    """Episodes per task: the k of avg@k and pass@k."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature that replaces those of all policies. 0 is greedy. Left out: each
    policy's temperature."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Sample only among the likeliest tokens whose probabilities reach this sum. top_p and top_k
    together replace those of all policies. Left out: no such limit if top_k is set, else each
    policy's."""
    top_k: int | None = Field(default=None, ge=0)
    """Sample only among this many of the likeliest tokens; 0: all. Left out: as with top_p."""
    max_reply_tokens: int | None = Field(default=None, ge=1)
    """Maximum tokens per reply of all roles in evaluations. Left out: as in training
    (rollout.max_reply_tokens and rollout.reply_tokens)."""
    exploitability: bool = False
    """Also compute each policy's exploitability, from its reply probabilities at every information
    state. For games with small enumerable trees: kuhn_poker-v1, leduc_poker-v1, tic_tac_toe-v1, and
    hanabi-v1 with a handful of cards."""
    level: int | None = Field(default=None, ge=1)
    """Curriculum level to evaluate, from 1. Left out: the last."""

    @model_validator(mode="after")
    def _whole_distribution(self) -> Self:
        if self.exploitability and self.truncation not in (None, WHOLE):
            raise ValueError(
                "exploitability is that of the whole distribution; leave top_p and top_k out"
            )
        return self

    @property
    def truncation(self) -> Truncation | None:
        """What replaces the truncation of all policies, if anything."""
        if self.top_p is None and self.top_k is None:
            return None
        return Truncation(self.top_p or 1.0, self.top_k or 0)


class LogConfig(Section):
    """Metric trackers besides the run folder. A failing tracker never stops a run."""

    episodes: bool = True
    """Write the episodes of every step."""
    tensorboard: bool = False
    """Write TensorBoard events to the run folder."""
    wandb: str = ""
    """Weights & Biases project. Empty: off."""
    mlflow: str = ""
    """MLflow experiment. Empty: off."""
    trackio: str = ""
    """Trackio project. Empty: off."""
    trackers: list[str] = Field(default_factory=list)
    """More trackers: `file.py:Class` or `package.module:Class` of a `pettingllms.Tracker`."""
    callbacks: list[str] = Field(default_factory=list)
    """Callbacks: `file.py:Class` or `package.module:Class` of a `pettingllms.Callback`."""


class CriticConfig(Section):
    """The critic. It exists only if the algorithm needs values."""

    kind: Literal["auto", "head", "model"] = "auto"
    """`head`: a value head on the policy's model, trained with it. `model`: a separate model.
    `auto`: a head, or a model if one critic serves all roles."""
    model: str = ""
    """Folder or hub name of a critic of the kind `model`; it must use the policy's tokenizer.
    Empty: the policy's model."""
    lr: float = Field(default=1e-5, gt=0)
    """Learning rate of a critic of the kind `model`."""
    head_lr: float | None = Field(default=None, gt=0)
    """Learning rate of a value head, which is trained from scratch. Left out: ten times the
    policy's."""
    mixer_lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the mixing network of `qmix`."""
    num_ranks: int | None = Field(default=None, ge=1)
    """Processes, or GPUs, that a critic of the kind `model` is sharded over. Left out:
    learner.num_ranks."""
    clip: float | None = Field(default=None, gt=0)
    """Value clipping: maximum change of a value from its value before the batch that still reduces
    the loss. Left out: no clipping."""

    def unused_keys(self) -> set[str]:
        """Keys of another kind of critic."""
        return {"lr", "mixer_lr"} if self.kind == "head" else set()


class GuardConfig(Section):
    """Guards against policy collapse: bounds on metrics of each policy that learns."""

    action: Literal["pause", "warn", "off"] = "pause"
    """Action on collapse. `pause`: save a checkpoint and stop; `pettingllms resume` continues.
    `warn`: print a message. `off`: check nothing."""
    patience: int = Field(default=5, ge=1)
    """Consecutive steps past a bound that count as collapse."""
    min_replies: float = Field(default=1.05, ge=1)
    """Minimum effective number of distinct replies over distinct prompts: 1 if all replies are
    equal, 2 for two equally frequent replies, about 1.05 if one in a hundred differs. 1 turns this
    guard off, for games in which one reply is always right."""
    min_prompts: int = Field(default=8, ge=2)
    """Distinct prompts per step below which min_replies is not checked."""
    enough_success: float = Field(default=0.9, ge=0, le=1)
    """Success rate of all roles of a policy at which min_replies and min_entropy are not checked.
    Success is that of ordinary samples, never of the best of several siblings."""
    min_entropy: float = Field(default=0.001, ge=0)
    """Minimum mean of -log p over sampled tokens. Confident but healthy policies are well above the
    default."""
    max_repetition: float = Field(default=0.8, ge=0, le=1)
    """Maximum share of repeated 4-grams within a reply, averaged over replies; replies under 32
    tokens count as 0."""
    anchors: list[str] = Field(default_factory=list)
    """Scripted players. At every evaluation (train.eval_every), each role of a policy that learns
    also runs the test tasks with an anchor in all other roles."""
    max_anchor_drop: float = Field(default=0.3, gt=0, le=1)
    """Maximum drop of success against an anchor below the best measured value."""
    anchor_patience: int = Field(default=2, ge=1)
    """Consecutive evaluations past max_anchor_drop that count as collapse."""

    def unused_keys(self) -> set[str]:
        """Keys of `anchors`, or all if the guards are off."""
        if self.action == "off":
            return set(type(self).model_fields)
        return set() if self.anchors else {"max_anchor_drop", "anchor_patience"}
