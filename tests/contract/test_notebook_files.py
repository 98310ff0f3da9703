"""The notebooks are stripped, name their own address on Colab, and those without engines run."""

import json
from pathlib import Path

import pytest

from helpers.notebooks import execute

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LIGHT = [path for path in NOTEBOOKS if path.stem in ("look_at_a_run", "write_an_environment")]
COLAB = "https://colab.research.google.com/github/pettingllms/pettingllms/blob/main/examples"


def test_there_are_four() -> None:
    names = ["look_at_a_run", "quickstart", "train_your_agents", "write_an_environment"]
    assert [path.stem for path in NOTEBOOKS] == names
    assert len(LIGHT) == 2


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    assert execute(path, FOLDER)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stripped(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem != "look_at_a_run"])
def test_it_installs_what_is_missing_and_has_a_badge(path: Path) -> None:
    first, install, *_ = json.loads(path.read_text())["cells"]
    assert f"{COLAB}/{path.name})" in "".join(first["source"])
    assert 'if find_spec("pettingllms") is None:' in "".join(install["source"])
    assert "%pip install" in "".join(install["source"])
