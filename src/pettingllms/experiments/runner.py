"""The real work that an experiment is made of. Everything that needs an engine is called here."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from pettingllms.config import EnvConfig, RunConfig
from pettingllms.errors import CheckpointError
from pettingllms.experiments.experiment import Model
from pettingllms.experiments.results import FILE, Result
from pettingllms.experiments.scoring import Exploitability
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.folder import RunFolder

if TYPE_CHECKING:
    from pettingllms.models.tiny import Architecture

NUM_TEXTS = 32
"""Tasks of each environment that a tiny model's tokenizer is made from."""


class Machine(Protocol):
    """Who does the work."""

    def make_model(self, model: Model, envs: Sequence[EnvConfig], seed: int, out: Path) -> None:
        """Write a tiny model."""

    def warm_start(
        self, config: RunConfig, folder: RunFolder, out: Path, callback: Callback
    ) -> None:
        """Teach a policy; write the model that comes of it."""

    def train(self, config: RunConfig, folder: RunFolder, callback: Callback) -> None:
        """Train until the run is over, from where its folder was left."""

    def evaluate(
        self, config: RunConfig, run: RunFolder | None, out: Path, notify: Callable[[str], None]
    ) -> Exploitability:
        """Play test tasks and write the episodes, with a run's weights or as the models are. What
        is given back is empty, unless `eval.exploitability` asks for it."""


class ThisMachine:
    """vLLM, PyTorch and Ray, on this machine."""

    def make_model(self, model: Model, envs: Sequence[EnvConfig], seed: int, out: Path) -> None:
        from pettingllms.envs import make_env_for
        from pettingllms.models import make_tiny, make_tiny_vision
        from pettingllms.models.tokenizer_texts import texts_of

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


def _trained(run: RunFolder, notify: Callable[[str], None]) -> dict[str, dict[str, bytes]]:
    """The weights that training ended with; those of an earlier step are not taken for them."""
    result, newest = Result.read(run.path), run.load(notify)
    training = result.training if result else None
    assert training is not None  # noqa: S101 - an arm is trained, then evaluated
    there = "has no checkpoint"
    if newest is not None:
        state, weights = newest
        if state.step == training.num_steps:
            return weights
        there = f"the newest checkpoint that can be loaded is of step {state.step}"
    raise CheckpointError(
        f"{run.path} was trained until step {training.num_steps}, and {there}; remove "
        f"{run.path / FILE}, and the same command trains it to its end again and evaluates it anew"
    )
