"""What balancing buys: the study that ships, small."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("ray")

SCRIPT = Path(__file__).parents[3] / "experiments" / "verifier" / "study.py"


def loaded() -> ModuleType:
    spec = spec_from_file_location("verifier_study", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["verifier_study"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_a_verifier_of_balanced_answers_is_right_more_often_where_length_says_nothing(
    tmp_path: Path,
) -> None:
    script = loaded()
    found = script.study(1, tmp_path, script.QUICK)
    balanced, raw = found["arms"]["balanced"], found["arms"]["raw"]
    assert abs(found["test_correlation"]) < 1e-9
    assert abs(balanced["train_correlation"]) < 1e-9
    assert raw["train_correlation"] < -0.2
    assert balanced["auc"] > 0.7, "it has learnt what makes an answer right"
    assert balanced["accuracy"] > raw["accuracy"] + 0.03
    assert balanced["ece"] < raw["ece"] - 0.05
