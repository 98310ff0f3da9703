"""Export of a trained policy to a folder that Transformers, PEFT and vLLM load."""

import shutil
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.errors import ConfigError, nearest
from pettingllms.models import find_model
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE, Saved, read_content

__all__ = ["export"]


def export(config: RunConfig, saved: Saved, policy: str | None, out: Path) -> str:
    """Write a policy of a checkpoint as a full model or an adapter; return its name."""
    if policy is None and len(saved) == 1:
        policy = next(iter(saved))
    if policy is None:
        raise ConfigError("--policy", [f"several were trained: {', '.join(saved)}; name one"])
    if policy not in saved:
        raise ConfigError("--policy", [f"'{policy}' was not trained; {nearest(policy, saved)}"])
    if out.exists():
        raise ConfigError(str(out), ["already exists; give another folder"])
    section = config.policies[policy]
    kept = (MODEL_FILE,) if isinstance(section, FullPolicy) else (ADAPTER_FILE, ADAPTER_CONFIG)
    model = find_model(section.model) if isinstance(section, FullPolicy) else None
    out.mkdir(parents=True)
    if model is not None:
        for file in model.iterdir():
            if file.is_file() and file.suffix in (".json", ".jinja", ".txt", ".model"):
                shutil.copy(file, out)
        (out / "model.safetensors.index.json").unlink(missing_ok=True)
    for name in kept:
        (out / name).write_bytes(read_content(saved[policy][name]))
    return policy
