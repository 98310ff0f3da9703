"""Every family that sees, by the same code: prompts, sampler, learner, and what adapters move."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from image_prompts import BLUE, IMAGE_PROMPTS, RED, asked, gaps, items_of, learner_of, noise

from pettingllms.config import CriticConfig, InferenceConfig, LearnerConfig
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import ModelError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item, JointAction
from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.learner import Learner
from pettingllms.models import make_tiny_vision
from pettingllms.types import ScoreRequest, user
from pettingllms.vision import families
from pettingllms.vision.families import FAMILIES, family_of
from pettingllms.vision.images import open_image

PARTS = {
    "language": ("language_model.", "text_model."),
    "vision": (".visual.blocks.", ".visual.patch_embed", "vision_model.", "vision_tower."),
    "projector": (".merger.", ".deepstack_merger_list.", "connector.", "multi_modal_projector."),
}
WORDS = ["Which cell? You see. Both and B2 A1"] * 4


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / request.param
    return make_tiny_vision(out, WORDS, hidden_size=64, family=request.param)


@pytest.fixture(scope="module")
def renderer(folder: Path) -> VisionRenderer:
    return VisionRenderer(folder)


@pytest.fixture(scope="module")
def learner(folder: Path) -> Learner:
    return learner_of(folder, FullPolicy(model=str(folder), lr=1e-3))


@pytest.fixture(scope="module")
def engine(folder: Path) -> TorchEngine:
    return started(folder)


def started(folder: Path) -> TorchEngine:
    config = InferenceConfig(engine="torch", max_model_len=512)
    made = TorchEngine(EngineSpec(folder, config, ("p",)))
    asyncio.run(made.start())
    return made


def sampled(engine: TorchEngine, renderer: VisionRenderer) -> list[Item]:
    requests = [asked(renderer, some, seed=at) for at, some in enumerate(IMAGE_PROMPTS.values())]
    found = asyncio.run(engine.sample_many(requests))
    return [item for pair in zip(requests, found, strict=True) for item in items_of(*pair)]


def by_the_model(folder: Path, renderer: VisionRenderer, one: Item) -> Any:
    """The oracle: the model's own forward pass, with what its processor says, over one reply."""
    from transformers import AutoModelForImageTextToText

    lm: Any = AutoModelForImageTextToText.from_pretrained(folder).eval()
    ids = torch.from_numpy(np.concatenate([one.prompt_ids, one.response_ids]).astype(np.int64))
    pixels = renderer.image_processor.pixels(one.images)
    seen = {
        name: torch.from_numpy(array[None] if renderer.image_processor.tiled else array)
        for name, array in pixels.inputs.items()
    }
    if hasattr(lm.model, "get_rope_index"):
        seen["mm_token_type_ids"] = (ids[None] == renderer.image_processor.image_id).int()
    with torch.no_grad():
        logp = lm(input_ids=ids[None], **seen).logits.log_softmax(-1)[0]
    start = len(one.prompt_ids)
    return logp[torch.arange(start - 1, len(ids) - 1), ids[start:]].numpy()


def test_sampler_learner_and_the_model_itself_agree(folder, engine, learner, renderer) -> None:
    items = sampled(engine, renderer)
    assert max(gaps(learner, items)) < 1e-5
    assert sum(bool(item.images) for item in items) > 2
    for item in items:
        if item.images and renderer.image_processor.image_id not in item.response_ids:
            expected = by_the_model(folder, renderer, item)
            assert np.abs(item.logprobs - expected).max() < 1e-4


def test_another_picture_gives_other_log_probs_of_the_same_reply(engine, learner, renderer) -> None:
    one, other = (asked(renderer, [user("Which cell?", image)]) for image in (RED, BLUE))
    assert (one.prompt_ids == other.prompt_ids).all()
    reply = renderer.encode("B2")
    given = [ScoreRequest(request.prompt_ids, reply, request.images) for request in (one, other)]
    said = asyncio.run(engine.score_many("p", given))
    assert np.abs(said[0] - said[1]).mean() > 1e-3
    items = [Item(*g[:2], logp, 1.0, images=g.images) for g, logp in zip(given, said, strict=True)]
    assert max(gaps(learner, items)) < 1e-5


def test_a_prompt_is_narrowed_to_one_place_for_each_image(renderer) -> None:
    """As the template has it: nothing of what the family puts around an image is left."""
    for messages in IMAGE_PROMPTS.values():
        request = asked(renderer, messages)
        narrow = renderer.image_processor.unexpanded(request.prompt_ids, request.images)
        assert narrow.count(renderer.image_processor.image_id) == len(request.images)
        content = [
            [*({"type": "image"} for _ in m.images), {"type": "text", "text": m.text}]
            for m in messages
        ]
        chat = [{"role": m.speaker, "content": c} for m, c in zip(messages, content, strict=True)]
        assert narrow == renderer.text_ids(renderer.chat_text(chat, (), True)).tolist()


@pytest.mark.parametrize("part", PARTS)
def test_an_adapter_moves_its_own_part_and_nothing_else(part, folder, engine, renderer) -> None:
    learner = learner_of(folder, LoraPolicy(model=str(folder), rank=4, lr=1e-2, parts=[part]))
    before = {n: p.detach().clone() for n, p in learner._model.lm.named_parameters()}
    items = sampled(engine, renderer)
    for step in (1, 2):
        learner.train("p", items, step)
    now = dict(learner._model.lm.named_parameters())
    moved = {name for name in before if not torch.equal(before[name], now[name])}
    assert moved
    for name in moved:
        assert ".lora_" in name
        assert any(mark in name for mark in PARTS[part]), name
        others = [mark for other in PARTS if other != part for mark in PARTS[other]]
        if part == "projector":  # it lies inside what sees, in some families
            others = PARTS["language"]
        elif part == "vision":
            others = [*PARTS["projector"], *PARTS["language"]]
        assert not any(mark in name for mark in others), name


def test_full_training_reaches_every_part(folder, engine, renderer) -> None:
    learner = learner_of(folder, FullPolicy(model=str(folder), lr=1e-2))
    before = {n: p.detach().clone() for n, p in learner._model.lm.named_parameters()}
    learner.train("p", sampled(engine, renderer), 1)
    now = dict(learner._model.lm.named_parameters())
    moved = {name for name in before if not torch.equal(before[name], now[name])}
    for part, weight_hashes in PARTS.items():
        assert any(mark in name for name in moved for mark in weight_hashes), part


def test_a_critic_tells_pictures_apart_and_learns_from_them(folder, renderer) -> None:
    """Equal replies to equal texts with different rewards: only the picture tells them apart."""
    joint_actions = [rewarded(renderer, RED, 1.0), rewarded(renderer, BLUE, -1.0)]
    spec = CriticSpec(folder, CriticConfig(kind="model", lr=3e-3), LearnerConfig(), 5)
    critic = Critic(spec)
    losses = [critic.train(joint_actions, step)["value_loss"] for step in range(30)]
    assert losses[0] == pytest.approx(1.0, abs=1e-3)
    assert losses[-1] < 0.1
    (red, _), (blue, _) = critic.values(joint_actions)
    assert red[0] > 0.5 > -0.5 > blue[0]
    again = Critic(spec)
    again.load(critic.saved())
    np.testing.assert_array_equal(again.values(joint_actions)[0][0], red)


def rewarded(renderer: VisionRenderer, image: Any, target: float) -> JointAction:
    request = asked(renderer, [user("Which cell?", image)])
    reply = renderer.encode("B2")
    nothing = np.zeros(len(reply), np.float32)
    targets = np.full(len(reply) + 1, target, np.float32)
    item = Item(
        request.prompt_ids, reply, nothing, 0.0, targets=targets, images=request.images,
        values=np.zeros(len(reply) + 1, np.float32),
    )  # fmt: skip
    return JointAction(("a",), (item,))


def test_a_tiled_image_enters_the_prompt_as_by_the_familys_own_processor(
    tmp_path: Path,
) -> None:
    from transformers import AutoImageProcessor, AutoTokenizer, Idefics3Processor

    folder = make_tiny_vision(tmp_path / "tiles", WORDS, hidden_size=64, family="idefics3")
    ours = VisionRenderer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    images: Any = AutoImageProcessor.from_pretrained(folder, backend="pil")
    theirs = Idefics3Processor(images, tokenizer, image_seq_len=4)
    for image in (RED, noise((168, 56), 1), noise((56, 56), 2), noise((30, 200), 3)):
        found = theirs(images=[open_image(image)], text="look <image> here")
        expected = found["input_ids"][0]
        assert ours.multimodal_ids("look <image> here", [image]).tolist() == expected


def test_the_table_has_every_family_and_no_other(tmp_path: Path) -> None:
    assert set(families._TABLE) == set(FAMILIES)
    for name in FAMILIES:
        assert family_of(name).arrays[0] == "pixel_values"
    with pytest.raises(ModelError, match="no VLM family is called 'qwen2_vl'"):
        make_tiny_vision(tmp_path / "x", WORDS, family="qwen2_vl")
