"""What a run refuses before it learns: models that are not here, weights of another model, or
replies of other weights."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pettingllms.config import RunConfig
from pettingllms.errors import CheckpointError, StaleWeightsError
from pettingllms.learners.files import ADAPTER_FILE, MODEL_FILE
from pettingllms.models.folder import find_model, shapes_in, tensor_shapes
from pettingllms.models.revision import identity
from pettingllms.policies import plan_critics, plan_models
from pettingllms.policies.files import Files
from pettingllms.runs.folder import write_whole
from pettingllms.types import Episode

MODELS_FILE = "models.json"
"""File of a run folder that records which revision of each model the run began with."""
_PART = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<which>[AB])\.weight")
"""PEFT's name for a half of an adapter: A meets what goes into a layer, B what comes out."""


def refuse_absent(config: RunConfig, learning: bool = True) -> None:
    """Refuse a run whose models are not here before anything is started."""
    for model in _models(config, learning):
        find_model(model)


def check_models(config: RunConfig, run: Path) -> None:
    """Record the models of a new run; refuse to resume a run whose models have changed since."""
    found = {model: identity(find_model(model)) for model in _models(config, learning=True)}
    record = run / MODELS_FILE
    began = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    changed = [model for model in found if model in began and began[model] != found[model]]
    if changed:
        then, now = (one[changed[0]]["revision"] for one in (began, found))
        raise CheckpointError(
            f"model '{changed[0]}' has changed since this run began (revision then: {then}, now: "
            f"{now}; see {record}); restore it with `pettingllms models get NAME@REVISION`, or "
            "start a new run"
        )
    if found.keys() - began.keys():
        write_whole(record, json.dumps(began | found, indent=1))


def _models(config: RunConfig, learning: bool) -> list[str]:
    critics = plan_critics(config) if learning else []
    return [*(group.model for group in plan_models(config)), *(one.model for one in critics)]


def check_weights_fit(policy: str, files: Files, model: Path | None) -> None:
    """Refuse weights that were trained from another model than is named now."""
    if model is None:
        return
    here = tensor_shapes(model)
    for file in files.keys() & {MODEL_FILE, ADAPTER_FILE}:
        for name, shape in shapes_in(files[file], f"{file} of '{policy}'").items():
            part = _PART.fullmatch(name)
            layer = f"{part['layer']}.weight" if part else name
            there = here.get(layer, shape)
            if not (_borders(shape, part["which"], there) if part else shape == there):
                raise CheckpointError(
                    f"the saved weights of '{policy}' are of another model than {model}: '{name}' "
                    f"has the shape {shape}, and there '{layer}' has {there}; set "
                    f"policies.{policy}.model to the one that they began as"
                )


def _borders(shape: list[int], which: str, layer: list[int]) -> bool:
    """Whether a half of an adapter ends where the layer does. Which side of a layer is which is
    for its class to say, so either will do."""
    return shape[1 if which == "A" else 0] in layer


def check_versions(episodes: Sequence[Episode], versions: Mapping[str, int]) -> None:
    """Refuse to learn from what other weights wrote than those that would learn."""
    for episode in episodes:
        for turn in episode.turns:
            if turn.credit.advantage is not None and turn.policy_version != versions[turn.policy]:
                raise StaleWeightsError(
                    f"episode {episode.id} was written by version {turn.policy_version} of "
                    f"'{turn.policy}', which is at {versions[turn.policy]}: its weights were not "
                    "published"
                )


def check_mismatch(policy: str, mismatch: float, bound: float) -> None:
    """Stop when sampler and learner do not compute the same log-probs."""
    if not mismatch <= bound:  # nor is what is no number
        raise StaleWeightsError(
            f"sampler and learner differ on what '{policy}' just sampled by {mismatch:.2g} per "
            "token, "
            f"more than {bound:g} (inference.max_mismatch); the run stops, and '{policy}' has "
            "learnt "
            "nothing from this batch"
        )
