"""The PyTorch engine on images: its log-probs are those that the learner computes."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from image_prompts import BLUE, IMAGE_PROMPTS, RED, asked, gaps, items_of, learner_of

from pettingllms.config import InferenceConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.inference.recording import RecordedSampler, Recording
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.models import make_tiny, make_tiny_vision
from pettingllms.types import Failed, Sample, ScoreRequest, user

ResultT = TypeVar("ResultT")


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    return asyncio.run(work)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vision(tmp_path_factory.mktemp("models") / "eyes", hidden_size=64)


@pytest.fixture(scope="module")
def renderer(folder: Path) -> VisionRenderer:
    return VisionRenderer(folder)


@pytest.fixture(scope="module")
def learner(folder: Path) -> Learner:
    return learner_of(folder, FullPolicy(model=str(folder)))


@pytest.fixture(scope="module")
def engine(folder: Path) -> TorchEngine:
    return started(folder)


def started(folder: Path) -> TorchEngine:
    config = InferenceConfig(engine="torch", max_model_len=512)
    made = TorchEngine(EngineSpec(folder, config, ("p",)))
    run(made.start())
    return made


def test_sampler_and_learner_agree_whatever_is_seen_in_one_batch(engine, learner, renderer) -> None:
    requests = [
        asked(renderer, messages, seed=at) for at, messages in enumerate(IMAGE_PROMPTS.values())
    ]
    together = run(engine.sample_many(requests))
    items = [i for pair in zip(requests, together, strict=True) for i in items_of(*pair)]
    assert max(gaps(learner, items)) < 1e-5
    for request, samples in zip(requests, together, strict=True):
        alone = run(engine.sample(request))
        assert [s.ids.tolist() for s in samples] == [s.ids.tolist() for s in alone]


def test_fixed_replies_are_scored_as_the_learner_does(engine, learner, renderer) -> None:
    odd = np.array(
        [renderer.image_processor.image_id], np.int32
    )  # in a reply it is no place for an image
    given = []
    for at, messages in enumerate(IMAGE_PROMPTS.values()):
        request = asked(renderer, messages)
        reply = renderer.encode("B2")[: 1 + at % 3]
        given.append(ScoreRequest(request.prompt_ids, reply, request.images))
        given.append(ScoreRequest(request.prompt_ids, np.concatenate([odd, reply]), request.images))
    found = run(engine.score_many("p", given))
    items = [
        Item(one.prompt_ids, one.response_ids, logp, 0.0, images=one.images)
        for one, logp in zip(given, found, strict=True)
    ]
    assert max(gaps(learner, items)) < 1e-5


def test_another_picture_gives_other_log_probs_of_the_same_reply(engine, renderer) -> None:
    one, other = (asked(renderer, [user("Which cell?", image)]) for image in (RED, BLUE))
    assert (one.prompt_ids == other.prompt_ids).all()
    reply = renderer.encode("B2")
    said = [
        run(engine.score("p", ScoreRequest(request.prompt_ids, reply, request.images)))
        for request in (one, other)
    ]
    assert np.abs(said[0] - said[1]).mean() > 1e-3
    (first,), (second,) = run(
        engine.sample_many([replace(r, num_samples=1, max_tokens=1) for r in (one, other)])
    )
    assert abs(first.logprobs[0] - second.logprobs[0]) > 1e-4


def test_images_that_are_not_those_of_the_prompt_are_refused(engine, renderer) -> None:
    request = asked(renderer, IMAGE_PROMPTS["one"], num_samples=1)
    wrong = [replace(request, images=images) for images in ((), (RED, RED))]
    (none,), (two,), (right,) = run(engine.sample_many([*wrong, request]))
    assert isinstance(right, Sample)
    for failed, count in ((none, "0 images"), (two, "2 images")):
        assert isinstance(failed, Failed)
        assert f"9 image tokens for {count}" in failed.reason


def test_a_model_that_only_reads_is_shown_nothing(tmp_path: Path, renderer) -> None:
    reader = started(make_tiny(tmp_path / "reader", texts=["one two three"]))
    (failed, _) = run(reader.sample(asked(renderer, IMAGE_PROMPTS["one"])))
    assert "is text-only" in failed.reason


def test_a_recording_tells_pictures_apart(engine, renderer, tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    sampler = RecordedSampler(engine, recording, {}, "m")
    for image, misses in ((RED, 1), (BLUE, 2), (RED, 2)):
        run(sampler.sample(asked(renderer, [user("Which cell?", image)])))
        assert len(recording._replies) == misses
    recording.close()


def test_a_picture_in_its_size_has_the_same_pixels(renderer) -> None:
    for messages in IMAGE_PROMPTS.values():
        for message in messages:
            for image in message.images:
                sized = renderer.image_processor.resized(image)
                found = renderer.image_processor._processor(images=[sized], return_tensors="np")
                np.testing.assert_array_equal(
                    found["pixel_values"],
                    renderer.image_processor.pixels([image]).inputs["pixel_values"],
                )
