"""Whole weights of another model are refused before a learner or an engine is given them."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import save, save_file

from pettingllms.cluster.team import Team
from pettingllms.config import parse_config
from pettingllms.errors import CheckpointError, ModelError
from pettingllms.learners.files import MODEL_FILE


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
        r"of another model than .*model: 'embed' has the shape \[9, 4\], and there \[7, 4\]; set"
    )
    with pytest.raises(CheckpointError, match=words):
        asyncio.run(getattr(team, how)(saved))
    with pytest.raises(CheckpointError, match=words):
        asyncio.run(team.load({}, saved))


@pytest.mark.parametrize("content", [b"", b"\x08", b"\xff" * 9, b"\x02" + b"\0" * 7 + b"[]"])
def test_weights_that_are_none_are_named_too(content: bytes, tmp_path: Path) -> None:
    team = team_on(tmp_path / "model", rows=7)
    with pytest.raises(ModelError, match=f"{MODEL_FILE} of 'shared' is not a whole"):
        asyncio.run(team.load_engines({"shared": {MODEL_FILE: content}}))
