"""Which models take images, by their config.json."""

import json
from pathlib import Path
from typing import Any

from pettingllms.errors import ModelError

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava")
"""Models that can be shown images here, by the `model_type` of their config.json."""
ADVICE = f"take a model that sees ({', '.join(FAMILIES)})"


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model; ModelError if it is cut short or holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise ModelError(f"{path} is no JSON ({error}); fetch the model again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds no JSON object; fetch the model again")
    return found


def supports_images(folder: Path) -> bool:
    """Whether the model of a folder can be shown images."""
    config = object_in(folder / "config.json")
    if config.get("model_type") not in FAMILIES:
        return False
    # Of LLaVA's towers one takes images of any size, side by side, which nothing here does.
    tower = config.get("vision_config")
    return not isinstance(tower, dict) or tower.get("model_type") != "pixtral"
