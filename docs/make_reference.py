"""Writes docs/reference: the configuration from the strings under its fields, the files in configs
from the comments at their top, the public names from what stands in the code."""

import json
import tomllib
from pathlib import Path
from typing import Literal, get_args, get_origin

from make_names import names_page
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pettingllms.config import PolicyConfig, RunConfig
from pettingllms.config.co_players import PhaseConfig
from pettingllms.envs.workflow import Workflow
from pettingllms.experiments.experiment import Experiment, Floor
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS, JUDGES, LOSSES

BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
FOLDER = Path(__file__).parent / "reference"
CONFIGS = Path(__file__).parents[1] / "configs"


def pages() -> dict[Path, str]:
    """What each page should say."""
    return {
        FOLDER / "configuration.md": reference(),
        FOLDER / "configs.md": configs_page(),
        FOLDER / "names.md": names_page(),
    }


def configs_page() -> str:
    """What each file in configs is for."""
    lines = [
        "# Configurations that ship",
        "",
        "Made by `python docs/make_reference.py` from the first lines of the files.",
        "L0 to L3 are the [levels](../concepts/levels.md). Another model, or any key, is given",
        "on the command line: `pettingllms train configs/FILE policies.NAME.model=FOLDER`.",
        "",
        "| file | environment | algorithm | what for |",
        "| --- | --- | --- | --- |",
        *map(config_row, sorted(CONFIGS.glob("*.toml"))),
    ]
    return "\n".join(lines) + "\n"


def config_row(file: Path) -> str:
    """A file, what it trains on and by, and the comment that it begins with."""
    text = file.read_text(encoding="utf-8")
    said = text[: text.index("[")].splitlines()
    purpose = " ".join(line.removeprefix("#").strip() for line in said).strip()
    if not purpose:
        raise ValueError(f"{file.name} does not say what it is for; begin it with a comment")
    data = tomllib.loads(text)
    link = f"[{file.name}](../../configs/{file.name})"
    return f"| {link} | `{data['env']['id']}` | `{data['algo']['type']}` | {purpose} |"


def reference() -> str:
    """The page of the configuration."""
    policies = get_args(get_args(PolicyConfig)[0])
    parts = [
        "# Configuration",
        "Made by `python docs/make_reference.py`. On the command line: `section.key=value`.",
        table("The run", RunConfig),
        *(
            table(f"[{name}]", section)
            for name, field in RunConfig.model_fields.items()
            if (section := section_of(field)) is not None
        ),
        *(
            table(f'[policies.NAME], kind = "{p.model_fields["kind"].default}"', p)
            for p in policies
        ),
        *(table(f'[env], id = "{n}"', ENVIRONMENTS.load(n).Config) for n in ENVIRONMENTS.names()),
        *(
            table(f'[env], id = "{library}:NAME"', ENVIRONMENTS.load(f"{library}:NAME").Config)
            for library in ENVIRONMENTS.libraries
        ),
        table("[env], a workflow", Workflow.Config),
        *(table(f'[algo], type = "{n}"', ALGORITHMS.load(n).Config) for n in ALGORITHMS.names()),
        *(table(f'[loss], type = "{n}"', LOSSES.load(n).Config) for n in LOSSES.names()),
        *(
            table(f'[judge.judges.NAME], kind = "{n}"', JUDGES.load(n).Config)
            for n in JUDGES.names()
        ),
        table("[[co_players.phases]]", PhaseConfig),
        *experiment_tables(),
    ]
    return "\n\n".join(parts) + "\n"


def experiment_tables() -> list[str]:
    """The sections of an experiment.toml, which is no run's configuration."""
    tables = [table("experiment.toml", Experiment)]
    for name, field in Experiment.model_fields.items():
        inner = get_args(field.annotation) or (field.annotation,)
        if isinstance(inner[0], type) and issubclass(inner[0], BaseModel):
            several = get_origin(field.annotation) is list
            title = f"[[{name}]]" if several else f"[{name}]"
            tables.append(table(f"experiment.toml, {title}", inner[0]))
    return [*tables, table("experiment.toml, [[quick.floors]]", Floor)]


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The one class that a section is read by, if there is one; it may be left out."""
    if field.is_required():
        return None
    parts = [part for part in (field.annotation, *get_args(field.annotation)) if part]
    found = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return found[0] if get_origin(field.annotation) is not dict and found else None


def table(title: str, model: type[BaseModel]) -> str:
    """One section as a table of its keys."""
    rows = [f"## {title}", "", "| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        meaning = " ".join((field.description or "").split())
        rows.append(f"| `{name}` | {values(field)} | {default(name, field)} | {meaning} |")
    return "\n".join(rows)


def default(name: str, field: FieldInfo) -> str:
    """The default of a key, or that there is none."""
    if field.is_required() or (name in ("id", "type") and field.default == ""):
        return "required"
    plain = field.default is not PydanticUndefined and not isinstance(field.default, BaseModel)
    return f"`{json.dumps(field.default)}`" if plain and field.default is not None else ""


def values(field: FieldInfo) -> str:
    """What a key may be set to."""
    types = (field.annotation, *get_args(field.annotation))
    several = "list of " if get_origin(field.annotation) is list else ""
    words = next((get_args(part) for part in types if get_origin(part) is Literal), ())
    if words:
        return several + ", ".join(f"`{json.dumps(word)}`" for word in words)
    if several:
        return "list"
    plain = [part.__name__ for part in (int, float, bool, str) if part in types]
    if not plain or get_origin(field.annotation) is dict:
        return "table"
    bounds = [
        f"{sign} {getattr(limit, attribute):g}"
        for limit in field.metadata
        for attribute, sign in BOUNDS.items()
        if hasattr(limit, attribute)
    ]
    return " ".join([plain[0], *bounds])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
