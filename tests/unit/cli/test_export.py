"""Exporting a policy of a run that also has critics."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from pettingllms.cli.train import export_policy
from pettingllms.config import parse_config, to_toml
from pettingllms.errors import ConfigError, ModelError
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, CRITIC_FILE, OPTIMIZER_FILE
from pettingllms.policies.tensor_shards import make_header
from pettingllms.runs.checkpoint import State, Writer
from pettingllms.runs.folder import CHECKPOINTS, CONFIG_FILE
from pettingllms.training import export as exporting


def saved_run(folder: Path, kind: str = "lora") -> Path:
    config = parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "ppo"},
            "critic": {"kind": "model"},
            "policies": {"p": {"kind": kind, "model": "m"}},
        }
    )
    folder.mkdir()
    (folder / CONFIG_FILE).write_text(to_toml(config))
    writer = Writer(folder / CHECKPOINTS, State(step=1))
    names = (ADAPTER_FILE, ADAPTER_CONFIG, OPTIMIZER_FILE, CRITIC_FILE)
    writer.add("p", {name: name.encode() for name in names})
    writer.add("critic:p", {CRITIC_FILE: b"c", OPTIMIZER_FILE: b"o"})
    writer.finish(keep=1)
    return folder


def test_critics_are_no_policies_to_choose_from_and_are_left_out(tmp_path: Path) -> None:
    run = saved_run(tmp_path / "run")
    export_policy(run, None, None, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {ADAPTER_FILE, ADAPTER_CONFIG}
    with pytest.raises(ConfigError, match="'critic:p' was not trained"):
        export_policy(run, "critic:p", None, tmp_path / "other")


def test_an_export_that_is_refused_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path / "models"))
    with pytest.raises(ModelError, match="not found"):
        export_policy(saved_run(tmp_path / "run", "full"), None, None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_of_several_ranks_are_exported_as_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, model = saved_run(tmp_path / "run", "full"), tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    monkeypatch.setattr(exporting, "find_model", lambda _: model)
    writer = Writer(run / CHECKPOINTS, State(step=2))
    for rank, content in enumerate((b"ab", b"cd")):
        shards = {"shards": json.dumps({"w": [2 * rank, [4]]})}
        part = make_header([("w", "U8", [2])], shards) + content
        writer.add("p", {f"model.rank-{rank}-of-2.safetensors": part})
    writer.finish(keep=1)
    export_policy(run, None, None, tmp_path / "out")
    whole = make_header([("w", "U8", [4])]) + b"abcd"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == whole
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
