"""Python packages, including this one, and data are hidden in every location; the rest is shown."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Limits, open_sandbox, python, tiers
from pettingllms.sandbox.hidden import hidden_folders
from pettingllms.sandbox.probe import probe
from pettingllms.sandbox.tiers import TIERS
from pettingllms.sandbox.warm_pool import WarmSandbox

ANSWERS = ("lib/python3.12/site-packages", "deep/tool/lib/python3/dist-packages", "venv/src")
LOOK = """
import os
for folder, _, names in os.walk({top!r}):
    for name in names: print(open(os.path.join(folder, name)).read())
try: open(os.path.join({hidden!r}, 'new'), 'w'); print("written")
except OSError: pass
"""


@pytest.fixture
def software(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with packages that sandboxes show, outside their default paths."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir="/srv" if Path("/srv").is_dir() else None) as name:
        top = Path(name)
        top.chmod(0o755)
        for folder in ANSWERS:
            (top / folder / "pettingllms").mkdir(parents=True)
            (top / folder / "pettingllms" / "problems.toml").write_text("answer")
        (top / "bin").mkdir()
        (top / "bin" / "tool").write_text("tool")
        monkeypatch.setattr(tiers, "SHOWN", (*tiers.SHOWN, name))
        monkeypatch.setattr(sys, "path", [*sys.path, str(top / "venv/src")])
        tiers.view.cache_clear()
        hidden_folders.cache_clear()
        yield top
    tiers.view.cache_clear()
    hidden_folders.cache_clear()


def test_packages_are_found_at_any_depth(software: Path) -> None:
    found = hidden_folders((str(software),))
    assert found == tuple(sorted(str(software / folder) for folder in ANSWERS))


def test_folders_that_programs_need_are_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/usr/bin", "/usr/lib", "/usr"])
    hidden_folders.cache_clear()
    try:
        found = hidden_folders(("/usr",))
    finally:
        hidden_folders.cache_clear()
    assert not {"/usr/bin", "/usr/lib", "/usr"} & set(found)


@pytest.mark.parametrize("tier", TIERS)
def test_a_program_sees_software_and_no_answers(software: Path, tier: str) -> None:
    sandbox = WarmSandbox(TIERS[tier], num_warm=0)
    try:
        source = LOOK.format(top=str(software), hidden=str(software / ANSWERS[0]))
        try:
            outcome = sandbox.run(python(source), Limits(seconds=20))
        except SandboxError as error:
            pytest.skip(str(error))
        assert outcome.stdout == "tool\n"
        probe(sandbox)
    finally:
        sandbox.close()


def test_packages_are_hidden_where_the_kernel_has_no_empty_folder(
    software: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "EMPTY", software / "bin")
    sandbox = WarmSandbox(TIERS["bubblewrap"], num_warm=0)
    try:
        source = LOOK.format(top=str(software), hidden=str(software / ANSWERS[0]))
        assert sandbox.run(python(source), Limits(seconds=20)).stdout == "tool\n"
    except SandboxError as error:
        pytest.skip(str(error))
    finally:
        sandbox.close()


def test_the_probe_finds_answers_that_are_shown(
    software: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        tier = open_sandbox().tier
    except SandboxError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(tiers, "hidden_folders", lambda shown: ())
    sandbox = WarmSandbox(tier, num_warm=0)
    try:
        with pytest.raises(SandboxError, match="installed packages"):
            probe(sandbox)
    finally:
        sandbox.close()
