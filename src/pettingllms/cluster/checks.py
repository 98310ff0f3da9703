"""Checks before learning: models exist and did not change, weights fit, turns are on-policy."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.errors import CheckpointError, StaleWeightsError
from pettingllms.models.folder import find_model, shapes_in, tensor_shapes
from pettingllms.models.revision import identity
from pettingllms.policies import plan_critics, plan_models
from pettingllms.policies.files import ADAPTER_FILE, MODEL_FILE, Files, Saved
from pettingllms.runs.folder import write_whole
from pettingllms.types import Episode

MODELS_FILE = "models.json"
"""File of a run folder with the revision of each model at the start of the run."""
_PART = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<which>[AB])\.weight")
"""PEFT's names of LoRA matrices: A has the input size of a layer, B the output size."""


def check_models_exist(config: RunConfig, learning: bool = True) -> None:
    """Raise ModelError if a model is missing, before anything starts."""
    for model in _models(config, learning):
        find_model(model)


def check_models(config: RunConfig, run: Path) -> None:
    """Record the models of a new run; raise CheckpointError if those of a resumed run changed."""
    found = {model: identity(find_model(model)) for model in _models(config, learning=True)}
    record = run / MODELS_FILE
    recorded = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    changed = [model for model in found if model in recorded and recorded[model] != found[model]]
    if changed:
        before, now = (one[changed[0]]["revision"] for one in (recorded, found))
        raise CheckpointError(
            f"model '{changed[0]}' changed since this run started (revision then: {before}, now: "
            f"{now}; see {record}); restore it with `pettingllms models get NAME@REVISION`, or "
            "start a new run"
        )
    if found.keys() - recorded.keys():
        write_whole(record, json.dumps(recorded | found, indent=1))


def _models(config: RunConfig, learning: bool) -> list[str]:
    critics = plan_critics(config) if learning else []
    return [*(group.model for group in plan_models(config)), *(one.model for one in critics)]


def check_weights_fit(policy: str, files: Files, model: Path | None) -> None:
    """Raise CheckpointError for weights that were trained from another model."""
    if model is None:
        return
    here = tensor_shapes(model)
    for file in files.keys() & {MODEL_FILE, ADAPTER_FILE}:
        for name, shape in shapes_in(files[file], f"{file} of '{policy}'").items():
            part = _PART.fullmatch(name)
            layer = f"{part['layer']}.weight" if part else name
            there = here.get(layer, shape)
            if not (_matches(shape, part["which"], there) if part else shape == there):
                raise CheckpointError(
                    f"the saved weights of '{policy}' do not fit {model}: '{name}' has shape "
                    f"{shape}, but '{layer}' of the model has {there}; set policies.{policy}.model "
                    "to the model that they were trained from"
                )


def require_weights(policy: str, saved: Saved, model: Path | None) -> None:
    """Raise CheckpointError if a checkpoint has no weights of a policy, or of another model."""
    if policy not in saved:
        raise CheckpointError(
            f"the checkpoint has no policy '{policy}', it has {', '.join(saved)}; evaluate "
            "it with the configuration of its run"
        )
    check_weights_fit(policy, saved[policy], model)


def _matches(shape: list[int], which: str, layer: list[int]) -> bool:
    """Whether a LoRA matrix matches a size of the layer. Which side of a weight is the input
    depends on the layer's class, so either side is accepted."""
    return shape[1 if which == "A" else 0] in layer


def check_versions(
    episodes: Sequence[Episode], versions: Mapping[str, int], max_staleness: int = 0
) -> None:
    """Raise StaleWeightsError for turns that older weights sampled than may be learned from."""
    for episode in episodes:
        for turn in episode.turns:
            if turn.credit.advantage is None:
                continue
            version, now = turn.policy_version, versions[turn.policy]
            if version is None or not 0 <= now - version <= max_staleness:
                raise StaleWeightsError(
                    f"episode {episode.id} was sampled by version {version} of '{turn.policy}', "
                    f"which is at {now}, with at most {max_staleness} versions between them "
                    "(rollout.max_staleness): its weights were not published"
                )


def check_mismatch(policy: str, mismatch: float, bound: float) -> None:
    """Raise StaleWeightsError if sampler and learner compute different log-probs."""
    if not mismatch <= bound:  # also if it is NaN
        raise StaleWeightsError(
            f"sampler and learner differ on what '{policy}' just sampled by {mismatch:.2g} per "
            f"token, more than {bound:g} (inference.max_mismatch); the run stops before "
            f"'{policy}' learns from this batch"
        )
