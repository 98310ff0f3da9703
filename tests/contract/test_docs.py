"""What the documents say is so: pages that are made are fresh, commands and files exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "src").rglob("README.md"),
]


def test_the_reference_is_fresh() -> None:
    code = "import make_reference as m; print(m.reference() == m.PAGE.read_text(encoding='utf-8'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True", "run: python docs/make_reference.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https:") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    import typer.main

    from pettingllms.cli.main import app

    known = set(typer.main.get_command(app).commands)
    named = set(re.findall(r"`?pettingllms ([a-z][a-z-]*)", page.read_text()))
    assert named - known <= {"as", "import"}


def test_the_configuration_in_the_readme_is_the_file_it_names() -> None:
    text = (ROOT / "README.md").read_text()
    shown = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    file = ROOT / "configs" / "plan_path_team.toml"
    assert tomllib.loads(shown.group(1)) == tomllib.loads(file.read_text())


def test_every_fault_is_explained() -> None:
    code = (ROOT / "src/pettingllms/envs/check.py").read_text()
    named = set(re.findall(r'(?:_Broken|Fault)\(\s*"([a-z-]+)"', code))
    _, page = (ROOT / "docs/environments.md").read_text().split("## The faults")
    explained = set(re.findall(r"^\| `([a-z-]+)`", page, re.MULTILINE))
    assert named == explained


def test_every_algorithm_is_in_the_table() -> None:
    from pettingllms.registry import ALGORITHMS

    page = (ROOT / "docs/algorithms.md").read_text()
    table = re.search(r"^\| `algo\.type` \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    assert table is not None
    head, _, *rows = [line.strip("| ").split(" | ") for line in table.group().splitlines() if line]
    names = [name.strip("`") for name, *_ in rows]
    assert set(ALGORITHMS.names()) <= set(names)
    assert len(names) == len(set(names))
    assert all(len(row) == len(head) and all(row) for row in rows)
    assert all(re.search(r"\b(19|20)\d\d\b", source) for *_, source in rows), "a source has a year"
