"""The canary of a model: a fixed reply to a fixed prompt, by which samplers and learners are told
apart if they have other weights."""

from typing import Any

import numpy as np

from pettingllms.envs import Environment
from pettingllms.envs.workflow import Workflow
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.vision import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.types import Ids, Image, Message, images_of

NUM_TOKENS = 16


def make_canary(env: Environment[Any, Any], renderer: ChatRenderer) -> Item:
    """A reply to the first prompt of an environment. A model that sees is shown its images, so that
    its eyes are compared as well."""
    messages = first_prompt(env)
    if not isinstance(renderer, VisionRenderer):
        ids = renderer.render([Message(message.speaker, message.text) for message in messages])
        return _repeated(ids, ids)
    ids = renderer.render(messages)
    # Ids that stand for pieces of images are no text to reply with.
    return _repeated(ids, ids[ids != renderer.eyes.image_id], images_of(messages))


def first_prompt(env: Environment[Any, Any]) -> Any:
    """What the first role to speak is shown first."""
    if isinstance(env, Workflow):
        return env.example()
    state = env.reset(env.tasks("train")[0], 0)
    return env.observe(state, env.acting(state)[0])


def _repeated(prompt_ids: Ids, text_ids: Ids, images: tuple[Image, ...] = ()) -> Item:
    """The reply is the prompt's own beginning, which is as good as any."""
    reply = text_ids[:NUM_TOKENS]
    return Item(prompt_ids, reply, np.zeros(len(reply), dtype=np.float32), 0.0, images=images)
