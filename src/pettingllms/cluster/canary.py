"""The canary of a model: a fixed reply to a fixed prompt, by which samplers and learners are told
apart if they have other weights."""

from typing import Any

import numpy as np

from pettingllms.envs import Environment
from pettingllms.envs.workflow import Workflow
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.types import Ids, Image, Message, images_of

NUM_TOKENS = 64
"""Of the reply. A mean over 16 tokens of SmolLM2 in bfloat16 is twice as noisy."""


def make_canary(env: Environment[Any, Any], renderer: ChatRenderer, max_tokens: int) -> Item:
    """A reply to the first prompt of an environment. A model that sees is shown its images, so that
    its eyes are compared as well. The reply ends where prompt and reply have `max_tokens`."""
    messages = first_prompt(env)
    if not isinstance(renderer, VisionRenderer):
        ids = renderer.render([Message(message.speaker, message.text) for message in messages])
        return _repeated(ids, ids, max_tokens)
    ids = renderer.render(messages)
    # Ids that stand for pieces of images are no text to reply with.
    return _repeated(
        ids, ids[ids != renderer.image_processor.image_id], max_tokens, images_of(messages)
    )


def first_prompt(env: Environment[Any, Any]) -> Any:
    """What the first role to speak is shown first."""
    if isinstance(env, Workflow):
        return env.example()
    state = env.reset(env.tasks("train")[0], 0)
    return env.observe(state, env.acting(state)[0])


def _repeated(
    prompt_ids: Ids, text_ids: Ids, max_tokens: int, images: tuple[Image, ...] = ()
) -> Item:
    """The reply is the prompt's own text, again and again: as good as any, and likely enough to
    keep the noise of bfloat16 small."""
    room = max_tokens - len(prompt_ids) - 1  # vLLM adds a token to what it scores
    reply = np.resize(text_ids, max(1, min(NUM_TOKENS, room)))
    return Item(prompt_ids, reply, np.zeros(len(reply), dtype=np.float32), 0.0, images=images)
