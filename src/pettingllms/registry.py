"""The tables of environments and algorithms by name.

A name is a line of a table here, an entry point of an installed package, or `module:Class` /
`file.py:Class`. Nothing is imported until it is asked for, and nothing is guessed: a wrong name is
an error with the nearest right one, and a module that cannot be imported says why.
"""

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pettingllms.errors import UnknownNameError, nearest


class Registry:
    """Classes of one kind, by name, imported when first asked for."""

    def __init__(self, kind: str, table: dict[str, str]) -> None:
        self.kind = kind
        self._table = table

    def names(self) -> list[str]:
        """Every name known now: ours, then those of installed packages."""
        return [*self._table, *sorted(self._plugins())]

    def load(self, name: str) -> Any:
        """The class of that name."""
        target = self._table.get(name) or (name if ":" in name else self._plugins().get(name))
        if target is None:
            raise UnknownNameError(
                f"no {self.kind} is called '{name}'; {nearest(name, self.names())}"
            )
        place, _, attribute = target.partition(":")
        try:
            module = _load_file(Path(place)) if place.endswith(".py") else _import(place)
            return getattr(module, attribute)
        except (ModuleNotFoundError, FileNotFoundError, AttributeError) as error:
            raise UnknownNameError(f"{self.kind} '{name}' cannot be loaded: {error}") from error

    def _plugins(self) -> dict[str, str]:
        group = f"pettingllms.{self.kind}s"
        return {point.name: point.value for point in entry_points(group=group)}


def _import(place: str) -> Any:
    return importlib.import_module(place)


def _load_file(path: Path) -> Any:
    """Import a file under its stem, so that what it defines can be pickled by name."""
    resolved = path.resolve()
    loaded = sys.modules.get(resolved.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(resolved):
        return loaded
    if loaded is not None:
        raise UnknownNameError(
            f"{path} would hide the module '{resolved.stem}', which is already loaded; "
            "rename the file"
        )
    spec = importlib.util.spec_from_file_location(resolved.stem, resolved)
    if spec is None or spec.loader is None or not resolved.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[resolved.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[resolved.stem]
        raise
    return module


ENVIRONMENTS = Registry(
    "environment",
    {
        "tic_tac_toe-v1": "pettingllms.envs.tic_tac_toe:TicTacToe",
        "hanabi-v1": "pettingllms.envs.hanabi:Hanabi",
        "plan_path-v1": "pettingllms.envs.plan_path:PlanPath",
        "sokoban-v1": "pettingllms.envs.sokoban:Sokoban",
        "sudoku-v1": "pettingllms.envs.sudoku:Sudoku",
    },
)

ALGORITHMS = Registry(
    "algorithm",
    {
        "grpo": "pettingllms.algos.grpo:Grpo",
        "at_grpo": "pettingllms.algos.at_grpo:AtGrpo",
        "dr_grpo": "pettingllms.algos.dr_grpo:DrGrpo",
        "rloo": "pettingllms.algos.rloo:Rloo",
        "reinforce_pp": "pettingllms.algos.reinforce_pp:ReinforcePp",
        "rae": "pettingllms.algos.rae:Rae",
        "magrpo": "pettingllms.algos.magrpo:Magrpo",
        "dr_mas": "pettingllms.algos.dr_mas:DrMas",
    },
)
