"""Trust in user code: code named by a run folder runs only if its user trusts it.

A configuration can name classes outside this package, and loading one executes its module. A run
folder may come from another person. So the code that its configuration names is imported only if

- this user has started a run with it, from their own configuration, or created it with `init`: such
  names are kept in a file in the user's home, where no run folder reaches, or
- the user sets `--trust-run-code` or PETTINGLLMS_TRUST_RUN_CODE=1.

Code inside a run folder always needs the second. Names on the command line, and in a configuration
outside of run folders, are trusted.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pettingllms.config import RunConfig, apply_overrides, load_config, read_toml
from pettingllms.config.extends import KEY as EXTENDS
from pettingllms.config.user_code import named_code
from pettingllms.errors import ConfigError

TRUST = "PETTINGLLMS_TRUST_RUN_CODE"
FLAG = "--trust-run-code"
CONFIG_FILE = "config.toml"
BESIDE = ("versions.json", "metrics.jsonl", "supervised", "episodes.jsonl")
"""Files that only run folders have."""
FOLDERS = ("checkpoints", "episodes")
"""Subfolders that run folders have, and other folders may have."""


def load_user_config(
    path: Path, overrides: Sequence[str] = (), needs_data: bool = True
) -> RunConfig:
    """A configuration to run: the user's own, or that of a run folder, which must be trusted."""
    if is_of_run(path):
        require_trusted(path, overrides)
    return load_config(path, overrides, of_run=is_of_run(path), needs_data=needs_data)


def load_inspected_config(
    path: Path, overrides: Sequence[str] = (), needs_data: bool = True
) -> RunConfig:
    """A configuration to inspect. A `config.toml` in another folder may be part of a received run,
    so it must be trusted too. Plans need no data."""
    if path.name == CONFIG_FILE and path.parent.resolve() != Path.cwd():
        require_trusted(path, overrides)
    return load_user_config(path, overrides, needs_data)


def load_run_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration of a run, if the code that it names is trusted."""
    require_trusted(path, overrides)
    return load_config(path, overrides, of_run=is_of_run(path), may_extend=False)


def is_of_run(path: Path) -> bool:
    """Whether a configuration is in a run folder. A `config.toml` alone in a folder is not."""
    if _holds(path.parent, BESIDE):
        return True
    return path.name == CONFIG_FILE and _holds(path.parent, FOLDERS)


def _holds(folder: Path, names: Sequence[str]) -> bool:
    return any((folder / name).exists() for name in names)


def require_trusted(path: Path, overrides: Sequence[str] = ()) -> None:
    """Raise ConfigError, before anything is imported, if a run names untrusted code.

    Names that an override replaces are not imported, and names in overrides are trusted.
    """
    if os.environ.get(TRUST) == "1":
        return
    data = read_toml(path)
    if EXTENDS in data:
        problem = (
            f"{EXTENDS}: this config may be part of a received run, so the file that it names was "
            "not read; if it is yours, call pettingllms from its folder, or give it another name "
            f"than {CONFIG_FILE}"
        )
        raise ConfigError(str(path), [problem])
    written = named_code(data)
    apply_overrides(data, overrides)
    known = _known()
    if _holds(path.parent, (*BESIDE, *FOLDERS)):
        folder = path.parent.resolve()
        known = {name for name in known if not Path(name).is_relative_to(folder)}
    unknown = [name for name in named_code(data) if name in written and name not in known]
    if unknown:
        problem = (
            f"names code or servers that do not ship with pettingllms: {', '.join(unknown)}; "
            "loading them would execute code or contact a server, so nothing was loaded. If you "
            "trust the author of this run, use "
            f"`pettingllms {FLAG} COMMAND ...`"
        )
        raise ConfigError(str(path), [problem])


def remember_code(config: RunConfig) -> None:
    """Trust the code that a configuration names, because this user started a run with it."""
    remember(named_code(config.model_dump(mode="json")))


def remember(names: Sequence[str]) -> None:
    """Add names of trusted code to the user's file."""
    new = [name for name in names if name not in _known()]
    file = _file()
    if not new or file is None:
        return
    with suppress(OSError):  # a read-only home costs the flag, not the run
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
    """The file of trusted names; None for a user without a home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    state = os.environ.get("XDG_STATE_HOME") or home / ".local" / "state"
    return Path(state) / "pettingllms" / "known_code.txt"
