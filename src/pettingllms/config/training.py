"""Sections of the training loop: steps, checkpoints, evaluation, trackers."""

from pydantic import Field

from pettingllms.config.section import Section


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
    eval_every: int = Field(default=0, ge=0)
    """Steps between evaluations. 0: no evaluation."""
    alternate: list[str] = Field(default_factory=list)
    """Policies that learn in turn while the others are frozen. Left out: all learn in every
    step."""
    alternate_every: int = Field(default=10, ge=1)
    """Steps per turn of `alternate`."""

    def unused_keys(self) -> set[str]:
        """Keys of `alternate`."""
        return set() if self.alternate else {"alternate_every"}

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
    exploitability: bool = False
    """Also compute each policy's exploitability, from its reply probabilities at every information
    state. For games with small enumerable trees: kuhn_poker-v1, leduc_poker-v1, tic_tac_toe-v1, and
    hanabi-v1 with a handful of cards."""
    level: int | None = Field(default=None, ge=1)
    """Curriculum level to evaluate, from 1. Left out: the last."""


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
    trackers: list[str] = Field(default_factory=list)
    """More trackers: `file.py:Class` or `package.module:Class` of a `pettingllms.Tracker`."""
    callbacks: list[str] = Field(default_factory=list)
    """Callbacks: `file.py:Class` or `package.module:Class` of a `pettingllms.Callback`."""
