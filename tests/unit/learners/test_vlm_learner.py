from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from pictures import plain
from toys import Relay, roll

from pettingllms.errors import ImageError, LearnerError, ModelError
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item, item_of, joint_actions_of
from pettingllms.learners.micro_batches import MicroBatches
from pettingllms.learners.policy_model import LogProbModel, load_lm
from pettingllms.learners.reply_batch import ReplyBatch
from pettingllms.models import make_tiny, make_tiny_vision
from pettingllms.types import Message, system, user
from pettingllms.vision.processor import load_image_processor

CPU = torch.device("cpu")
RED, BLUE = plain("red", (84, 84)), plain("blue", (84, 84))
WIDE, SMALL = plain("green", (168, 56)), plain("black", (28, 28))
REPLY = "<answer>B2</answer>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vision(tmp_path_factory.mktemp("models") / "eyes")


@pytest.fixture(scope="module")
def renderer(folder: Path) -> VisionRenderer:
    return VisionRenderer(folder)


@pytest.fixture(scope="module")
def lm(folder: Path) -> Any:
    return load_lm(folder, torch.float32)


def item(renderer: VisionRenderer, *messages: Message, reply: str = REPLY) -> Item:
    prompt, response = renderer.render(messages), renderer.encode(reply)
    images = tuple(image for message in messages for image in message.images)
    nothing = np.zeros(len(response), dtype=np.float32)
    return Item(prompt, response, nothing, 1.0, images=images)


def batch_of(renderer: VisionRenderer, *items: Item, trees: bool = True) -> ReplyBatch:
    micro_batches = MicroBatches(999, CPU, trees, False, renderer.image_processor)
    return micro_batches.batch(items)


def logprobs(lm: Any, renderer: VisionRenderer, *items: Item) -> list[np.ndarray]:
    """From token trees; padded rows must give the same."""
    found = []
    for trees in (True, False):
        batch = batch_of(renderer, *items, trees=trees)
        with torch.no_grad():
            logp, _, _ = LogProbModel(lm)(batch, 1.0, False)
        found.append(batch.spread(logp).numpy())
    np.testing.assert_allclose(*found, atol=1e-4)
    return [row[: len(one.response_ids)] for row, one in zip(found[0], items, strict=True)]


def by_the_model(lm: Any, renderer: VisionRenderer, one: Item) -> np.ndarray:
    """The oracle: the model's own forward pass over one reply."""
    ids = torch.from_numpy(np.concatenate([one.prompt_ids, one.response_ids]).astype(np.int64))[
        None
    ]
    seen: dict[str, Any] = {}
    if one.images:
        pixels = renderer.image_processor.pixels(one.images)
        seen = {
            "pixel_values": torch.from_numpy(pixels.inputs["pixel_values"]),
            "image_grid_thw": torch.from_numpy(pixels.inputs["image_grid_thw"]),
            "mm_token_type_ids": (ids == renderer.image_processor.image_id).int(),
        }
    with torch.no_grad():
        logp = lm(input_ids=ids, attention_mask=torch.ones_like(ids), **seen).logits.log_softmax(-1)
    start = len(one.prompt_ids)
    at = torch.arange(start - 1, ids.shape[1] - 1)
    return logp[0, at, ids[0, start:]].numpy()


def test_logprobs_change_when_the_picture_does_and_the_text_does_not(lm, renderer) -> None:
    red, blue = (item(renderer, user("Which cell?", image)) for image in (RED, BLUE))
    assert (red.prompt_ids == blue.prompt_ids).all()
    one, other = logprobs(lm, renderer, red, blue)
    assert np.abs(one - other).mean() > 1e-3


def test_one_batch_holds_several_images_none_and_other_sizes(lm, renderer) -> None:
    items = [
        item(renderer, user("Which cell?", RED)),
        item(renderer, user("Which cell?", BLUE), reply="A1"),
        item(renderer, system("You see."), user("Both", WIDE, RED), user("and", SMALL)),
        item(renderer, user("No picture here, and a rather longer text than that of others.")),
        item(renderer, user("Which cell?", RED), reply="A much longer reply than the others give"),
        item(renderer, user("Which cell?", SMALL)),
    ]
    together = logprobs(lm, renderer, *items)
    for one, found in zip(items, together, strict=True):
        assert np.abs(found - by_the_model(lm, renderer, one)).max() < 1e-4
        (alone,) = logprobs(lm, renderer, one)
        assert np.abs(found - alone).max() < 1e-4


def test_an_image_in_several_prompts_is_encoded_once(lm, renderer) -> None:
    items = [
        item(renderer, user("Which cell?", RED)),
        item(renderer, user("Which cell?", RED), reply="A1"),
        item(renderer, user("Both", BLUE, RED, BLUE)),
    ]
    batch = batch_of(renderer, *items)
    assert len(batch.sequences._images.inputs["image_grid_thw"]) == 2
    for one, found in zip(items, logprobs(lm, renderer, *items), strict=True):
        assert np.abs(found - by_the_model(lm, renderer, one)).max() < 1e-4


def test_the_order_of_images_counts(lm, renderer) -> None:
    one, other = logprobs(
        lm,
        renderer,
        item(renderer, user("Which is first?", RED, BLUE)),
        item(renderer, user("Which is first?", BLUE, RED)),
    )
    assert np.abs(one - other).mean() > 1e-4


def test_a_reply_may_hold_the_sign_of_an_image(lm, renderer) -> None:
    """A policy can sample any id; in a reply it is no place for an image."""
    one = item(renderer, user("Which cell?", RED))
    ids = np.array(
        [*one.response_ids[:2], renderer.image_processor.image_id, *one.response_ids[2:]], np.int32
    )
    odd = Item(one.prompt_ids, ids, np.zeros(len(ids), np.float32), 1.0, images=one.images)
    found, plain_one = logprobs(lm, renderer, odd, one)
    assert np.isfinite(found).all()
    assert np.abs(found[:2] - plain_one[:2]).max() < 1e-5


def test_gradients_reach_the_vision_encoder(folder: Path, renderer) -> None:
    lm = load_lm(folder, torch.float32)
    batch = batch_of(renderer, item(renderer, user("Which cell?", RED)))
    LogProbModel(lm)(batch, 1.0, False)[0].sum().backward()
    for name in ("visual.patch_embed", "visual.merger", "language_model.layers.0"):
        found = [p.grad for n, p in lm.named_parameters() if name in n]
        assert found, name
        assert any(grad is not None and grad.abs().sum() > 0 for grad in found), name


def test_a_prompt_has_a_token_for_every_square_of_28_pixels(renderer) -> None:
    for image, count in ((SMALL, 1), (RED, 9), (WIDE, 12)):
        assert renderer.image_processor.num_tokens(image) == count
        ids = renderer.render([user("x", image)])
        assert (ids == renderer.image_processor.image_id).sum() == count
    text = renderer.decode(renderer.render([user("look here", RED)]))
    assert "look here" in text


def test_the_same_seed_gives_the_same_model(folder: Path, tmp_path: Path) -> None:
    again = make_tiny_vision(tmp_path / "again")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name


def test_a_text_that_holds_the_sign_of_an_image_stays_text(renderer) -> None:
    ids = renderer.render([user("<|image_pad|>", RED)])
    assert (ids == renderer.image_processor.image_id).sum() == renderer.image_processor.num_tokens(
        RED
    )


def test_a_text_only_model_has_no_image_processor(tmp_path: Path, renderer) -> None:
    reader = make_tiny(tmp_path / "reader", texts=["one two three"])
    assert load_image_processor(reader) is None
    with pytest.raises(ModelError, match="text-only"):
        VisionRenderer(reader)
    with pytest.raises(LearnerError, match="text-only"):
        MicroBatches(99, CPU, True, False, None).batch([item(renderer, user("x", RED))])


def test_a_turn_brings_its_images_to_the_learner_and_to_a_critic() -> None:
    (episode,) = roll(Relay(), num_tasks=1, num_samples=1)
    turn = replace(episode.turns[0], messages=(user("x", RED), user("y", BLUE)))
    turn.credit.advantage = 1.0
    assert item_of(turn).images == (RED, BLUE)
    (joint_action,) = joint_actions_of([[turn]], centralized=False)
    assert joint_action.items[0].images == (RED, BLUE)


def test_a_prompt_that_was_made_for_other_images_is_refused(renderer) -> None:
    one = item(renderer, user("x", RED))
    wrong = Item(one.prompt_ids, one.response_ids, one.logprobs, 1.0, images=(SMALL,))
    with pytest.raises(ImageError, match="9 image tokens for 1 images that take 1"):
        batch_of(renderer, wrong)


def test_replies_to_one_image_share_it_and_others_do_not(folder: Path, renderer) -> None:
    """Gradients are those of padded rows, and each distinct prompt is read once."""
    items = [
        item(renderer, user("Which cell?", image), reply=reply)
        for image in (RED, BLUE)
        for reply in ("A1", "B2 or C3", "B2")
    ]
    items.append(item(renderer, user("Which cell?", RED), user("And?", BLUE), reply="A1"))
    items.append(item(renderer, user("No image.")))
    lm = load_lm(folder, torch.float32)
    found = []
    for trees in (True, False):
        batch = batch_of(renderer, *items, trees=trees)
        lm.zero_grad()
        logp, _, _ = LogProbModel(lm)(batch, 1.0, False)
        (logp * torch.linspace(-1, 1, len(logp))).sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in lm.parameters() if p.grad is not None]))
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-5
    assert batch_of(renderer, *items[:3]).sequences.num_positions < 1.3 * items[0].num_tokens
    one_each = [items[0], items[3]]
    read = batch_of(renderer, *one_each).sequences.num_positions
    assert read > 1.5 * items[0].num_tokens
