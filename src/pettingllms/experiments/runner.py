"""Training and evaluation of an experiment; the only module here that starts engines."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from pettingllms.config import EnvConfig, RunConfig
from pettingllms.errors import CheckpointError
from pettingllms.experiments.experiment import Model
from pettingllms.experiments.results import FILE, TOKENS, Result
from pettingllms.experiments.scoring import Exploitability
from pettingllms.policies.files import Saved
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.metrics import flatten

if TYPE_CHECKING:
    from pettingllms.models.tiny import Architecture


class ProgressLines(Callback):
    """Prints one line per training step."""

    def __init__(self, where: str, config: RunConfig, notify: Callable[[str], None]) -> None:
        self._where = where
        self._config = config
        self._notify = notify

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        found = flatten(metrics)
        parts = [f"step {step} of {self._config.train.num_steps}"]
        if TOKENS in found:
            most = self._config.train.max_tokens
            parts.append(f"{found[TOKENS]:,.0f}{f' of {most:,}' if most else ''} tokens")
        for key, value in found.items():
            section, _, rest = key.partition("/")
            name, _, metric = rest.partition("/")
            if section == "roles" and metric in ("reward", "eval_success"):
                parts.append(f"{name} {metric.replace('_', ' ')} {value:+.3f}")
            elif section == "policies" and metric == "loss":
                parts.append(f"{name} loss {value:.3f}")
        self.on_message(", ".join(parts))

    def on_message(self, text: str) -> None:
        self._notify(f"{self._where}: {text}")


NUM_TEXTS = 32
"""Tasks per environment for training a tiny model's tokenizer."""


class Machine(Protocol):
    """Interface for the work of an experiment, replaced in tests."""

    def make_model(self, model: Model, envs: Sequence[EnvConfig], seed: int, out: Path) -> None:
        """Write a tiny model."""

    def warm_start(
        self, config: RunConfig, folder: RunFolder, out: Path, callback: Callback
    ) -> None:
        """Run SFT and write the resulting model."""

    def train(self, config: RunConfig, folder: RunFolder, callback: Callback) -> None:
        """Train to the end, resuming from the run folder."""

    def evaluate(
        self, config: RunConfig, run: RunFolder | None, out: Path, notify: Callable[[str], None]
    ) -> Exploitability:
        """Run test tasks with a run's weights or the initial models, and write the episodes.
        Returns the exploitability with `eval.exploitability`, else nothing."""

    def train_verifier(
        self, config: RunConfig, folder: Path, out: Path, notify: Callable[[str], None]
    ) -> None:
        """Collect answers, train a verifier, and write its report to a folder."""

    def export(
        self,
        config: RunConfig,
        run: RunFolder,
        policy: str,
        out: Path,
        notify: Callable[[str], None],
    ) -> None:
        """Write a trained policy as a model."""


class ThisMachine:
    """The real implementation with vLLM, PyTorch and Ray."""

    def make_model(self, model: Model, envs: Sequence[EnvConfig], seed: int, out: Path) -> None:
        from pettingllms.envs import make_env_for
        from pettingllms.models import make_tiny, make_tiny_vision
        from pettingllms.models.tiny import texts_of

        texts = texts_of([make_env_for(env) for env in envs], NUM_TEXTS)
        if model.supports_images:
            make_tiny_vision(
                out,
                texts,
                model.hidden_size,
                model.num_layers,
                model.vocab_size,
                seed,
                model.architecture,
                model.symbols,
            )
            return
        make_tiny(
            out,
            cast("Architecture", model.architecture),
            texts,
            model.hidden_size,
            model.num_layers,
            model.vocab_size,
            seed,
            model.symbols,
            model.mlp_size,
            model.head_dim,
            model.number_digits,
        )

    def warm_start(
        self, config: RunConfig, folder: RunFolder, out: Path, callback: Callback
    ) -> None:
        from pettingllms.training.export import export
        from pettingllms.training.sft import sft

        sft(config, folder, callback)
        _, weights = folder.newest(callback.on_message)
        export(config, weights, None, out)

    def train(self, config: RunConfig, folder: RunFolder, callback: Callback) -> None:
        from pettingllms.training.train import train

        train(config, folder, callback)

    def evaluate(
        self, config: RunConfig, run: RunFolder | None, out: Path, notify: Callable[[str], None]
    ) -> Exploitability:
        from pettingllms.training.evaluate import evaluate

        saved = _trained(run, notify) if run is not None else {}
        return evaluate(config, saved, notify, out=out).exploitability

    def train_verifier(
        self, config: RunConfig, folder: Path, out: Path, notify: Callable[[str], None]
    ) -> None:
        from pettingllms.verifier.run import make_verifier

        make_verifier(config, folder, out, notify)

    def export(
        self,
        config: RunConfig,
        run: RunFolder,
        policy: str,
        out: Path,
        notify: Callable[[str], None],
    ) -> None:
        from pettingllms.training.export import export

        export(config, _trained(run, notify), policy, out)


def _trained(run: RunFolder, notify: Callable[[str], None]) -> Saved:
    """The final weights; raise CheckpointError if only an earlier step is available."""
    result, newest = Result.read(run.path), run.open(notify)
    training = result.training if result else None
    assert training is not None  # noqa: S101 - an arm is trained, then evaluated
    there = "it has no checkpoint"
    if newest is not None:
        state, weights = newest
        if state.step == training.num_steps:
            return weights
        there = f"its latest loadable checkpoint is of step {state.step}"
    raise CheckpointError(
        f"{run.path} was trained until step {training.num_steps}, but {there}; delete "
        f"{run.path / FILE} and run the same command to train and evaluate it again"
    )
