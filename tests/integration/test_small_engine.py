"""The engine in plain PyTorch under the whole program: taught, trained from that, with critics."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import HERE, config_of, metrics_of, run, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.algos.credit import role_reward
from pettingllms.config import load_config
from pettingllms.types import Scored, read_episodes

SMALL = {"inference": {"engine": "torch"}, "cluster": {"device": "cpu"}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all runs left behind."""
    from pettingllms.models import make_tiny

    root = tmp_path_factory.mktemp("small")
    texts = [f"You are role{n % 2}. Count on from {n}: role0 says {n}" for n in range(200)]
    model = str(make_tiny(root / "tiny", texts=texts, hidden_size=64, vocab_size=320))
    mixed = {
        "adapted": {"kind": "lora", "model": model, "rank": 4, "lr": 1e-3},
        "whole": {"kind": "full", "model": model, "lr": 1e-3},
    }
    configs = {
        "train": config_of(
            mixed,
            {"role0": "adapted", "role1": "whole"},
            sft={"player": "random", "num_episodes": 20, "num_steps": 4, "num_turns": 8},
            **SMALL,
        )
    }
    shared = {"p": {"kind": "full", "model": model, "lr": 1e-3}}
    for algo in ("ppo", "mappo"):
        configs[algo] = config_of(
            shared,
            {"role0": "p", "role1": "p"},
            algo={"type": algo},
            critic={"kind": "head" if algo == "ppo" else "model"},
            train={"save_every": 100},
            **SMALL,
        )
    configs["judged"] = config_of(
        shared,
        {"role0": "p", "role1": "p"},
        env={"id": f"{HERE / 'digits.py'}:JudgedDigits"},
        algo={"type": "ppo", "gae_lambda": 1.0},
        judge={"by": "rule", "against": "score"},
        train={"num_steps": 2},
        **SMALL,
    )
    for name, config in configs.items():
        write_config(root / f"{name}.toml", config)
    run(root / "log.txt", str(HERE / "drive_small.py"), str(root), seconds=900)
    return root


@pytest.fixture(scope="module")
def found(root: Path) -> Any:
    return json.loads((root / "result.json").read_text())


def numbers(folder: Path) -> list[dict[str, float]]:
    """Metrics without what the clock decides."""
    return [
        {key: value for key, value in line.items() if not key.endswith("seconds")}
        for line in metrics_of(folder)
    ]


def test_training_begins_with_what_was_taught(found: Any) -> None:
    assert found["began_as_taught"] == {"adapted": True, "whole": True}


def test_every_policy_moves_with_every_step_in_learner_and_sampler(found: Any, root: Path) -> None:
    assert len(found["history"]) == 4
    for before, after in pairwise(found["history"]):
        for policy in ("adapted", "whole"):
            assert before[policy]["learner"] != after[policy]["learner"]
            assert before[policy]["sampler"] != after[policy]["sampler"]
    for policy in ("adapted", "whole"):
        lines = metrics_of(root / "run")
        assert [line[f"policies/{policy}/version"] for line in lines] == [1, 2, 3]
        assert all(line[f"policies/{policy}/canary_difference"] < 1e-4 for line in lines)
        assert all(line[f"policies/{policy}/mismatch"] < 1e-4 for line in lines)


def test_models_that_learn_at_once_learn_the_same(root: Path) -> None:
    for one, other in zip(numbers(root / "run"), numbers(root / "at_once"), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)


def test_old_weights_under_a_new_version_are_noticed(found: Any) -> None:
    assert set(found["forged"]) == {"adapted", "whole"}
    for said in found["forged"].values():
        assert "sampler and learner differ" in said or "was not published" in said


def test_teaching_left_its_losses_and_one_checkpoint(root: Path) -> None:
    lines = metrics_of(root / "sft")
    for policy in ("adapted", "whole"):
        losses = [line[f"policies/{policy}/loss"] for line in lines]
        assert len(losses) == 4
        assert losses[-1] < losses[0]
    assert [path.name for path in (root / "sft" / "checkpoints").iterdir()] == ["step-000004"]


@pytest.mark.parametrize("algo", ["ppo", "mappo"])
def test_a_run_with_a_critic_that_was_stopped_goes_on_as_if_it_had_not_been(
    algo: str, root: Path
) -> None:
    whole, cut = (numbers(root / algo / name) for name in ("whole", "cut"))
    assert [line["step"] for line in whole] == [1, 2, 3]
    for one, other in zip(whole, cut, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
    assert len({line["policies/p/grad_norm"] for line in whole}) == 3


def test_critics_learn_beside_their_policies(root: Path) -> None:
    head, model = numbers(root / "ppo" / "cut"), numbers(root / "mappo" / "cut")
    assert all(line["policies/p/value_loss"] > 0 for line in head)
    assert [line["critics/critic:team/updates"] for line in model] == [1, 2, 3]
    assert "policies/p/value_loss" not in model[0]
    saved = root / "mappo" / "cut" / "checkpoints" / "step-000003" / "policies"
    assert {path.name for path in saved.iterdir()} == {"p", "critic:team"}


def test_a_value_head_learns_what_a_judge_gives(root: Path) -> None:
    """With lambda 1 it should expect the verdict, which comes after the play, at every reply."""
    lines = metrics_of(root / "judged")
    assert [line["judge/failed_share"] for line in lines] == [0, 0]
    assert all(line["policies/p/value_loss"] > 0 for line in lines)
    config = load_config(root / "judged.toml")
    targets = []
    for episode in read_episodes(root / "judged"):
        for turn in episode.turns:
            verdict = role_reward(episode, turn.role, config.reward)
            assert isinstance(verdict, Scored)
            assert turn.credit.returns is not None
            assert turn.credit.returns[0] == pytest.approx(verdict.value, abs=1e-5)
            targets.append(verdict.value)
    assert len(set(targets)) > 1, "a judge that says the same of all is no test"
