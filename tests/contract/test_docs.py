"""The docs match the code: generated pages are fresh, code blocks run, commands and keys exist."""

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import pettingllms
from pettingllms.config import RunConfig, read_config

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / ".github").rglob("*.md"),
    *(ROOT / "src").rglob("README.md"),
]
SOURCE = ROOT / "src" / "pettingllms"
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
HAND_WRITTEN = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "results").glob("*.md")),
    *GUIDES,
    *sorted((ROOT / "docs" / "concepts").glob("*.md")),
]
"""Pages whose code blocks are tested."""
BLOCK = re.compile(
    r"^(?:<!-- test: (?P<mark>\w+) -->\n)?```(?P<kind>python|toml|bash)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[tuple[str, str]]:
    """The code blocks of a page, each with the mark above it."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(one["mark"] or "", one["code"]) for one in found if one["kind"] == kind]


def _in_docs(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_reference_is_fresh() -> None:
    code = (
        "import make_reference as m; "
        "print([p.name for p, text in m.pages().items() if text != p.read_text(encoding='utf-8')])"
    )
    assert _in_docs(code) == "[]", "run: python docs/make_reference.py"


def test_every_shipped_config_is_described() -> None:
    page = (ROOT / "docs/reference/configs.md").read_text()
    row = re.compile(r"^\| \[([\w.]+)\]\(../../configs/\1\) .* \| (.+) \|$", re.MULTILINE)
    rows = dict(row.findall(page))
    assert sorted(rows) == sorted(file.name for file in (ROOT / "configs").glob("*.toml"))
    assert min(map(len, rows.values())) > 30
    assert "reference/configs.md" in (ROOT / "README.md").read_text()


def test_reference_describes_every_public_name() -> None:
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
        texts = {part.split()[0]: re.sub(r"(?s)```.*?```", "", part).split()[1:] for part in listed}
        assert [name for name, words in texts.items() if not words] == [], "add a docstring"
    assert set(re.findall(r"^\| \[?`(\w+)`", page, re.MULTILINE)) == set(pettingllms.__all__)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https:") or (page.parent / target).exists(), target


# Python blocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in order in one namespace; those marked `compile` are only checked
    for names that exist, because they need an engine or a package that is not installed."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # so that its classes can be pickled
    for mark, code in blocks(page, "python"):
        assert mark in ("", "compile"), mark
        assert missing_names(code) == []
        if mark == "":
            exec(compile(code, name_of(page), "exec"), vars(module))  # noqa: S102


def missing_names(code: str) -> list[str]:
    """Names of the package that a block uses and that do not exist or are not public."""
    tree = compile(code, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    missing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pettingllms"):
            module = importlib.import_module(str(node.module))
            names = [one.name for one in node.names]
            missing += [f"{node.module}.{name}" for name in names if not hasattr(module, name)]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pl":
            missing += [f"pl.{node.attr}"] * (node.attr not in pettingllms.__all__)
    return missing


def test_missing_names_are_found() -> None:
    assert missing_names("import pettingllms as pl\npl.trian()\nawait pl.Task") == ["pl.trian"]
    assert missing_names("from pettingllms.algos import gone") == ["pettingllms.algos.gone"]


# TOML blocks --------------------------------------------------------------------------------------

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
USER_FILES = {
    "best_only.py": "docs/guides/write_algorithm.md",
    "guess.py": "docs/guides/environments.md",
    "cispo.py": "docs/guides/losses.md",
}
"""Files that a page asks the reader to save, with the page whose first Python block they are."""


def complete(data: dict[str, Any]) -> dict[str, Any]:
    """A fragment of a config with the required sections that it leaves out."""
    team = {name: {"kind": "lora", "model": MODEL} for name in ("planner", "checker")}
    defaults: dict[str, Any] = {"env": {"id": "plan_path-v1"}, "algo": {"type": "grpo"}}
    if "policies" not in data:
        defaults |= {"policies": team, "roles": {name: name for name in team}}
    return defaults | data


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=name_of)
def test_toml_blocks_parse(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name == "write_experiment.md":
        return  # it has an experiment and a plan, which test_experiments.py reads
    for name, source in USER_FILES.items():
        (tmp_path / name).write_text(blocks(ROOT / source, "python")[0][1])
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for mark, code in blocks(page, "toml"):
        if mark == "suite":
            from pettingllms.evaluation.suites.suite import Suite

            Suite.model_validate(tomllib.loads(code))
            continue
        (file := tmp_path / "block.toml").write_text(code)
        data = complete(read_config(file))
        if mark == "verifiers":  # a taskset that is not installed
            RunConfig.model_validate(data)
            continue
        if mark == "hub":  # datasets that need the network
            data["env"] = {k: v for k, v in data["env"].items() if k not in ("data", "test_data")}
        pettingllms.parse_config(data, name_of(page))


def test_wrong_key_in_a_toml_block_is_found() -> None:
    with pytest.raises(pettingllms.PettingError, match="num_sample"):
        pettingllms.parse_config(complete({"rollout": {"num_sample": 4}}))


# Commands -----------------------------------------------------------------------------------------


def _commands() -> dict[str, Any]:
    """Every command of the CLI, by its words."""
    import typer.main

    from pettingllms.cli.main import app

    found: dict[str, Any] = {}

    def walk(command: Any, words: str) -> None:
        found[words] = command
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{words} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    known = {words.split()[0] for words, one in _commands().items() if words and not one.hidden}
    named = set(re.findall(r"`?pettingllms ([a-z][a-z-]*)", page.read_text()))
    assert named - known <= {"as", "import"}


def _options() -> dict[str, set[str]]:
    """Options of every command, by its words."""
    found = {}
    for words, command in _commands().items():
        names = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
        found[words] = {name for name in names if name.startswith("-")} | {"-h", "--help"}
    return found


def _unknown_options(text: str) -> list[str]:
    """Options that a text passes to a command that does not have them."""
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_exist(page: Path) -> None:
    assert _unknown_options(page.read_text()) == []


def test_unknown_options_are_found() -> None:
    text = "`pettingllms view RUN --exprot x`\npettingllms models get NAME \\\n --sauce hub # --no"
    assert _unknown_options(text) == ["view --exprot", "models get --sauce"]
    assert _unknown_options("pettingllms view RUN --export FILE --no-browser") == []


def parse_command(line: str) -> str:
    """The CLI's complaint about a command, or nothing. Missing files are fine here."""
    import shlex

    import typer

    usage_error = typer.BadParameter.__mro__[1]
    words = shlex.split(line.partition(" #")[0])[1:]
    commands, taken = _commands(), ""
    while words and f"{taken} {words[0]}".strip() in commands:
        taken = f"{taken} {words.pop(0)}".strip()
    try:
        commands[taken].make_context(taken, words)
    except usage_error as error:
        problem = error.format_message()
        return "" if "does not exist" in problem else f"{line}: {problem}"
    except typer.Exit:
        return ""
    return ""


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=name_of)
def test_shell_blocks_parse(page: Path) -> None:
    """Every `pettingllms` line of a shell block has the arguments that the command takes."""
    for _, code in blocks(page, "bash"):
        lines = code.replace("\\\n", " ").splitlines()
        for line in (one.strip() for one in lines if one.startswith("pettingllms ")):
            assert parse_command(line) == ""


def test_wrong_commands_are_found() -> None:
    assert "No such option" in parse_command("pettingllms view RUN --exprot x")
    assert "Missing" in parse_command("pettingllms train")
    assert parse_command("pettingllms train some.toml rollout.num_samples=8  # fine") == ""


# Config keys --------------------------------------------------------------------------------------


def _section(annotation: Any) -> Any:
    """The class of a section, also of one that may be absent."""
    inner = [one for one in get_args(annotation) if hasattr(one, "model_fields")]
    return annotation if hasattr(annotation, "model_fields") else (inner or [None])[0]


def unknown_keys(text: str) -> list[str]:
    """Dotted config keys in code spans that do not exist."""
    from pettingllms.config import RunConfig

    fields = RunConfig.model_fields
    sections = {name: _section(field.annotation) for name, field in fields.items()}
    free = ("env", "algo", "policies", "roles", "critic", "loss")
    keys = re.findall(r"(?<![\w/.-])`?(\w+)\.([a-z_]+)(?: = [^`]+)?`", text)
    return [
        f"{section}.{key}"
        for section, key in keys
        if section in sections
        and section not in free
        and sections[section] is not None
        and key not in (*sections[section].model_fields, "py", "toml", "md")
    ]


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=name_of)
def test_config_keys_exist(page: Path) -> None:
    text = page.read_text()
    if page.name == "coming_from.md":  # the left column has other projects' keys
        text = re.sub(r"^\| .* \| (?=[^|]+ \|$)", "", text, flags=re.MULTILINE)
    assert unknown_keys(text) == []


def test_unknown_keys_are_found() -> None:
    assert unknown_keys("set `rollout.num_sample = 3` and `train.num_steps`") == [
        "rollout.num_sample"
    ]


def _right_column(text: str) -> list[str]:
    """Code in the right column of tables that map names of other projects."""
    rows = re.findall(r"^\| .* \| ([^|]+) \|$", text, re.MULTILINE)
    return [code for row in rows if row != "here" for code in re.findall(r"`([^`]+)`", row)]


def _is_known(code: str) -> bool:
    """Whether a command, file, key, registered name, role or method exists."""
    from pettingllms.config import CriticConfig, LossConfig, PolicyConfig, RunConfig
    from pettingllms.datasets.published import published
    from pettingllms.datasets.sources import parse_source
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
    if code.startswith("hf:") or code.partition("/")[0] in published():
        return bool(parse_source(code))
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
        known |= {"critic": CriticConfig.model_fields}
        known |= {"loss": {*LossConfig.model_fields, *_loss_options()}}
        return inner in (known.get(section) or _section(fields[section].annotation).model_fields)
    return code in names


def _loss_options() -> set[str]:
    """Options of the losses that ship."""
    from pettingllms.registry import LOSSES

    return {key for name in LOSSES.names() for key in LOSSES.load(name).Config.model_fields}


def test_names_that_replace_those_of_other_projects_exist() -> None:
    found = _right_column((ROOT / "docs/guides/coming_from.md").read_text())
    assert len(found) > 50
    assert [code for code in found if not _is_known(code)] == []


@pytest.mark.parametrize(
    "wrong",
    ["rollout.num_sample", "configs/maths_team.toml", "pettingllms trian", "debate-v9", "[role]",
     "env.dta", "algo.name", "observing"],
)  # fmt: skip
def test_names_that_do_not_exist_are_found(wrong: str) -> None:
    assert not _is_known(wrong)


# Structure ----------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = set(re.findall(r"(?:: |- )(\S+\.md)$", nav, re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not fnmatch(page, "results/*/table.md")} == listed


REFERENCE_GUIDES = {"coming_from", "troubleshooting", "training_runs", "write_algorithm", "play"}
"""Guides without the usual sections: tables of names, or questions and answers."""
GUIDES_WITHOUT_METRICS = {
    *("environments", "draft_environments", "viewer", "evaluation"),
    *("launch", "share_models", "simulate", "recipes", "reproduce", "write_experiment"),
}
"""Guides of commands that add no metrics to a run."""


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_guides_start_with_an_example_and_end_with_troubleshooting(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= 280, "split the page"
    if page.stem not in REFERENCE_GUIDES:
        assert "\n## Troubleshooting" in text
        assert "\n## Metrics" in text or page.stem in GUIDES_WITHOUT_METRICS
        first = text.index("\n```")
        assert text[:first].count("\n") < 25, "the example comes first"


def test_architecture_lists_every_package() -> None:
    page = (ROOT / "docs/concepts/architecture.md").read_text()
    rows = re.findall(r"^\| (`\w+`.*?) \|", page.split("## Layers")[1], re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    entries = [path for path in SOURCE.iterdir() if not path.name.startswith(("_", "."))]
    packages = {path.stem for path in entries if path.suffix in ("", ".py")}
    assert packages == listed


TERMS = (
    "trajectory", "on-policy", "advantage", "baseline", "reference model", "KL penalty",
    "entropy bonus", "importance weight", "train–inference mismatch", "VLM", "multimodal", "CTDE",
    "centralized critic", "self-play", "population", "league", "exploitability", "NashConv",
    "LoRA adapter", "FSDP2", "tensor parallel", "rollout", "return", "credit assignment", "value",
    "snapshot", "co-players", "image processor", "curriculum", "rejection sampling",
)  # fmt: skip


def test_glossary_has_the_terms_of_the_field() -> None:
    text = (ROOT / "docs/concepts/glossary.md").read_text().lower()
    assert [term for term in TERMS if term.lower() not in text] == []


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    (python,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in python[1].splitlines() if line.strip()]) <= 10
    for picture in ("viewer_tree.png", "learning_curve.png"):
        assert f"docs/images/{picture}" in text


def _build(page: str, into: Path) -> subprocess.CompletedProcess[str]:
    """Build the site with one more page. Not quietly: warnings are then not counted."""
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
def test_site_builds_and_a_broken_link_stops_it(tmp_path: Path) -> None:
    pytest.importorskip("material")
    sound = _build(
        "[there](guides/gpus.md#known-limits) [outside](../README.md)", tmp_path / "sound"
    )
    assert sound.returncode == 0, sound.stderr
    assert "WARNING" not in sound.stderr
    for number, link in enumerate(("gone.md", "guides/gpus.md#nowhere")):
        broken = _build(f"[broken]({link})", tmp_path / str(number))
        assert broken.returncode != 0, link


def test_every_fault_is_explained() -> None:
    files = [
        ROOT / f"src/pettingllms/envs/{name}.py"
        for name in ("contract", "check_start", "contract_faults")
    ]
    code = "".join(file.read_text() for file in files)
    named = set(re.findall(r'(?:ContractViolation|Fault)\(\s*"([a-z-]+)"', code))
    _, page = (ROOT / "docs/guides/environments.md").read_text().split("## Faults that")
    explained = set(re.findall(r"^\| `([a-z-]+)`", page, re.MULTILINE))
    assert named == explained


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_metrics_in_the_docs_are_in_the_code(page: Path) -> None:
    _, _, text = page.read_text().partition("\n## Metrics\n")
    table = text.split("\n## ")[0]
    cells = "".join(re.findall(r"^\| (`.+?) \|", table, re.MULTILINE))
    names = [name.rpartition("/")[2] for name in re.findall(r"`([\w/]+)`", cells)]
    quoted = set(
        re.findall(r"[a-z_]{2,}", " ".join(file.read_text() for file in SOURCE.rglob("*.py")))
    )
    lower = [re.sub(r"[A-Z]+_|_[A-Z]+", "", name) for name in names]
    made = ("score_", "eval_phase", "anchor_")  # followed by a name or a number
    assert [o for o in lower if o and o not in quoted and not o.startswith(made)] == []


def test_messages_in_the_docs_are_in_the_code() -> None:
    page = (ROOT / "docs/guides/training_runs.md").read_text()
    table = page.split("| message |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    files = (ROOT / "src/pettingllms/cluster").glob("*.py")
    code = re.sub(r'"\s+f?"', "", "".join(file.read_text() for file in files))
    parts = [part.strip(" '") for row in rows for part in re.split(r"…|'P'", row)]
    assert len(rows) >= 5
    assert [part for part in parts if part not in code] == []


@pytest.mark.parametrize(
    ("page", "heading", "cls"),
    [
        ("environments", "Methods", "Environment"),
        ("environments", "Optional attributes", "Environment"),
        ("write_algorithm", "What a class can define", "Algorithm"),
        ("losses", "Write a loss", "Loss"),
    ],
)
def test_attributes_in_the_tables_exist(page: str, heading: str, cls: str) -> None:
    text = (ROOT / f"docs/guides/{page}.md").read_text().split(f"\n## {heading}\n")[1]
    cells = re.findall(r"^\| (`.+?) \|", text.split("\n## ")[0], re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`(\w+)", cell)]
    owner = getattr(pettingllms, cls)
    known = {*dir(owner), *owner.__annotations__, "StepResult"}
    assert names
    assert [name for name in names if name not in known] == []


def test_every_algorithm_is_in_the_table() -> None:
    from pettingllms.registry import ALGORITHMS

    page = (ROOT / "docs/guides/algorithms.md").read_text()
    table = re.search(r"^\| `algo\.type` \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    assert table is not None
    head, _, *rows = [line.strip("| ").split(" | ") for line in table.group().splitlines() if line]
    names = [name.strip("`") for name, *_ in rows]
    assert set(ALGORITHMS.names()) <= set(names)
    assert len(names) == len(set(names))
    assert all(len(row) == len(head) and all(row) for row in rows)
    assert all(re.search(r"\b(19|20)\d\d\b", source) for *_, source in rows), "a source has a year"
