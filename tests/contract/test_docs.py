"""What the documents say is so: pages that are made are fresh, commands and files exist."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

import pettingllms

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "src").rglob("README.md"),
]


def _in_docs(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_reference_is_fresh() -> None:
    code = (
        "import make_reference as m; "
        "print([p.name for p, text in m.pages().items() if text != p.read_text(encoding='utf-8')])"
    )
    assert _in_docs(code) == "[]", "run: python docs/make_reference.py"


def test_every_configuration_that_ships_is_on_a_page_with_what_it_is_for() -> None:
    page = (ROOT / "docs/reference/configs.md").read_text()
    row = re.compile(r"^\| \[([\w.]+)\]\(../../configs/\1\) .* \| (.+) \|$", re.MULTILINE)
    rows = dict(row.findall(page))
    assert sorted(rows) == sorted(file.name for file in (ROOT / "configs").glob("*.toml"))
    assert min(map(len, rows.values())) > 30
    assert "reference/configs.md" in (ROOT / "README.md").read_text()


def test_the_reference_has_every_public_name_and_says_what_it_is() -> None:
    names = json.loads(
        _in_docs(
            "import json, make_names as m; "
            "print(json.dumps({o.__name__: list(o.__all__) for o in m.public_modules()}))"
        )
    )
    page = (ROOT / "docs/reference/names.md").read_text()
    assert sum(map(len, names.values())) > 150
    for module, known in names.items():
        section = re.search(rf"(?ms)^## {re.escape(module)}\n(.*?)(?=^## |\Z)", page)
        assert section is not None, module
        listed = re.split(r"^### ", section.group(1), flags=re.MULTILINE)[1:]
        short = module.removeprefix("pettingllms.")
        assert [part.split()[0] for part in listed] == [f"{short}.{name}" for name in known]
        told = {part.split()[0]: re.sub(r"(?s)```.*?```", "", part).split()[1:] for part in listed}
        assert [name for name, words in told.items() if not words] == [], "say what it is"
    assert set(re.findall(r"^\| \[?`(\w+)`", page, re.MULTILINE)) == set(pettingllms.__all__)


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


def _ours(text: str) -> list[str]:
    """What a page that maps words says in its right column, code by code."""
    rows = [
        row for row in re.findall(r"^\| .* \| ([^|]+) \|$", text, re.MULTILINE) if row != "here"
    ]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row)]


def _is_known(code: str) -> bool:
    """Whether a command, file, key, name of a table, role or method is really there."""
    from pettingllms.config import CriticConfig, PolicyConfig, RunConfig
    from pettingllms.envs import Environment, make_env
    from pettingllms.registry import ALGORITHMS, ENVIRONMENTS

    fields = RunConfig.model_fields
    options = {name: ENVIRONMENTS.load(name).Config.model_fields for name in ENVIRONMENTS.names()}
    kinds = get_args(get_args(PolicyConfig)[0])
    roles = {role for name in options for role in make_env(name).roles}
    names = {"role", *roles, *ALGORITHMS.names(), *options, *vars(Environment)}
    names |= {field for kind in kinds for field in kind.model_fields}
    names |= {kind.model_fields["kind"].default for kind in kinds}
    names |= {field for found in options.values() for field in found}
    key = code.partition(" = ")[0]
    section, _, inner = key.partition(".")
    if code.startswith("pettingllms "):
        return " ".join(code.split()[1:3]) in _options() or code.split()[1] in _options()
    if code.startswith('"') or code == 'role = "policy"':
        return True  # a value
    if "/" in code or code.endswith(".toml"):
        return bool([*ROOT.glob(code), *(ROOT / "configs").glob(code)])
    if code.startswith("["):
        return code.strip("[]") in fields
    if section in fields and inner:
        known: Any = {"env": {f for o in options.values() for f in o}, "algo": {"type"}}
        known["critic"] = CriticConfig.model_fields
        annotation: Any = fields[section].annotation
        return inner in (known.get(section) or annotation.model_fields)
    return code in names


def test_all_that_stands_in_for_others_exists() -> None:
    found = _ours((ROOT / "docs/coming_from.md").read_text())
    assert len(found) > 50
    assert [code for code in found if not _is_known(code)] == []


@pytest.mark.parametrize(
    "wrong",
    ["rollout.num_sample", "configs/maths_team.toml", "pettingllms trian", "debate-v9", "[role]",
     "env.dta", "algo.name", "observing"],
)  # fmt: skip
def test_a_name_that_is_not_there_would_be_found(wrong: str) -> None:
    assert not _is_known(wrong)


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
    files = [
        ROOT / f"src/pettingllms/envs/{name}.py"
        for name in ("contract", "check_start", "contract_faults")
    ]
    code = "".join(file.read_text() for file in files)
    named = set(re.findall(r'(?:ContractViolation|Fault)\(\s*"([a-z-]+)"', code))
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
