"""The loop and what it leaves behind: steps, checkpoints, evaluation, trackers."""

from pydantic import Field

from pettingllms.config.section import Section


class TrainConfig(Section):
    """How long a run goes on, and how often it saves."""

    init_from: str = ""
    """Folder of a run, of `sft` or `train`, with whose weights policies begin: those of the same
    name, or if it has one policy alone, all of them."""
    num_steps: int = Field(default=100, ge=1)
    """Batches to learn from."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Sampled tokens of the policies that learn, continuations included, after which the run ends:
    with the step that reaches them. Left out: the steps alone end it."""
    save_every: int = Field(default=10, ge=1)
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Checkpoints that are kept; older ones are deleted."""
    eval_every: int = Field(default=0, ge=0)
    """Steps between evaluations; 0: none."""
    alternate: list[str] = Field(default_factory=list)
    """Policies that learn by turns while the others rest. Left out: all learn in every step."""
    alternate_every: int = Field(default=10, ge=1)
    """Steps of one turn of `alternate`."""

    def unused_keys(self) -> set[str]:
        """Keys of `alternate`."""
        return set() if self.alternate else {"alternate_every"}

    def is_over(self, num_steps: int, num_tokens: int) -> bool:
        """Whether a run that has done this much is at its end."""
        out_of_tokens = self.max_tokens is not None and num_tokens >= self.max_tokens
        return num_steps >= self.num_steps or out_of_tokens


class EvalConfig(Section):
    """Playing without learning, to find out how good the team is."""

    num_tasks: int = Field(default=32, ge=1)
    """Tasks of the test split."""
    first_task: int = Field(default=0, ge=0)
    """Where they begin. What settings were chosen by, a last judgement should not see again."""
    num_samples: int = Field(default=1, ge=1)
    """Plays of each task: the k of avg@k and pass@k."""
    temperature: float | None = Field(default=None, ge=0)
    """In place of every policy's own; 0 is greedy."""
    exploitability: bool = False
    """Also work out how far each policy is from perfect play, read at every information state. For
    games small enough to be written out: kuhn_poker-v1, leduc_poker-v1, tic_tac_toe-v1, and
    hanabi-v1 with a handful of cards."""
    level: int | None = Field(default=None, ge=1)
    """Level of the curriculum that is played, from 1. Left out: the last."""


class LogConfig(Section):
    """Where metrics go besides the run's own folder. A tracker that fails never stops a run."""

    episodes: bool = True
    """Write the episodes of every step."""
    tensorboard: bool = False
    """Write TensorBoard events into the run's folder."""
    wandb: str = ""
    """Name of a Weights & Biases project; empty: none."""
    mlflow: str = ""
    """Name of an MLflow experiment; empty: none."""
    trackers: list[str] = Field(default_factory=list)
    """More trackers: `file.py:Class` or `package.module:Class` of a `pettingllms.Tracker`."""
    callbacks: list[str] = Field(default_factory=list)
    """Callbacks: `file.py:Class` or `package.module:Class` of a `pettingllms.Callback`."""
