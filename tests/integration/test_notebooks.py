"""The notebooks that train run from top to bottom in a Jupyter kernel."""

import re
from pathlib import Path

import pytest

from helpers.notebooks import execute

FOLDER = Path(__file__).parents[2] / "examples"
SHORT = (
    "--no-open sft.num_steps=20 sft.num_episodes=400 rollout.num_tasks=16 train.num_steps=2 "
    "train.eval_every=1 eval.num_tasks=60"
)


@pytest.mark.engine
def test_the_quickstart_notebook_runs(tmp_path: Path) -> None:
    printed = "".join(execute(FOLDER / "quickstart.ipynb", tmp_path, {"--no-open": SHORT}))
    assert re.search(r"step 2: \d+% of the test mazes solved", printed)
    assert re.search(r"\d+ of 60 test mazes are solved only after training", printed)
    assert re.search(r"planner +'.*' +advantage [+-]\d\.\d\d", printed)


@pytest.mark.engine
def test_the_notebook_with_an_agent_program_learns(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    printed = "".join(execute(FOLDER / "train_your_agents.ipynb", tmp_path))
    shares = re.findall(r"success (\d+)% in the first three steps, (\d+)% in the last", printed)
    assert len(shares) == 2
    for first, last in shares:
        assert int(last) > int(first) + 10
