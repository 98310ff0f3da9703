"""Which policies can be shown images: a run with one that cannot is refused before it starts."""

import json
from pathlib import Path

from pettingllms.config.policies import PolicyConfig

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava")
"""Models that can be shown images here, by the `model_type` of their config.json."""
ADVICE = f"take a model that sees ({', '.join(FAMILIES)})"


def sees(folder: Path) -> bool:
    """Whether the model of a folder can be shown images."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") not in FAMILIES:
        return False
    # Of LLaVA's towers one takes images of any size, side by side, which nothing here does.
    return bool(config.get("vision_config", {}).get("model_type") != "pixtral")


def blind(policy: PolicyConfig) -> str:
    """Why a policy cannot play a role that is shown images; empty if it can, or if that is not
    known before its model is found."""
    match policy.kind:
        case "scripted":
            return ""  # reads the state
        case "api":
            reason = f"a server's model ('{policy.model}') is sent text alone"
            return "" if policy.sees else f"{reason}; set sees = true if it takes images"
        case _:
            folder = Path(policy.model).expanduser()
            known = (folder / "config.json").is_file()
            return f"'{policy.model}' only reads; {ADVICE}" if known and not sees(folder) else ""
