"""Teams with a VLM: supervised training and RL by the unchanged loop, in this process."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("PIL")

from fakes import Watched
from local import in_this_process

from pettingllms.cluster.team import Team
from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ModelError
from pettingllms.models import make_tiny, make_tiny_vision
from pettingllms.runs.folder import RunFolder
from pettingllms.training import train as loop
from pettingllms.training.sft import _sft, _supervised, items_by_policy, source_episodes
from pettingllms.types import Episode, episode_files, images_of, read_episodes
from pettingllms.vision.processor import load_image_processor

NUM_STEPS = 2
TEAMS = ("one policy", "an adapter a role", "one sees and one reads")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    texts = [f"mover {color}\n{cell}" for color in ("red", "blue") for cell in ("A1", "B2")] * 20
    return {
        "sees": make_tiny_vision(root / "sees", hidden_size=64),
        "reads": make_tiny(root / "reads", texts=texts, hidden_size=64, vocab_size=320),
    }


def config_of(models: dict[str, Path], team: str) -> RunConfig:
    supports_images, reads = (str(models[name]) for name in ("sees", "reads"))
    lora = {"kind": "lora", "model": supports_images, "rank": 4, "lr": 1e-2}
    policies: dict[str, dict[str, Any]] = {
        "one policy": {"p": {"kind": "full", "model": supports_images, "lr": 1e-3}},
        "an adapter a role": {
            "looker": {**lora, "parts": ["language", "projector", "vision"]},
            "mover": lora,
        },
        "one sees and one reads": {
            "looker": {"kind": "full", "model": supports_images, "lr": 1e-3},
            "mover": {"kind": "full", "model": reads, "lr": 1e-3},
        },
    }[team]
    names = list(policies)
    return parse_config(
        {
            "seed": 3,
            "env": {"id": "visual_relay-v1", "terse": True, "side": 2, "num_pieces": 2},
            "algo": {"type": "grpo"},
            "policies": policies,
            "roles": {"looker": names[0], "mover": names[-1]},
            "rollout": {"num_tasks": 3, "num_samples": 6, "max_reply_tokens": 6},
            "inference": {"engine": "torch", "max_model_len": 128},
            "log": {"episodes": True},
            "train": {"num_steps": NUM_STEPS, "save_every": 1, "keep_checkpoints": 9},
            "sft": {"player": "honest", "num_episodes": 32, "num_steps": 16, "num_turns": 16},
        }
    )


@pytest.fixture(scope="module", params=TEAMS)
def run(request: pytest.FixtureRequest, models: Any, tmp_path_factory: Any) -> tuple[Path, Watched]:
    """A run that began with what it was taught by an honest pair, and its numbers."""
    root = tmp_path_factory.mktemp("run")
    config, watched = config_of(models, request.param), Watched()
    taught, folder = RunFolder(root / "taught"), RunFolder(root / "run")
    with in_this_process():
        taught.create(config, supervised=True)
        items = items_by_policy(config, source_episodes(config))
        asyncio.run(_sft(_supervised(config), items, taught, Watched()))
        start = config.train.model_copy(update={"start": str(root / "taught")})
        folder.create(config.model_copy(update={"train": start}))
        asyncio.run(loop._train(folder.config(), folder, watched))
    return root, watched


def episodes_of(root: Path) -> list[Episode]:
    assert len(episode_files(root / "run")) == NUM_STEPS
    return list(read_episodes(root / "run"))


def metrics_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_every_policy_moves_and_sampler_and_learner_agree(run: Any) -> None:
    root, _ = run
    lines = metrics_of(root / "run")
    policies = [key.split("/")[1] for key in lines[0] if key.endswith("/grad_norm")]
    assert policies
    for line in lines:
        for policy in policies:
            assert line[f"policies/{policy}/grad_norm"] > 0, policy
            assert line[f"policies/{policy}/mismatch"] < 1e-5
            assert line[f"policies/{policy}/canary_difference"] < 1e-5
    for policy in policies:
        one, other = (
            (root / "run" / "checkpoints" / f"step-{step:06d}" / "policies" / policy)
            for step in (1, 2)
        )
        (name,) = (path.name for path in one.glob("*model.safetensors"))
        assert (one / name).read_bytes() != (other / name).read_bytes(), policy


def test_teaching_lowers_the_loss_of_replies_to_images(run: Any) -> None:
    root, _ = run
    lines = metrics_of(root / "taught")
    for key in (key for key in lines[0] if key.endswith("/loss")):
        assert lines[-1][key] < 0.7 * lines[0][key], key


def test_the_record_has_the_images_and_the_ids_that_were_seen(run: Any, models: Any) -> None:
    image_processor = load_image_processor(models["sees"])
    assert image_processor is not None
    seen = 0
    for episode in episodes_of(run[0]):
        for turn in episode.turns:
            assert turn.credit.failure is None, turn.credit.failure
            images = images_of(turn.messages)
            assert len(images) == (turn.role == "looker")
            if turn.role == "looker":
                assert (
                    image_processor.image_positions(turn.prompt_ids, images).sum() == 9
                )  # two cells and a margin, squared
                seen += 1
            assert turn.credit.learner_logprobs is not None
            np.testing.assert_allclose(turn.credit.learner_logprobs, turn.logprobs, atol=1e-4)
    assert seen


def test_a_model_that_only_reads_is_refused_when_it_is_found(models: Any) -> None:
    """Known by a name, it is looked at when the run starts."""
    config = config_of(models, "one sees and one reads")
    policies = {**config.policies, "looker": config.policies["mover"]}
    wrong = config.model_copy(update={"policies": policies})
    said = "policies.looker: .* shows images to 'looker', and '.*' is text-only; use a VLM"
    with in_this_process(), pytest.raises(ModelError, match=said):
        asyncio.run(Team.start(wrong, print))
