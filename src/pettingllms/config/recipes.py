"""The index of the recipes that ship with the package: what each trains, on what, and what is
known about its result."""

from pathlib import Path

from pydantic import Field, TypeAdapter

from pettingllms.config.section import Section
from pettingllms.config.toml_files import read_toml
from pettingllms.errors import ConfigError
from pettingllms.runtime.shipped import shipped

NEVER_RUN = "never run on GPUs"
TESTED = "2 steps, tiny Qwen3, CPU"


class Recipe(Section):
    """One recipe: a config under `configs/recipes`."""

    task: str
    """What is trained."""
    level: str
    """L0 to L3: which roles share weights."""
    model: str
    """Name of the models."""
    gpu: str
    """The GPU that the memory plan was made for, as in `pettingllms check --gpu`."""
    num_gpus: int = Field(ge=1)
    """How many of them, on one node."""
    hours: float | None = Field(default=None, gt=0)
    """Estimated hours of the whole run, from `pettingllms simulate` with assumed speeds; None if
    there is no estimate."""
    reference: str = ""
    """A published result of the same task, level and model; empty if there is none."""
    source: str = ""
    """Where the reference is published."""
    differs: str = ""
    """How the recipe differs from the published run."""
    status: str = NEVER_RUN
    """On what the recipe was run."""

    tested: str = TESTED
    """How tests run it: `tests/integration/test_recipe_runs.py`."""

    @property
    def shown_hours(self) -> str:
        """The estimate as text."""
        return "not estimated" if self.hours is None else f"{self.hours:g}"

    @property
    def hardware(self) -> str:
        """Number and name of the GPUs."""
        return f"{self.num_gpus} x {self.gpu}"


def recipes_folder() -> Path:
    """The folder of the recipes that ship."""
    return shipped("configs") / "recipes"


def read_recipes(folder: Path | None = None) -> dict[str, Recipe]:
    """The recipes by name, in the order of the index."""
    index = (folder or recipes_folder()) / "base" / "index.toml"
    if not index.is_file():
        raise ConfigError(str(index), ["not found; the recipes ship in configs/recipes"])
    return TypeAdapter(dict[str, Recipe]).validate_python(read_toml(index))
