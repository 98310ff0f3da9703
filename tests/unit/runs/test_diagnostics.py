"""What a run is accused of, and what it is not."""

import random
from typing import Any

import pytest
from viewed import config_of

from pettingllms.runs.diagnostics import diagnose, progress


def rows(count: int = 20, **metrics: Any) -> list[dict[str, Any]]:
    """A sound run, in which each role gets better; with some metrics set otherwise."""
    found = []
    for step in range(1, count + 1):
        row: dict[str, Any] = {"step": step}
        for name in ("planner", "checker"):
            row |= {
                f"roles/{name}/reward": step / 10,
                f"roles/{name}/failed_share": 0.0,
                f"roles/{name}/cut_share": 0.0,
                f"policies/{name}/zero_share": 0.3,
                f"policies/{name}/mismatch": 1e-5,
                f"policies/{name}/sampler_entropy": 1.0,
                f"policies/{name}/skipped_updates": 0,
                f"policies/{name}/distinct_replies": 5.0,
                f"policies/{name}/clip_share": 0.01,
                f"policies/{name}/capped_share": 0.0,
            }
        row |= {
            name.replace("__", "/"): value(step) if callable(value) else value
            for name, value in metrics.items()
        }
        found.append(row)
    return found


def test_a_sound_run_is_not_accused() -> None:
    assert diagnose(rows(), config_of()) == []
    assert diagnose([], config_of()) == []
    assert diagnose(rows(2, roles__planner__reward=1.0), config_of()) == [], "too young to judge"


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("roles__planner__failed_share", 0.5, "50% of the replies of 'planner' failed"),
        ("roles__planner__probing_calls", 2, "'planner' made 40 suspicious system calls"),
        ("roles__planner__cut_share", 0.4, "cut at rollout.max_reply_tokens"),
        ("policies__planner__zero_share", 0.95, "95% of the advantages of 'planner' are 0"),
        ("policies__planner__mismatch", 0.9, "differ by 0.9 per token"),
        ("policies__planner__skipped_updates", 1, "skipped 20 non-finite"),
        ("policies__planner__distinct_replies", 1.0, "1.00 different replies"),
        ("policies__planner__clip_share", 0.6, "60% of the tokens of 'planner' were clipped"),
        ("policies__planner__capped_share", 0.2, "20% of the importance weights"),
        (
            "policies__planner__sampler_entropy",
            lambda step: 1 / step**2,
            "entropy of 'planner' fell",
        ),
        (
            "roles__planner__reward",
            lambda step: float(step % 2),
            "within noise",
        ),
        ("roles__planner__eval_success", lambda step: 0.9 if step == 5 else 0.4, "90% in the best"),
    ],
)
def test_each_fault_is_said_once_and_alone(metric: str, value: Any, said: str) -> None:
    (diagnosis,) = diagnose(rows(**{metric: value}), config_of())
    assert said in diagnosis.what
    assert diagnosis.help


def test_a_run_that_learns_in_its_first_steps_is_not_called_noise() -> None:
    """The rewards of `pettingllms quickstart seed=2`, whose success went from 12% to over 80%."""
    curve = "0.83 0.92 0.86 0.91 0.86 0.91 0.91 0.90 0.90 0.90 0.95 0.90 0.91 0.95 0.93 0.93"
    rewards = [float(reward) for reward in curve.split()]
    run = rows(len(rewards), roles__planner__reward=lambda step: rewards[step - 1])
    assert diagnose(run, config_of()) == []


@pytest.mark.parametrize("gain", [0.0, 1.0])
def test_noise_of_normal_rewards_is_told_from_progress(gain: float) -> None:
    draw = random.Random(5)
    called = 0
    for _ in range(200):
        values = [draw.gauss(gain * step / 40, 0.2) for step in range(40)]
        found = progress([{"reward": value} for value in values], "reward")
        assert found is not None
        called += found[0] <= found[1]
    assert called > 180 if gain == 0 else called == 0


def test_asynchronous_runs_have_diagnoses_of_staleness() -> None:
    config = config_of()
    rollout = config.rollout.model_copy(update={"max_staleness": 2})
    config = config.model_copy(update={"rollout": rollout})
    fine = {"staleness__dropped_share": 0.01, "staleness__mean": 1.9, "idle__engines": 0.1}
    assert diagnose(rows(**fine), config) == []
    assert diagnose(rows(**fine | {"idle__engines": 0.9, "staleness__mean": 0.5}), config) == []
    (dropped,) = diagnose(rows(**fine | {"staleness__dropped_share": 0.2}), config)
    assert "20% of the groups were too old" in dropped.what
    (waiting,) = diagnose(rows(**fine | {"idle__engines": 0.5}), config)
    assert "1.9 versions old on average, of at most 2" in waiting.what
    assert "engines idle 50%" in waiting.what


def test_many_cut_episodes_are_diagnosed() -> None:
    few = {"rollout__num_episodes": 8.0, "rollout__cut_episodes": 1.0}
    assert diagnose(rows(**few), config_of()) == []
    (diagnosis,) = diagnose(rows(**few | {"rollout__cut_episodes": 4.0}), config_of())
    assert "50% of the episodes were cut at a limit" in diagnosis.what
