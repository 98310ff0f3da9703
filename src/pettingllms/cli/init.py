"""`init`: a new project, copied from the folder `project` beside this file."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from rich.markup import escape

from pettingllms.cli.console import console
from pettingllms.cli.models import tiny
from pettingllms.errors import ConfigError
from pettingllms.runs.trust import remember

TEMPLATE = Path(__file__).with_name("project")
FILES = ("README.md", "config.toml", "signals.py", "test_signals.py")
MODEL = "model"
NEXT = (
    ("python -m pytest", "test the environment"),
    ("pettingllms check config.toml", "check that it can run here"),
    ("pettingllms train config.toml", "train it, a few minutes on two cores"),
    ("pettingllms view runs/config-1", "inspect the run"),
)


def make_project(folder: Path) -> None:
    """Write the files, and a tiny model if PyTorch is installed; print the next steps."""
    require_empty(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(TEMPLATE / name, folder / name)
    remember([f"{(folder / 'signals.py').resolve()}:Signals"])
    has_engines = find_spec("torch") is not None and find_spec("transformers") is not None
    if has_engines:
        tiny(folder / MODEL, "qwen3", False, 64, 2, 512, 0, folder / "config.toml", symbols=True)
    console.print(f"Created a project in [bold]{escape(str(folder))}[/]. Next:")
    steps = [(f"cd {folder}", ""), *([] if has_engines else _without_engines()), *NEXT]
    width = max(len(command) for command, _ in steps)
    for command, why in steps:
        console.out(f"  {command:<{width}}  {why}".rstrip(), highlight=False)


def require_empty(folder: Path) -> None:
    """Raise ConfigError if a folder has files that a project might overwrite."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(str(folder), ["exists and is not empty; give a new or empty folder"])


def _without_engines() -> list[tuple[str, str]]:
    make = f"pettingllms models tiny {MODEL} --config config.toml --symbols --hidden-size 64"
    return [
        ("pip install 'pettingllms[cpu]'", "or [gpu]: the training engines"),
        (make, "a small model"),
    ]
