"""Weights of another model are rejected before a learner or an engine loads them."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import save, save_file

from pettingllms.cluster.checks import check_weights_fit
from pettingllms.cluster.team import Team
from pettingllms.config import parse_config
from pettingllms.errors import CheckpointError, ModelError
from pettingllms.policies.files import ADAPTER_FILE, MODEL_FILE


def team_on(folder: Path, rows: int) -> Team:
    folder.mkdir()
    save_file({"embed": torch.zeros(rows, 4), "rest": torch.zeros(3)}, folder / "model.safetensors")
    data = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {"shared": {"kind": "full", "model": str(folder)}},
    }
    team = Team(parse_config(data), print)
    team._models = {group.name: folder for group in team._groups}
    return team


@pytest.mark.parametrize("how", ["load_engines", "load_learners"])
def test_weights_of_another_shape_are_named(how: str, tmp_path: Path) -> None:
    team = team_on(tmp_path / "model", rows=7)
    saved = {"shared": {MODEL_FILE: save({"embed": torch.zeros(9, 4), "rest": torch.zeros(3)})}}
    words = (
        r"do not fit .*model: 'embed' has shape \[9, 4\], but 'embed' of the model has "
        r"\[7, 4\]; set policies.shared.model"
    )
    with pytest.raises(CheckpointError, match=words):
        asyncio.run(getattr(team, how)(saved))
    with pytest.raises(CheckpointError, match=words):
        asyncio.run(team.load({}, saved))


@pytest.mark.parametrize("content", [b"", b"\x08", b"\xff" * 9, b"\x02" + b"\0" * 7 + b"[]"])
def test_weights_that_are_none_are_named_too(content: bytes, tmp_path: Path) -> None:
    team = team_on(tmp_path / "model", rows=7)
    with pytest.raises(ModelError, match=f"{MODEL_FILE} of 'shared' is not a complete"):
        asyncio.run(team.load_engines({"shared": {MODEL_FILE: content}}))


LAYER = "base_model.model.layers.0.q_proj"


def adapter_of(size: int, rank: int = 2) -> dict[str, bytes]:
    """An adapter over a layer of that many numbers in and out."""
    halves = {
        f"{LAYER}.lora_A.weight": torch.zeros(rank, size),
        f"{LAYER}.lora_B.weight": torch.zeros(size, rank),
    }
    return {ADAPTER_FILE: save(halves)}


def test_so_is_an_adapter_over_layers_of_another_size(tmp_path: Path) -> None:
    save_file({"layers.0.q_proj.weight": torch.zeros(8, 8)}, tmp_path / "model.safetensors")
    check_weights_fit("p", adapter_of(8), tmp_path)
    check_weights_fit("p", adapter_of(6), None)
    with pytest.raises(CheckpointError, match=r"lora_[AB].*has shape .*6.*q_proj.weight' of the"):
        check_weights_fit("p", adapter_of(6), tmp_path)


def test_an_adapter_over_layers_that_the_folder_calls_otherwise_is_left_to_the_learner(
    tmp_path: Path,
) -> None:
    save_file({"text.layers.0.q_proj.weight": torch.zeros(8, 8)}, tmp_path / "model.safetensors")
    check_weights_fit("p", adapter_of(6), tmp_path)
