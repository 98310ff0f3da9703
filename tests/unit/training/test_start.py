"""What policies begin with when the configuration names another run, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import in_memory, train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.config.engines import MISMATCH_BOUNDS
from pettingllms.errors import CheckpointError
from pettingllms.policies.files import (
    ADAPTER_CONFIG,
    ADAPTER_FILE,
    CRITIC_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
)
from pettingllms.runs.checkpoint import State, Writer
from pettingllms.runs.folder import CHECKPOINTS, RunFolder
from pettingllms.training.initial_weights import initial_weights

FULL = {"kind": "full", "model": "m"}
LORA = {"kind": "lora", "model": "m", "rank": 8, "alpha": 16}
ADAPTER = {
    ADAPTER_FILE: b"a",
    ADAPTER_CONFIG: json.dumps({"r": 8, "lora_alpha": 16}).encode(),
    OPTIMIZER_FILE: b"o",
}


def saved_run(folder: Path, policies: dict[str, dict[str, bytes]], *critics: str) -> Path:
    """A run with one checkpoint, and critics beside its policies."""
    writer = Writer(folder / CHECKPOINTS, State(step=3, versions=dict.fromkeys(policies, 3)))
    for name, files in policies.items():
        writer.add(name, files)
    for name in critics:
        writer.add(name, {CRITIC_FILE: b"c", OPTIMIZER_FILE: b"o"})
    writer.finish(keep=1)
    return folder


def model(content: bytes = b"w") -> dict[str, bytes]:
    return {MODEL_FILE: content, OPTIMIZER_FILE: b"o"}


def config(
    start: Path | str, first: dict[str, Any], second: dict[str, Any], **train: Any
) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "toys:Relay"},
            "algo": {"type": "grpo"},
            "policies": {"first": first, "second": second},
            "roles": {"a": "first", "b": "second"},
            "train": {"init_from": str(start), **train},
        }
    )


def test_the_only_policy_of_a_run_is_what_all_begin_with_and_moments_stay_behind(
    tmp_path: Path,
) -> None:
    start = saved_run(tmp_path / "sft", {"player": model()})
    found = initial_weights(config(start, FULL, FULL))
    assert {policy: in_memory(files) for policy, files in found.items()} == {
        "first": {MODEL_FILE: b"w"},
        "second": {MODEL_FILE: b"w"},
    }


def test_of_several_policies_each_takes_its_namesake(tmp_path: Path) -> None:
    start = saved_run(tmp_path / "sft", {"second": model(b"2"), "first": model(b"1")})
    found = initial_weights(config(start, FULL, FULL))
    assert in_memory(found["first"]) == {MODEL_FILE: b"1"}
    assert in_memory(found["second"]) == {MODEL_FILE: b"2"}


def test_a_critic_beside_the_only_policy_is_no_policy(tmp_path: Path) -> None:
    start = saved_run(tmp_path / "ppo", {"player": model()}, "critic:team")
    assert set(initial_weights(config(start, FULL, FULL))) == {"first", "second"}


def test_a_policy_that_is_not_there_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    start = saved_run(tmp_path / "sft", {"first": model(), "second_one": model()})
    with pytest.raises(CheckpointError, match=r"no policy 'second' to start from; .*second_one"):
        initial_weights(config(start, FULL, FULL))


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        initial_weights(config(tmp_path, FULL, FULL))


def test_nothing_is_read_where_no_run_is_named() -> None:
    assert initial_weights(config("", FULL, FULL)) == {}


@pytest.mark.parametrize(("kind", "files"), [(FULL, ADAPTER), (LORA, model())])
def test_weights_of_another_kind_are_refused(
    kind: dict[str, Any], files: dict[str, bytes], tmp_path: Path
) -> None:
    start = saved_run(tmp_path / "sft", {"player": files})
    with pytest.raises(CheckpointError, match=f"'first' is of kind {kind['kind']}"):
        initial_weights(config(start, kind, kind))


def test_an_adapter_means_what_it_meant(tmp_path: Path) -> None:
    start = saved_run(tmp_path / "sft", {"player": ADAPTER})
    assert initial_weights(config(start, LORA, LORA))["first"].keys() == {
        ADAPTER_FILE,
        ADAPTER_CONFIG,
    }
    for key, value in (("rank", 4), ("alpha", 32)):
        with pytest.raises(CheckpointError, match=rf"policies\.second\.{key} is {value}"):
            initial_weights(config(start, LORA, {**LORA, key: value}))


def test_a_run_that_has_a_checkpoint_goes_on_without_the_run_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the first checkpoint it begins again with the same weights; later it needs
    them no more."""
    from pettingllms.training import train as loop

    asked = []

    def weights(config: RunConfig) -> dict[str, dict[str, bytes]]:
        asked.append(config.train.init_from)
        return {"first": {"weights": b"40"}, "second": {"weights": b"50"}}

    monkeypatch.setattr(loop, "initial_weights", weights)
    run = config(tmp_path / "sft", LORA, LORA, num_steps=3, save_every=2)
    reply = lambda request, number, weights: str(number % 3)  # noqa: E731
    train_with_fakes(run, tmp_path / "run", reply, dies_after=1)
    killed = train_with_fakes(run, tmp_path / "run", reply, dies_after=3)
    assert killed.weights == {"first": 43, "second": 53}
    assert len(asked) == 2
    whole = train_with_fakes(run, tmp_path / "run", reply)
    assert len(asked) == 2
    assert whole.weights == {"first": 43, "second": 53}


def test_a_run_records_the_dtypes_of_its_device(tmp_path: Path) -> None:
    """So that `resume` on another machine keeps them, and the mismatch bound is known."""
    wanted = config("", FULL, FULL, num_steps=1)
    assert wanted.learner.dtype == "auto"
    train_with_fakes(wanted, tmp_path / "run", lambda *_: "1")
    recorded = RunFolder(tmp_path / "run").config()
    assert (recorded.inference.dtype, recorded.learner.dtype) == ("float32", "float32")
    assert recorded.mismatch_bound() == MISMATCH_BOUNDS["float32"]
