"""What `check` finds before a run: each finding names its key, and sound things are left alone."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pettingllms.config import RunConfig, parse_config, to_toml
from pettingllms.policies import plan_models
from pettingllms.preflight import run as preflight
from pettingllms.runtime.resources import GIB

PARAMETERS = 1000 * 64


def write_model(folder: Path, template: bool = True, tokenizer: bool = True) -> Path:
    """A folder with everything but the numbers of a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    head = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "F32", "shape": [1000, 64], "data_offsets": [0, 0]},
        }
    ).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    text = {"chat_template": "{{ messages }}"} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(text))
    return folder


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(preflight, "find_spec", lambda _: True)
    monkeypatch.setattr(preflight, "find_gpus", list)
    return write_model(tmp_path / "model")


def config_of(model: Path, **sections: Any) -> RunConfig:
    plain = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "full", "model": str(model)}},
    }
    return parse_config({**plain, **sections})


def problems(config: RunConfig, level: str = "problem") -> list[str]:
    found = preflight.inspect(config, Path("runs"))
    return [f"{f.what} | {f.advice}" for f in found if f.level == level]


def test_a_schedule_by_steps_with_a_token_budget_is_noted(model: Path) -> None:
    budget = {"train": {"max_tokens": 9000}}
    (noted,) = problems(config_of(model, learner={"decay_steps": 5}, **budget), "note")
    assert noted.startswith("learner.decay_steps: is 5")
    assert noted.endswith("set learner.decay_tokens = 9000")
    assert problems(config_of(model, learner={"decay_tokens": 9000}, **budget), "note") == []
    assert problems(config_of(model, learner={"decay_steps": 5}), "note") == []


@pytest.mark.parametrize(
    ("gpus", "device", "shown"),
    [
        ([], "auto", "inference.dtype: float32; learner.dtype: float32 (on CPU); the run stops at"),
        (["H100"] * 2, "auto", "inference.dtype: bfloat16; learner.dtype: bfloat16 (on GPU)"),
        (["H100"] * 2, "cpu", "inference.dtype: float32; learner.dtype: float32 (on CPU)"),
    ],
)
def test_dtypes_in_use_are_shown(
    model: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str], device: str, shown: str
) -> None:
    monkeypatch.setattr(preflight, "find_gpus", lambda: gpus)
    config = config_of(model, cluster={"device": device})
    (found,) = (one for one in problems(config, "ok") if "learner.dtype" in one)
    assert found.startswith(shown)


@pytest.mark.parametrize("gpus", [[], ["H100"] * 2])
def test_adapters_in_float32_on_gpus_are_a_problem(
    model: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str]
) -> None:
    monkeypatch.setattr(preflight, "find_gpus", lambda: gpus)
    policies = {"p": {"kind": "lora", "model": str(model)}}
    config = config_of(
        model, policies=policies, inference={"dtype": "float32"}, cluster={"device": "gpu"}
    )
    (found,) = (one for one in problems(config) if "16-bit" in one)
    assert found.endswith('| set inference.dtype = "bfloat16", or leave it out')


def test_a_sound_run_has_no_problem(model: Path) -> None:
    assert problems(config_of(model)) == []


def test_layers_that_a_model_does_not_have_are_found(model: Path) -> None:
    def policies(*names: str) -> Any:
        policy = {"kind": "lora", "model": str(model), "target_modules": [*names]}
        return {"policies": {"p": policy}}

    (found,) = problems(config_of(model, **policies("w", "q_proj")))
    assert found == "policies.p.target_modules: the model has no layer 'q_proj' | choose from w"
    assert problems(config_of(model, **policies("w"))) == []


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (lambda at: write_model(at, template=False), "has no chat template"),
        (lambda at: write_model(at, tokenizer=False), "a tokenizer is missing"),
        (lambda at: at, "is not a model"),
        (lambda at: (write_model(at) / "model.safetensors").unlink(), "model.safetensors is miss"),
    ],
)
def test_a_model_that_cannot_be_used_is_named_with_its_key(
    model: Path, tmp_path: Path, broken: Callable[[Path], Any], expected: str
) -> None:
    broken(tmp_path / "other")
    (found,) = problems(config_of(tmp_path / "other"))
    assert found.startswith("policies.p.model: ")
    assert expected in found


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"a": 1', "\0"])
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "model.safetensors.index.json"]
)
def test_a_damaged_file_of_a_model_is_a_finding(model: Path, name: str, text: str) -> None:
    (model / name).write_text(text)
    (found,) = problems(config_of(model))
    assert found.startswith(f"policies.p.model: {model / name} ")
    assert found.endswith("| fetch the model again")


@pytest.mark.parametrize("content", [(10**9).to_bytes(8, "little"), b"", b"\1" + b"\0" * 7 + b"["])
def test_weights_that_broke_off_are_named(model: Path, content: bytes) -> None:
    (model / "model.safetensors").write_bytes(content)
    assert any("not a complete safetensors file" in found for found in problems(config_of(model)))


def test_everything_is_found_at_once(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    policies = {
        "p": {"kind": "full", "model": str(model)},
        "q": {"kind": "api", "url": f"http://127.0.0.1:{port}/v1", "model": "m",
              "key": "NO_SUCH_KEY"},
    }  # fmt: skip
    config = config_of(
        model,
        policies=policies,
        roles={"player_x": "p", "player_o": "q"},
        cluster={"device": "gpu"},
        inference={"max_model_len": 8192},
        eval={"first_task": 10**6},
        train={"init_from": str(tmp_path / "nowhere")},
    )
    keys = {found.split(":")[0] for found in problems(config)}
    assert keys == {
        "cluster.device",
        "eval.first_task",
        "inference.max_model_len",
        "policies.q.key",
        "policies.q.url",
        "train.init_from",
    }


def test_fewer_test_tasks_than_asked_for_are_told(model: Path) -> None:
    env = {"id": "tic_tac_toe-v1", "num_tasks": 30}
    notes = problems(config_of(model, env=env, eval={"num_tasks": 50}), "note")
    told = [found for found in notes if "eval.num_tasks" in found]
    assert len(told) == 1
    assert "fewer are evaluated" in told[0]


def test_a_server_that_listens_is_no_problem(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        policies = {"q": {"kind": "api", "url": url, "model": "m"}}
        assert problems(config_of(model, policies=policies)) == []


def test_engines_that_are_not_installed_are_a_problem(model: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    (found,) = problems(config_of(model))
    assert found.startswith("inference.engine: ")
    assert "pip install" in found


def test_memory_and_disk_that_do_not_suffice_are_problems(model: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(preflight, "memory", lambda: (GIB // 2, GIB))
    monkeypatch.setattr(preflight, "SAVED", 10**15)
    found = problems(config_of(model))
    assert [one.split(":")[0] for one in found] == ["disk", "memory"]
    monkeypatch.setattr(preflight, "memory", lambda: (GIB, 100 * GIB))
    assert [one.split(":")[0] for one in problems(config_of(model), "note")] == ["memory"]


def test_the_disk_is_that_of_the_folder_that_is_written_to(model: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from pettingllms.cli.main import app

    (tmp_path / "large").mkdir()
    path = tmp_path / "run.toml"
    path.write_text(to_toml(config_of(model)))
    out = tmp_path / "large" / "not" / "yet"
    said = CliRunner().invoke(app, ["check", str(path), "--json", "--out", str(out)])
    found = [finding["what"] for finding in json.loads(said.output)["findings"]]
    (disk,) = [what for what in found if what.startswith("disk: ")]
    assert disk.endswith(f"free in {tmp_path}/large")


def test_adapters_share_one_base_and_whole_models_do_not(model: Path) -> None:
    def needed(kind: str) -> float:
        policies = {name: {"kind": kind, "model": str(model)} for name in ("p", "q")}
        roles = {"player_x": "p", "player_o": "q"}
        config = config_of(model, policies=policies, roles=roles)
        return preflight.memory_needed(config, plan_models(config), {str(model): 10**9})

    assert needed("full") > 4 * 10**9 * 2 * 5
    assert needed("lora") == pytest.approx(4 * 10**9 * 2 + 3 * GIB)


def test_without_a_sandbox_an_environment_that_runs_programs_is_a_problem(
    model: Path, monkeypatch: Any
) -> None:
    env = {"id": "code-v1"}
    monkeypatch.setattr(preflight, "find_tier", lambda: ("bubblewrap", {}))
    assert problems(config_of(model, env=env)) == []
    monkeypatch.setattr(preflight, "find_tier", lambda: ("", {"bubblewrap": "bwrap is missing"}))
    (found,) = problems(config_of(model, env=env))
    assert found.startswith("env.id: 'code-v1' runs programs")


def test_a_model_known_by_its_name_is_checked_for_an_image_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setattr(preflight, "find_gpus", list)
    monkeypatch.setattr(
        preflight, "find_spec", lambda name: None if name == "torchvision" else True
    )
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path))
    image_processor = {"model_type": "qwen2_5_vl", "vision_config": {}}
    for name, config in {
        "tests/reads": {"model_type": "llama"},
        "tests/sees": image_processor,
    }.items():
        (write_model(tmp_path / name) / "config.json").write_text(json.dumps(config))

    def found(name: str, engine: str) -> list[str]:
        policies = {"p": {"kind": "full", "model": name}}
        inference = {"engine": engine}
        env = {"id": "visual_relay-v1"}
        return problems(config_of(tmp_path, policies=policies, inference=inference, env=env))

    (problem,) = found("tests/reads", "torch")
    assert "policies.p.model: 'visual_relay-v1' shows images to 'looker', and" in problem
    assert "is text-only | use a VLM" in problem
    assert found("tests/sees", "torch") == []
    (problem,) = found("tests/sees", "vllm")
    assert "policies.p.model: a VLM on vLLM needs torchvision" in problem


def test_gpus_are_counted(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_gpus", lambda: ["a GPU"])
    (problem,) = problems(config_of(model))
    assert problem.startswith("cluster: the run needs 2 GPUs (1 engine of 1 GPU, 1 learner rank)")
    assert problems(config_of(model, cluster={"placement": "colocated"})) == []
    assert problems(config_of(model, cluster={"device": "cpu"})) == []
    monkeypatch.setattr(preflight, "find_gpus", lambda: ["a GPU", "another"])
    assert problems(config_of(model)) == []


def test_a_tracker_that_is_not_there_is_a_problem(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == "wandb" else True)
    assert problems(config_of(model, log={"tensorboard": True})) == []
    (problem,) = problems(config_of(model, log={"wandb": "games"}))
    assert problem.startswith("log.wandb: is set, but wandb is not installed")


def judged_by(model: Path, **verifier: str) -> RunConfig:
    judges = {"v": {"kind": "verifier", **verifier}}
    return config_of(
        model, env={"id": "debate-v1", "judged": True}, judge={"by": "v", "judges": judges}
    )


def test_a_verifier_that_cannot_score_is_found_with_what_to_do(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead address, a missing key and a folder without a verifier: one problem each."""
    pytest.importorskip("math_verify", reason="debate-v1 needs the extra `math`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("VERIFIER_KEY", "secret-value")
    (found,) = problems(judged_by(model, url=dead))
    assert found.startswith(f"judge.judges.v.url: no verifier answers at {dead} (")
    assert found.endswith("| start it with `pettingllms verifier serve`, or correct the address")
    assert "secret-value" not in found
    (found,) = problems(judged_by(model, url=dead, key="NO_SUCH_KEY"))
    assert found.startswith("judge.judges.v.key: the environment variable NO_SUCH_KEY is not set")
    (found,) = problems(judged_by(model, folder=str(tmp_path)))
    assert found.startswith(f"judge.judges.v.folder: {tmp_path} has no verifier.json")
