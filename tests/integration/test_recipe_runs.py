"""Every recipe makes two optimizer steps with a tiny random Qwen3 in place of its models.

Its roles, policies, algorithm, loss, prompts and template arguments are those of the recipe; the
loop, the engine and the learner are the real ones.
"""

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors.torch import load, load_file
from twins import NO_THOUGHT, make_qwen3, train_twin, twin_of, write_data

from pettingllms.config import RunConfig, read_config
from pettingllms.config.recipes import read_recipes
from pettingllms.policies.files import ADAPTER_FILE, MODEL_FILE, read_content
from pettingllms.runs.checkpoint import open_checkpoint
from pettingllms.runs.folder import RunFolder

FOLDER = Path(__file__).parents[2] / "configs" / "recipes"
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))
POLICIES = {"L0": (1, 1), "L1": (2, 1), "L2": (2, 2), "L3": (2, 2)}
"""Numbers of roles and of policies at each level."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, data: Any) -> Path:
    folder = tmp_path_factory.mktemp("models")
    configs = [twin_of(FOLDER / f"{name}.toml", folder, data) for name in NAMES]
    return make_qwen3(folder / "qwen3", configs)


def changed(config: RunConfig, model: Path, folder: Path, policy: str) -> bool:
    """Whether the saved weights of a policy differ from the initial ones."""
    _, files = open_checkpoint(folder / "checkpoints" / "step-000002")
    if config.policies[policy].kind == "lora":
        found = load(read_content(files[policy][ADAPTER_FILE]))
        return all(bool(w.any()) for name, w in found.items() if "lora_B" in name)
    found, before = load(read_content(files[policy][MODEL_FILE])), load_file(model / MODEL_FILE)
    return all(bool((found[name] != before[name]).any()) for name in before.keys() & found.keys())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_makes_two_optimizer_steps(
    name: str, model: Path, data: Any, tmp_path: Path
) -> None:
    path, recipe = FOLDER / f"{name}.toml", read_recipes(FOLDER)[name]
    config = twin_of(path, model, data)
    assert (len(config.roles), len(set(config.roles.values()))) == POLICIES[recipe.level]
    watched, prompts = train_twin(config, RunFolder(tmp_path / "run"))
    assert not [text for text in watched.said if "ALARM" in text]
    assert sorted(watched.metrics) == [1, 2]
    for step, metrics in watched.metrics.items():
        assert metrics["rollout"]["failed_episodes"] == 0
        assert set(metrics["roles"]) == set(config.roles)
        assert set(metrics["policies"]) == set(config.roles.values())
        for found in metrics["policies"].values():
            assert math.isfinite(found["loss"])
            assert math.isfinite(found["grad_norm"])
            assert found["grad_norm"] > 0
            assert found["mean_abs_advantage"] > 0, "half of the replies earn rewards"
            assert found["updates"] == step * config.learner.num_epochs
            assert found["skipped_updates"] == 0
            assert found["mismatch"] < 1e-4
            assert found["version"] == step
    assert all(changed(config, model, tmp_path / "run", one) for one in set(config.roles.values()))
    given = read_config(path)["policies"].values()
    without_thoughts = [
        policy.get("chat_template_kwargs") == {"enable_thinking": False} for policy in given
    ]
    assert {prompt.endswith(NO_THOUGHT) for prompt in prompts} == set(without_thoughts)


@pytest.mark.slow
def test_without_rewards_that_vary_a_run_reports_it(model: Path, data: Any, tmp_path: Path) -> None:
    """A random model alone: all its replies are invalid, and there is nothing to learn."""
    config = twin_of(FOLDER / "sudoku_l1_1.7b.toml", model, data)
    watched, _ = train_twin(config, RunFolder(tmp_path / "run"), strong=False)
    for metrics in watched.metrics.values():
        found = metrics["policies"]["shared"]
        assert (found["zero_share"], found["mean_abs_advantage"]) == (1.0, 0.0)
        assert (found["loss"], found["grad_norm"]) == (0.0, 0.0)
