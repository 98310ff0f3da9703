"""The examples run as they stand, those that need an engine in tests/integration."""

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from pettingllms.config import OneJudgeConfig
from pettingllms.envs import check_env, make_env
from pettingllms.judges import JudgeContext, JudgeModel
from pettingllms.registry import ALGORITHMS, JUDGES
from pettingllms.types import Failed, Group, Member, Scored, Submission

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
WITH_ENGINES = ("pl.train(", "pl.make_tiny(")


def _imported(path: Path) -> list[str]:
    """Modules of ours that a file imports names from."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return [module for module in modules if module.startswith("pettingllms")]


LIGHT = [p for p in EXAMPLES if not any(call in p.read_text() for call in WITH_ENGINES)]


def test_there_are_six() -> None:
    assert [path.name[:2] for path in EXAMPLES] == ["01", "02", "03", "04", "05", "06"]
    assert len(LIGHT) == 3


def test_every_example_is_on_the_page() -> None:
    page = (FOLDER.parent / "docs/examples.md").read_text()
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*.ipynb")]
    assert [file.name for file in files if f"(../examples/{file.name})" not in page] == []


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    subprocess.run([sys.executable, path], check=True, timeout=120)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_uses_public_names_alone(path: Path) -> None:
    import pettingllms

    assert _imported(path) == [], "examples import pettingllms as pl, and nothing else of it"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.value.id != "pl" or node.attr in pettingllms.__all__, node.attr
            assert not node.attr.startswith("_"), node.attr


def test_the_first_example_is_a_sound_environment_of_about_sixty_lines() -> None:
    path = FOLDER / "01_write_an_environment.py"
    check_env(make_env(f"{path}:RockPaperScissors"), num_episodes=40)
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 70


def test_the_environment_of_the_second_is_sound() -> None:
    check_env(make_env(f"{FOLDER / '02_train_two_roles.py'}:Signals"), num_episodes=40)


@pytest.mark.parametrize(
    ("rewards", "advantages"),
    [
        ([0.0, 1.0, 100.0], [-1.0, 0.0, 1.0]),
        ([5.0, 5.0], [0.0, 0.0]),
        ([1.0, 1.0, 2.0, 0.0], [0.0, 0.0, 1.0, -1.0]),
    ],
)
def test_ranks_by_hand(rewards: list[float], advantages: list[float]) -> None:
    algorithm = ALGORITHMS.load(f"{FOLDER / '03_write_an_algorithm.py'}:RankGrpo")()
    group = Group(("task",), [Member([], reward) for reward in rewards])
    assert algorithm.advantages(group) == pytest.approx(advantages)


def test_the_judge_prefers_fresh_words_and_makes_up_no_number() -> None:
    def no_model(policy: str) -> JudgeModel:
        raise AssertionError(policy)

    cls = JUDGES.load(f"{FOLDER / '05_a_judge_that_compares.py'}:FreshWords")
    judge = cls("fresh", OneJudgeConfig(), JudgeContext(lambda *_: Scored(0.0), no_model))
    many, few = Submission("q", "a bear met a fox"), Submission("q", "a bear a bear a bear")
    assert asyncio.run(judge.compare(many, few)) == Scored(1.0)
    assert asyncio.run(judge.compare(few, many)) == Scored(0.0)
    assert isinstance(asyncio.run(judge.score(Submission("q", ""))), Failed)


def test_a_base_class_that_an_error_names_is_there() -> None:
    import pettingllms

    for registry in (ALGORITHMS, JUDGES):
        with pytest.raises(ValueError, match=r"write class \w+\(pettingllms\.\w+\)") as refused:
            registry.load("collections:OrderedDict")
        base = str(refused.value).rpartition("(pettingllms.")[2].rstrip(")")
        assert base in pettingllms.__all__
