"""Whose code a run may name: nothing in a run's folder is executed unless its user vouched for it.

A configuration can name classes outside this package, and loading one executes its module. A run's
folder may come from somebody else. So the code that its configuration names is imported only if

- this user has begun a run with it, from a configuration of their own, or made it with `init`: such
  names are kept in a file in the user's home, where no run folder reaches, or
- the user said so, with `--trust-run-code` or PETTINGLLMS_TRUST_RUN_CODE=1.

Code that lies in a run's folder itself always needs the second. What the command line names, and
what a configuration outside of run folders names, is the user's own word.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pettingllms.config import RunConfig, apply_overrides, load_config, read_toml
from pettingllms.config.user_code import named_code
from pettingllms.errors import ConfigError

TRUST = "PETTINGLLMS_TRUST_RUN_CODE"
FLAG = "--trust-run-code"
CONFIG_FILE = "config.toml"
BESIDE = ("versions.json", "metrics.jsonl", "supervised", "episodes.jsonl")
"""Files that only runs have."""
FOLDERS = ("checkpoints", "episodes")
"""Folders that runs have, and others may."""


def load_user_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """A configuration that a user runs: their own, or that of a run, which must be trusted."""
    if is_of_run(path):
        require_trusted(path, overrides)
    return load_config(path, overrides, of_run=is_of_run(path))


def load_inspected_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """A configuration that a user only looks at. One called `config.toml` in another folder may be
    all that was received of a run, and nobody has asked to run it."""
    if path.name == CONFIG_FILE and path.parent.resolve() != Path.cwd():
        require_trusted(path, overrides)
    return load_user_config(path, overrides)


def load_run_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration of a run, if the code that it names may be executed."""
    require_trusted(path, overrides)
    return load_config(path, overrides, of_run=is_of_run(path))


def is_of_run(path: Path) -> bool:
    """Whether a configuration lies in a run's folder. One that lies alone is the user's own, also
    if it is called `config.toml`."""
    if _holds(path.parent, BESIDE):
        return True
    return path.name == CONFIG_FILE and _holds(path.parent, FOLDERS)


def _holds(folder: Path, names: Sequence[str]) -> bool:
    return any((folder / name).exists() for name in names)


def require_trusted(path: Path, overrides: Sequence[str] = ()) -> None:
    """Raise ConfigError, before anything is imported, if a run names code that nobody vouched for.
    What an override replaces is not imported, and what it names is the user's own word."""
    if os.environ.get(TRUST) == "1":
        return
    data = read_toml(path)
    written = named_code(data)
    apply_overrides(data, overrides)
    known = _known()
    if _holds(path.parent, (*BESIDE, *FOLDERS)):
        folder = path.parent.resolve()
        known = {name for name in known if not Path(name).is_relative_to(folder)}
    unknown = [name for name in named_code(data) if name in written and name not in known]
    if unknown:
        problem = (
            f"names code that does not ship with pettingllms: {', '.join(unknown)}; loading it "
            f"would execute it, and nothing was executed. If you trust whoever wrote this run, "
            f"use `pettingllms {FLAG} COMMAND ...`"
        )
        raise ConfigError(str(path), [problem])


def remember_code(config: RunConfig) -> None:
    """Note that this user began a run with the code that a configuration names."""
    remember(named_code(config.model_dump(mode="json")))


def remember(names: Sequence[str]) -> None:
    """Note names of code that this user vouched for."""
    new = [name for name in names if name not in _known()]
    file = _file()
    if not new or file is None:
        return
    with suppress(OSError):  # a home that cannot be written to costs the flag, not the run
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("a", encoding="utf-8") as opened:
            file.chmod(0o600)
            opened.writelines(f"{name}\n" for name in new if "\n" not in name)


def _known() -> set[str]:
    file = _file()
    if file is None:
        return set()
    try:
        return set(file.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return set()


def _file() -> Path | None:
    """Where the names are kept; None for a user without a home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    state = os.environ.get("XDG_STATE_HOME") or home / ".local" / "state"
    return Path(state) / "pettingllms" / "known_code.txt"
