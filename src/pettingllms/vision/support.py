"""Which models are VLMs, by their config.json."""

import json
from pathlib import Path
from typing import Any

from pettingllms.errors import ModelError

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava")
"""Supported VLM families, by the `model_type` of their config.json."""
ADVICE = f"use a VLM ({', '.join(FAMILIES)})"


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model; ModelError if the file has none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise ModelError(f"{path} is not JSON ({error}); fetch the model again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} has no JSON object; fetch the model again")
    return found


def supports_images(folder: Path) -> bool:
    """Whether the model in a folder is a supported VLM."""
    config = object_in(folder / "config.json")
    if config.get("model_type") not in FAMILIES:
        return False
    # LLaVA's Pixtral encoder takes images of any size, which is not supported.
    tower = config.get("vision_config")
    return not isinstance(tower, dict) or tower.get("model_type") != "pixtral"
