"""Prompts that show images, and what sampler and learner say of the replies to them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pictures import plain, saved
from PIL import Image as pillow  # noqa: N813 - it is a module

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.types import Image, Message, Sample, SampleRequest, images_of, system, user


def noise(size: tuple[int, int], seed: int) -> Image:
    """A picture in which no two places are alike."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image(saved(pillow.fromarray(pixels)))


RED, BLUE = plain("red", (84, 84)), plain("blue", (84, 84))
IMAGE_PROMPTS: dict[str, list[Message]] = {
    "one": [user("Which cell?", RED)],
    "another picture, the same text": [user("Which cell?", BLUE)],
    "several": [system("You see."), user("Both", noise((168, 56), 1), RED), user("and", BLUE)],
    "none": [user("No picture here, and a rather longer text than that of others.")],
    "wide": [user("Which cell?", noise((196, 84), 2))],
    "of a size that is scaled": [user("Which cell?", noise((100, 61), 3))],
    "smallest": [user("Which cell?", noise((28, 28), 4))],
}


def asked(renderer: VisionRenderer, messages: Sequence[Message], **options: Any) -> SampleRequest:
    chosen = {"num_samples": 2, "max_tokens": 12, "seed": 1, "task_id": "t", **options}
    ids = renderer.render(messages)
    return SampleRequest("p", "role", ids, images=images_of(messages), **chosen)


def items_of(request: SampleRequest, samples: Sequence[Any]) -> list[Item]:
    assert all(isinstance(sample, Sample) for sample in samples), samples
    return [
        Item(request.prompt_ids, s.ids, s.logprobs, 1.0, images=request.images) for s in samples
    ]


def learner_of(folder: Path, policy: FullPolicy | LoraPolicy) -> Learner:
    config = LearnerConfig(max_batch_tokens=4096)
    return Learner(LearnerSpec(folder, {"p": policy}, config, loss_config(), 64, seed=1))


def gaps(learner: Learner, items: Sequence[Item]) -> list[float]:
    """How far apart sampler and learner are on each reply, the mean over its tokens."""
    found = learner.logprobs("p", items)
    return [float(np.abs(i.logprobs - f).mean()) for i, f in zip(items, found, strict=True)]
