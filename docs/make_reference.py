"""Writes docs/reference/configuration.md from the strings under the configuration's fields."""

import json
from pathlib import Path
from typing import get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pettingllms.config import PolicyConfig, RewardConfig, RolloutConfig, RunConfig
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS

PAGE = Path(__file__).parent / "reference" / "configuration.md"


def reference() -> str:
    """The whole page."""
    policies = get_args(get_args(PolicyConfig)[0])
    parts = [
        "# Configuration",
        "Made by `python docs/make_reference.py`. On the command line: `section.key=value`.",
        table("The run", RunConfig),
        table("[reward]", RewardConfig),
        table("[rollout]", RolloutConfig),
        *(
            table(f'[policies.NAME], kind = "{p.model_fields["kind"].default}"', p)
            for p in policies
        ),
        *(table(f'[env], id = "{n}"', ENVIRONMENTS.load(n).Config) for n in ENVIRONMENTS.names()),
        *(table(f'[algo], type = "{n}"', ALGORITHMS.load(n).Config) for n in ALGORITHMS.names()),
    ]
    return "\n\n".join(parts) + "\n"


def table(title: str, model: type[BaseModel]) -> str:
    """One section as a table of its keys."""
    rows = [f"## {title}", "", "| key | default | meaning |", "| --- | --- | --- |"]
    for name, field in model.model_fields.items():
        plain = field.default is not PydanticUndefined and not isinstance(field.default, BaseModel)
        default = f"`{json.dumps(field.default)}`" if plain and field.default is not None else ""
        meaning = " ".join((field.description or "").split())
        rows.append(f"| `{name}` | {default} | {meaning} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(reference(), encoding="utf-8")
    print(f"wrote {PAGE}")
