"""Weights that policies start from, and checks that they fit the configuration."""

import json
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import CheckpointError
from pettingllms.policies import plan_critics
from pettingllms.policies.files import (
    ADAPTER_CONFIG,
    ADAPTER_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
    Files,
    Saved,
    read_content,
)
from pettingllms.runs.folder import RunFolder


def initial_weights(config: RunConfig) -> Saved:
    """The weights of `train.init_from`, without optimizer states; none if it is not set."""
    if not config.train.init_from:
        return {}
    saved = RunFolder(Path(config.train.init_from)).weights(sorted(config.trained_policies()))
    for policy, files in saved.items():
        _check_same_kind(config, policy, files, config.train.init_from)
    return {
        policy: {name: file for name, file in files.items() if name != OPTIMIZER_FILE}
        for policy, files in saved.items()
    }


def check_same_policies(config: RunConfig, saved: Saved, run: Path) -> None:
    """Raise CheckpointError if a run's checkpoint has other policies than its configuration."""
    critics = (plan.name for plan in plan_critics(config))
    for name in (*sorted(config.trained_policies()), *critics):
        if name not in saved:
            raise CheckpointError(
                f"the checkpoint in {run} has no '{name}', it has {', '.join(sorted(saved))}; "
                "restore the names in its configuration, or start a new run with train.init_from"
            )
        if name in config.policies:
            _check_same_kind(config, name, saved[name], str(run))


def _check_same_kind(config: RunConfig, policy: str, files: Files, where: str) -> None:
    """Raise CheckpointError for weights that do not fit, or fit and mean something else."""
    section = config.policies[policy]
    if (MODEL_FILE if isinstance(section, FullPolicy) else ADAPTER_FILE) not in files:
        other = "an adapter" if ADAPTER_FILE in files else "a whole model"
        raise CheckpointError(
            f"'{policy}' is of kind {section.kind}, but {where} has {other} for it; set "
            f"policies.{policy}.kind to match, or export it and set policies.{policy}.model"
        )
    if isinstance(section, LoraPolicy):
        saved = json.loads(read_content(files[ADAPTER_CONFIG]))
        expected = {"rank": saved["r"], "alpha": saved["lora_alpha"]}
        for key, value in expected.items():
            if getattr(section, key) != value:
                raise CheckpointError(
                    f"policies.{policy}.{key} is {getattr(section, key)}, but the adapter in "
                    f"{where} was trained with {value}; set the key to {value}"
                )
