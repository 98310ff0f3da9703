"""Which models of a run are shown images, and what the canary shows them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.cluster.publishing import make_canary
from pettingllms.config.eyes import ADVICE, sees
from pettingllms.envs import Environment
from pettingllms.errors import ModelError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.vision import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.policies import ModelGroup
from pettingllms.types import Message, images_of


def refuse_blind(
    env: Environment[Any, Any],
    roles: Mapping[str, str],
    groups: Sequence[ModelGroup],
    models: Mapping[str, Path],
) -> None:
    """Refuse a role that is shown images and played by a model that only reads."""
    for role in env.seeing:
        for group in groups:
            if roles[role] in group.policies and not sees(models[group.name]):
                raise ModelError(
                    f"'{env.id}' shows images to '{role}', and '{group.model}' of policies."
                    f"{roles[role]} only reads; {ADVICE}"
                )


def canary_of(renderer: ChatRenderer, messages: Sequence[Message]) -> Item:
    """A model that sees is shown the images, so that its eyes are compared as well; one that reads
    is given the texts of whoever speaks first."""
    if not isinstance(renderer, VisionRenderer):
        return make_canary(renderer.render([Message(m.speaker, m.text) for m in messages]))
    ids = renderer.render(messages)
    return make_canary(ids, images_of(messages), ids != renderer.eyes.image_id)
