"""Answers of the simulator, its search for splits, and its command."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from qwen3_configs import write_config
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.config import load_config, parse_config
from pettingllms.errors import ConfigError
from pettingllms.preflight.hardware import find_hardware
from pettingllms.preflight.sizing import find_layout, read_sizes
from pettingllms.simulation.assumptions import Assumptions, read_assumptions
from pettingllms.simulation.gpus import PEAKS
from pettingllms.simulation.placements import Placements, Tried
from pettingllms.simulation.simulate import Question, answer, best_at_scale, simulate

QUIET = Assumptions(slow_share=0.0, mtbf_hours=0.0)


def data_of(model: Path, kind: str = "lora", **rollout: Any) -> dict[str, Any]:
    policy = {"kind": kind, "model": str(model)}
    return {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": "grpo"},
        "policies": {"planner": policy, "checker": policy},
        "roles": {"planner": "planner", "checker": "checker"},
        "rollout": {
            "num_tasks": 16, "num_samples": 4, "max_reply_tokens": 2048, "max_staleness": 2,
            **rollout,
        },
        "inference": {"max_model_len": 4096, "num_replicas": 6},
        "learner": {"num_ranks": 2},
    }  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_config(tmp_path / "8B", "8B")


def ask(model: Path, assumed: Assumptions = QUIET, num_nodes: int = 1, **rollout: Any) -> Question:
    config = parse_config(data_of(model, **rollout))
    return Question(config, find_hardware("h100-80", num_nodes, 8), assumed, num_steps=4)


def run(question: Question) -> Any:
    return simulate(question, read_sizes(question.config))


def test_asynchronous_training_keeps_gpus_busier(model: Path) -> None:
    together, in_turn = run(ask(model)), run(ask(model, max_staleness=0))
    assert together.busy > 1.2 * in_turn.busy
    assert together.tokens_per_second > 1.2 * in_turn.tokens_per_second
    assert together.staleness_max <= 2
    assert in_turn.staleness_max == 0
    parts = in_turn.parts
    assert sum(parts.values()) == pytest.approx(in_turn.seconds_per_step, rel=1e-6)


def test_long_tails_stragglers_and_failures_cost_time(model: Path) -> None:
    base = run(ask(model, replace(QUIET, reply_sigma=0.0), max_staleness=0))
    mean = 256 * 2.718281828**0.5  # of the lognormal whose median is an eighth of 2,048
    for changed in (
        replace(QUIET, reply_sigma=1.0, reply_median=256 * 256 / mean),
        replace(QUIET, reply_sigma=0.0, slow_share=0.5, slow_factor=3.0),
        replace(QUIET, reply_sigma=0.0, mtbf_hours=0.02),
    ):
        found = run(ask(model, changed, max_staleness=0))
        assert found.seconds_per_step > 1.15 * base.seconds_per_step
    assert found.num_failures > 0


def test_gpu_hours_and_dollars(model: Path) -> None:
    found = run(replace(ask(model), price=2.0))
    hours = found.num_gpus / 3600 / (found.tokens_per_second / 1e6)
    assert found.gpu_hours_per_million == pytest.approx(hours)
    assert found.price == pytest.approx(2 * hours)
    assert run(ask(model)).price is None


def test_the_bottleneck_follows_the_split(model: Path) -> None:
    few = ask(model)
    engines = few.config.inference.model_copy(update={"num_replicas": 1})
    slow = run(replace(few, config=few.config.model_copy(update={"inference": engines})))
    assert "engines are the bottleneck" in slow.bottleneck
    assert slow.change == "move GPUs from learners to engines, or add engines"
    lazy = run(ask(model, replace(QUIET, learner_mfu=0.01)))
    assert "learners are the bottleneck" in lazy.bottleneck


def test_the_best_split_is_at_least_as_good_and_has_a_layout(model: Path) -> None:
    question = ask(model, num_nodes=2)
    found = answer(question)
    assert found.as_given is not None
    assert found.best is not None
    assert found.best.tokens_per_second > found.as_given.tokens_per_second
    assert found.best.num_gpus <= 16
    path = model.parent / "config.toml"
    path.write_text(tomli_w.dumps(data_of(model)))

    config = load_config(path, found.overrides)
    layout, _ = find_layout(config, 2, 8)
    assert layout is not None
    assert layout.num_gpus == found.best.num_gpus
    assert found.colocated is not None
    assert found.colocated.max_staleness == 0


def test_the_whole_cluster_decides_between_splits_that_are_nearly_equal_on_a_part_of_it(
    model: Path,
) -> None:
    question = ask(model, num_nodes=16, num_tasks=256)
    sizes = read_sizes(question.config)
    placements = Placements(question.config, question.hardware, sizes)
    few, many = (placements.separate(share) for share in (1 / 4, 7 / 8))
    assert few is not None
    assert many is not None
    tried = [Tried(many, 100.0, 1.0, 1.0), Tried(few, 96.0, 1.0, 1.0)]
    best, report = best_at_scale(question, sizes, tried)
    assert best.resources == few.resources
    assert report == simulate(replace(question, config=few.config), sizes)
    clear = [tried[0], replace(tried[1], tokens_per_second=94.0)]
    assert best_at_scale(question, sizes, clear)[0].resources == many.resources


def test_a_large_cluster_is_searched_on_a_part_of_it(model: Path) -> None:
    question = ask(model, num_nodes=16, num_tasks=64)
    found = answer(question)
    assert found.best is not None
    assert 120 < found.best.num_gpus <= 128


def test_engines_get_the_gpus_that_their_cache_needs(tmp_path: Path) -> None:
    config = parse_config(data_of(write_config(tmp_path / "32B", "32B")))
    placements = Placements(config, find_hardware("h100-80", 2, 8), read_sizes(config))
    found = placements.separate(0.5)
    assert found is not None
    (own,) = found.resources.values()
    assert own.tensor_parallel > 1
    assert (
        Placements(config, find_hardware("t4-16", 1, 1), read_sizes(config)).separate(0.5) is None
    )


def test_simulated_results_repeat(model: Path) -> None:
    assert run(ask(model, Assumptions())) == run(ask(model, Assumptions()))


def test_assumptions_are_read_and_checked() -> None:
    assert read_assumptions(["reply_sigma=0.5", "turns=3"]) == Assumptions(reply_sigma=0.5, turns=3)
    with pytest.raises(ConfigError, match=r"did you mean 'reply_sigma'(?s:.)*expected a number"):
        read_assumptions(["reply_sigm=1", "turns=x"])


def test_every_named_gpu_has_peak_figures() -> None:
    from pettingllms.preflight.hardware import GPUS

    assert set(PEAKS) == set(GPUS)


def test_command_prints_a_table_and_json(model: Path) -> None:
    path = model.parent / "run.toml"
    path.write_text(tomli_w.dumps(data_of(model)))
    options = ["simulate", str(path), "--nodes", "1", "--gpus", "8", "--steps", "2", "--price", "2"]
    result = CliRunner().invoke(app, [*options, "--no-search", "--assume", "reply_sigma=0.3"])
    assert result.exit_code == 0, result.output
    assert "no GPU was measured" in result.output
    assert "dollars per million tokens" in result.output
    found = json.loads(CliRunner().invoke(app, [*options, "--json"]).output)
    assert found["best"]["num_gpus"] <= 8
    assert found["overrides"]
    small = CliRunner().invoke(app, [*options, "--no-search", "rollout.max_staleness=0"])
    assert "0.00, 0" in small.output


def test_an_unknown_gpu_is_refused(model: Path) -> None:
    path = model.parent / "run.toml"
    path.write_text(tomli_w.dumps(data_of(model)))
    result = CliRunner().invoke(app, ["simulate", str(path), "--gpu", "80GiB"])
    assert "speed of '80GiB' is not known" in str(result.exception)
