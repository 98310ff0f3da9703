"""Runs with a checkpoint of a tiny model, metrics and recorded episodes, ready to be pushed."""

import json
from pathlib import Path

from recorded import recorded

from pettingllms.config import to_toml
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, MODEL_FILE, files_in
from pettingllms.runs.checkpoint import State, Writer
from pettingllms.runs.folder import CHECKPOINTS, CONFIG_FILE, VERSIONS_FILE, versions
from pettingllms.types import write_episodes

NUM_STEPS = 6


def make_base(folder: Path) -> Path:
    """A tiny model whose tokenizer covers the episodes."""
    from pettingllms.models import make_tiny

    return make_tiny(folder, texts=["move up down left right. " * 8])


def make_run(folder: Path, base: Path, kind: str) -> Path:
    """A run of two policies of a kind, with weights that differ from the base's."""
    overrides = [f"policies.{name}.{key}" for name in ("planner", "checker") for key in
                 (f"kind={kind}", f"model={base}")]  # fmt: skip
    config, episodes = recorded(
        "plan_path_team.toml", *overrides, "rollout.num_tasks=2", "train.num_steps=8"
    )
    (folder / "episodes").mkdir(parents=True)
    (folder / CONFIG_FILE).write_text(to_toml(config))
    (folder / VERSIONS_FILE).write_text(json.dumps(versions()))
    with (folder / "metrics.jsonl").open("w") as lines:
        for step in range(1, NUM_STEPS + 1):
            lines.write(json.dumps(row(step)) + "\n")
    for step in (1, NUM_STEPS):
        write_episodes(folder / "episodes" / f"step-{step:06d}-000.zip", episodes)
    writer = Writer(folder / CHECKPOINTS, State(step=NUM_STEPS, versions={"planner": 3}))
    for at, name in enumerate(("planner", "checker")):
        trained = folder / f"trained-{name}"
        save = save_full if kind == "full" else save_adapter
        writer.add(name, save(base, trained, at + 1))
    writer.finish(keep=1)
    return folder


def row(step: int) -> dict[str, float]:
    """Metrics of a step of a run that learns."""
    found: dict[str, float] = {"step": step, "time/step": 30.0, "rollout/num_episodes": 8}
    found["rollout/total_tokens"] = 1000 * step
    for role in ("planner", "checker"):
        found |= {f"roles/{role}/reward": step / 10, f"roles/{role}/success": step / 8}
        if step % 3 == 0:
            found[f"roles/{role}/eval_success"] = step / 10
    return found


def save_full(base: Path, folder: Path, seed: int) -> dict[str, Path]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.01 * torch.randn_like(value))
    model.save_pretrained(folder)
    return {MODEL_FILE: folder / MODEL_FILE}


def save_adapter(base: Path, folder: Path, seed: int) -> dict[str, Path]:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=4))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora" in name:
                value.add_(0.1 * torch.randn_like(value))
    model.save_pretrained(folder)
    return {name: files_in(folder)[name] for name in (ADAPTER_FILE, ADAPTER_CONFIG)}
