"""The canary of a model: a fixed reply to a fixed prompt, whose log-probs show whether sampler and
learner have the same weights."""

from typing import Any

import numpy as np

from pettingllms.envs import Environment
from pettingllms.envs.base import observation
from pettingllms.envs.workflow import Workflow
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.types import Ids, Image, Message, images_of

NUM_TOKENS = 64
"""Tokens of the reply. A mean over 16 tokens of SmolLM2 in bfloat16 is twice as noisy."""


def make_canary(env: Environment[Any, Any], renderer: ChatRenderer, max_tokens: int) -> Item:
    """A reply to the first prompt of an environment, cut at `max_tokens` with the prompt.

    A VLM gets the prompt's images, so that its image encoder is compared as well.
    """
    messages = first_prompt(env)
    if not isinstance(renderer, VisionRenderer):
        ids = renderer.render([Message(message.speaker, message.text) for message in messages])
        return _repeated(ids, ids, max_tokens)
    ids = renderer.render(messages)
    # Placeholder ids of images cannot be part of a reply.
    return _repeated(
        ids, ids[ids != renderer.image_processor.image_id], max_tokens, images_of(messages)
    )


def first_prompt(env: Environment[Any, Any]) -> Any:
    """The first observation of the first acting role."""
    if isinstance(env, Workflow):
        return env.example()
    tasks = env.tasks("train") or env.tasks("test")  # a test set has nothing to train on
    state = env.reset(tasks[0], 0)
    return observation(env, state, env.acting(state)[0])


def _repeated(
    prompt_ids: Ids, text_ids: Ids, max_tokens: int, images: tuple[Image, ...] = ()
) -> Item:
    """The reply repeats the prompt's text, which is likely enough to keep the noise of bfloat16
    small."""
    room = max_tokens - len(prompt_ids) - 1  # vLLM adds a token when it scores
    reply = np.resize(text_ids, max(1, min(NUM_TOKENS, room)))
    return Item(prompt_ids, reply, np.zeros(len(reply), dtype=np.float32), 0.0, images=images)
