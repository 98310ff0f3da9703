"""Dockerfiles, dev container, workflows and docs build, checked without a builder or a runner."""

import json
import re
from pathlib import Path

import pytest
from tools import complaint, tool

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
IGNORED = "--ignore=DL3066"
"""A user by name, which the image has."""


def name_of(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("file", DOCKERFILES, ids=name_of)
def test_hadolint_finds_nothing(file: Path) -> None:
    assert complaint(tool("hadolint"), "--no-color", IGNORED, file) == ""


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /x && pip install torch\n")
    assert "DL3006" in complaint(tool("hadolint"), "--no-color", tmp_path / "Dockerfile")


@pytest.mark.parametrize("file", DOCKERFILES, ids=name_of)
def test_images_copy_only_what_exists_and_do_not_run_as_root(file: Path) -> None:
    text = file.read_text()
    copied = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    for place in " ".join(copied).split():
        assert (ROOT / place).exists(), place
    assert re.search(r"^USER petting$", text, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"src", "configs", "experiments", "docs", "locks"} & set(ignored)


def test_images_have_the_tested_ray() -> None:
    text = (ROOT / "docker" / "gpu.Dockerfile").read_text()
    (version,) = re.findall(r"ray\[default\]==([\d.]+)", text)
    assert f"ray=={version}\n" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("file", WORKFLOWS, ids=name_of)
def test_workflows_pass_the_schema_of_github(file: Path) -> None:
    check = tool("check-jsonschema")
    assert complaint(check, "--builtin-schema", "vendor.github-workflows", file) == ""


def test_the_build_of_versioned_docs_passes_the_schema_of_its_host() -> None:
    check = tool("check-jsonschema")
    file = ROOT / ".readthedocs.yaml"
    assert complaint(check, "--builtin-schema", "vendor.readthedocs", file) == ""
    assert "extra_requirements: [docs]" in file.read_text()
    assert "\ndocs = [" in (ROOT / "pyproject.toml").read_text()


def test_release_workflow_passes_the_security_audit() -> None:
    audit = tool("zizmor")
    release = ROOT / ".github" / "workflows" / "release.yml"
    assert complaint(audit, "--offline", "--no-config", release) == ""


def test_release_publishes_without_a_stored_token() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "id-token: write" in text
    assert "secrets." not in text
    assert "password" not in text
    pinned = re.findall(r"uses: \S+@(\S+)", text)
    assert pinned
    assert all(re.fullmatch(r"[0-9a-f]{40}", one) for one in pinned)


def test_dev_container_names_scripts_that_exist() -> None:
    data = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    commands = f"{data['onCreateCommand']} {data['postCreateCommand']}"
    scripts = re.findall(r"scripts/\S+\.sh", commands)
    assert len(scripts) == 2
    assert all((ROOT / script).is_file() for script in scripts)
