"""One message names what differs on which node."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from pettingllms.cluster import node_check
from pettingllms.cluster.node_check import Facts, check_nodes, facts, remote_code
from pettingllms.cluster.nodes import Node
from pettingllms.config import RunConfig, parse_config
from pettingllms.config.section import EnvConfig
from pettingllms.errors import ClusterError

GOOD, BAD = Node("n1", "10.0.0.1"), Node("n2", "10.0.0.2")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with what a model has, in small."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    header = b'{"w": {}}'
    content = len(header).to_bytes(8, "little") + header + bytes(64)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def config_of(address: str = "10.0.0.1:6379") -> RunConfig:
    data = {"policies": {"p": {"kind": "full", "model": "m"}}, "cluster": {"address": address}}
    return parse_config({"env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"}, **data})


def checked(monkeypatch: pytest.MonkeyPatch, model: Path, there: Any) -> str:
    """The message of a check in which one node has these facts."""

    async def on_node(node: Node, function: Any, *args: Any) -> Facts:
        found: Facts = function(*args)
        return found if node is GOOD else there(found)

    monkeypatch.setattr(node_check, "alive_nodes", lambda: [GOOD, BAD])
    monkeypatch.setattr(node_check, "on_node", on_node)
    try:
        asyncio.run(check_nodes(config_of(), {"m": model}))
    except ClusterError as error:
        return str(error)
    return ""


def test_equal_nodes_pass(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    assert checked(monkeypatch, model, lambda found: found) == ""


def test_all_that_differs_is_in_one_message(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def there(found: Facts) -> Facts:
        return replace(
            found, packages=found.packages | {"numpy": "0.1"}, source="other", models={"m": {}}
        )

    text = checked(monkeypatch, model, there)
    assert "10.0.0.2: has numpy 0.1, this machine" in text
    assert "10.0.0.2: its source of pettingllms differs" in text
    assert f"10.0.0.2: model {model} is missing" in text
    assert "10.0.0.1" not in text


def test_a_changed_model_is_named_by_its_file(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    (copy / "config.json").write_text('{"a": 1}')
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")  # neither size nor header differ

    def there(found: Facts) -> Facts:
        return replace(found, models=facts({"m": str(copy)}, ()).models)

    text = checked(monkeypatch, model, there)
    assert f"model {model} differs in config.json; copy" in text
    weights.write_bytes(weights.read_bytes() + b"x")
    assert "differs in config.json, model.safetensors" in checked(monkeypatch, model, there)


def test_a_node_that_cannot_answer_is_named(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def there(_: Facts) -> Facts:
        raise ClusterError("no module named pettingllms")

    text = checked(monkeypatch, model, there)
    assert "10.0.0.2: no module named pettingllms; is pettingllms installed" in text


def test_one_machine_is_not_checked(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(node_check, "alive_nodes", lambda: pytest.fail("asked Ray"))
    asyncio.run(check_nodes(config_of(""), {"m": model}))


def test_a_loss_in_a_file_is_code_of_all_nodes(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    config = config_of()
    loss = config.loss.model_copy(update={"type": f"{file}:Own"})
    assert remote_code(config.model_copy(update={"loss": loss})) == (str(file),)
    assert remote_code(config) == ()
    assert facts({}, (str(file),)).files == {str(file): ""}


def test_an_environment_in_a_file_is_code_of_nodes_with_rollout_workers(tmp_path: Path) -> None:
    file = tmp_path / "maze.py"
    config = config_of()
    own = config.model_copy(update={"env": EnvConfig(id=f"{file}:Maze")})
    assert remote_code(own) == (str(file),)
    in_driver = config.rollout.model_copy(update={"num_workers": 0})
    assert remote_code(own.model_copy(update={"rollout": in_driver})) == ()
