"""Export of a trained policy to a folder that Transformers, PEFT and vLLM load."""

import shutil
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import ConfigError, nearest
from pettingllms.models import find_model
from pettingllms.policies.chat_template import TEMPLATE_FILE, read_template, with_defaults
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE, Saved, copy_content

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
    assert isinstance(section, FullPolicy | LoraPolicy)  # noqa: S101 - it was trained
    kept = (MODEL_FILE,) if isinstance(section, FullPolicy) else (ADAPTER_FILE, ADAPTER_CONFIG)
    model = find_model(section.model) if isinstance(section, FullPolicy) else None
    given = section.chat_template_kwargs
    template = with_defaults(read_template(find_model(section.model)), given) if given else ""
    out.mkdir(parents=True)
    if model is not None:
        for file in model.iterdir():
            if file.is_file() and file.suffix in (".json", ".jinja", ".txt", ".model"):
                shutil.copy(file, out)
        (out / "model.safetensors.index.json").unlink(missing_ok=True)
    if template:  # with the policy's arguments as defaults, beside an adapter too
        (out / TEMPLATE_FILE).write_text(template, encoding="utf-8")
    for name in kept:
        copy_content(saved[policy][name], out / name)
    return policy
