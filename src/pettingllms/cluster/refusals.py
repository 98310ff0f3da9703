"""What a run refuses before it learns: weights of another model, or replies of other weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pettingllms.errors import CheckpointError, StaleWeightsError
from pettingllms.learners.files import MODEL_FILE
from pettingllms.models.folder import shapes_in, tensor_shapes
from pettingllms.policies.files import Files
from pettingllms.types import Episode


def refuse_misfit(policy: str, files: Files, model: Path | None) -> None:
    """Refuse whole weights that were trained from another model than is named now."""
    if MODEL_FILE not in files or model is None:
        return
    here, saved = tensor_shapes(model), f"{MODEL_FILE} of '{policy}'"
    for name, shape in shapes_in(files[MODEL_FILE], saved).items():
        if shape != here.get(name, shape):
            raise CheckpointError(
                f"the saved weights of '{policy}' are of another model than {model}: '{name}' "
                f"has the shape {shape}, and there {here[name]}; set policies.{policy}.model "
                "to the one that they began as"
            )


def refuse_stale(episodes: Sequence[Episode], versions: Mapping[str, int]) -> None:
    """Refuse to learn from what other weights wrote than those that would learn."""
    for episode in episodes:
        for turn in episode.turns:
            if turn.advantage is not None and turn.policy_version != versions[turn.policy]:
                raise StaleWeightsError(
                    f"episode {episode.id} was written by version {turn.policy_version} of "
                    f"'{turn.policy}', which is at {versions[turn.policy]}: its weights were not "
                    "published"
                )


def refuse_gap(policy: str, gap: float, bound: float) -> None:
    """Refuse to go on when sampler and learner no longer mean the same weights."""
    if not gap <= bound:  # nor is what is no number
        raise StaleWeightsError(
            f"sampler and learner differ on what '{policy}' just sampled by {gap:.2g} a token, "
            f"more than {bound:g} (inference.max_gap); the run stops before it learns more "
            "from it"
        )
