"""Chat templates of model folders, and the arguments that a policy gives them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pettingllms.errors import ModelError
from pettingllms.vision.families import object_in

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER = "tokenizer_config.json"


def require_used(given: Mapping[str, object], template: str, folder: Path) -> None:
    """Raise ModelError for arguments that the template never reads."""
    for name in given:
        if not re.search(rf"\b{re.escape(name)}\b", template):
            raise ModelError(
                f"the chat template of the model in {folder} never reads '{name}'; correct "
                "chat_template_kwargs of the policy, or leave it out"
            )


def read_template(folder: Path) -> str:
    """The chat template of a model's folder."""
    if (folder / TEMPLATE_FILE).is_file():
        return (folder / TEMPLATE_FILE).read_text(encoding="utf-8")
    template = object_in(folder / TOKENIZER).get("chat_template")
    if not isinstance(template, str):
        raise ModelError(f"the model in {folder} has no chat template, or several")
    return template


def with_defaults(template: str, given: Mapping[str, object]) -> str:
    """A template with arguments of a policy as defaults, so that servers of an exported model
    render prompts like training did. Requests can still override them."""
    # `+%}` keeps the line break that a template may begin with.
    return (
        "".join(
            f"{{% if {name} is not defined %}}{{% set {name} = {_literal(value)} %}}{{% endif +%}}"
            for name, value in given.items()
        )
        + template
    )


def _literal(value: object) -> str:
    """A value as Jinja writes it: like JSON, for booleans, numbers and texts."""
    return json.dumps(value, ensure_ascii=False)
