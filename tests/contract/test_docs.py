"""What the documents say is so: pages that are made are fresh, commands and files exist."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

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


def _options() -> dict[str, set[str]]:
    """Options of every command, by its words."""
    import typer.main

    from pettingllms.cli.main import app

    found: dict[str, set[str]] = {}

    def walk(command: Any, words: str) -> None:
        names = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
        found[words] = {name for name in names if name.startswith("-")} | {"-h", "--help"}
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{words} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


def _unknown_options(text: str) -> list[str]:
    """Options that a text gives to a command that has none such."""
    known, wrong = _options(), []
    plain = text.replace("\\\n", " ")
    for line in re.findall(r"pettingllms ([a-z][^\n`|]*)", plain):
        words = line.partition(" #")[0].split()
        pair = " ".join(words[:2])
        command = pair if pair in known else words[0]
        given = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z-]+.*", word)]
        if command in known:
            named = [re.sub(r"[^a-z-]+$", "", option) for option in given]
            wrong += [f"{command} {option}" for option in named if option not in known[command]]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_exist(page: Path) -> None:
    assert _unknown_options(page.read_text()) == []


def test_an_option_that_does_not_exist_would_be_found() -> None:
    text = "`pettingllms view RUN --exprot x`\npettingllms models get NAME \\\n --sauce hub # --no"
    assert _unknown_options(text) == ["view --exprot", "models get --sauce"]
    assert _unknown_options("pettingllms view RUN --export FILE --no-browser") == []


@pytest.mark.parametrize("name", ["coming_from", "faq"])
def test_keys_that_stand_in_for_others_exist(name: str) -> None:
    from pettingllms.config import RunConfig

    text = (ROOT / f"docs/{name}.md").read_text()
    ours = re.sub(r"^\| .* \| (?=[^|]+ \|$)", "", text, flags=re.MULTILINE)
    sections = {key: field.annotation for key, field in RunConfig.model_fields.items()}
    keys = set(re.findall(r"`(\w+)\.(\w+)\b(?! \()", ours))
    checked = {(s, k) for s, k in keys if s in sections and s not in ("env", "algo", "critic")}
    assert checked or name != "coming_from"
    for section, key in checked:
        assert key in sections[section].model_fields, f"{section}.{key}"


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = set(re.findall(r": (\S+\.md)$", nav, re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("results/")} == listed


def _build(page: str, into: Path) -> subprocess.CompletedProcess[str]:
    """Build a site of docs/ with one page more. Not quietly: warnings are then not counted."""
    docs = shutil.copytree(ROOT / "docs", into / "docs")
    (docs / "more.md").write_text(page)
    shutil.copy(ROOT / "mkdocs.yml", into)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=into,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.mark.slow
def test_the_site_builds_and_a_broken_link_stops_it(tmp_path: Path) -> None:
    pytest.importorskip("material")
    sound = _build("[there](training.md#levels) [outside](../README.md)", tmp_path / "sound")
    assert sound.returncode == 0, sound.stderr
    assert "WARNING" not in sound.stderr
    for link in ("gone.md", "training.md#nowhere"):
        broken = _build(f"[broken]({link})", tmp_path / link.replace("#", "-"))
        assert broken.returncode != 0, link


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
