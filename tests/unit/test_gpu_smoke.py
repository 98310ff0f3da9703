"""scripts/gpu_smoke.py on a machine without GPUs, and what its report leaves out."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_smoke.py"


@pytest.fixture
def smoke(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_smoke", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_smoke", module)  # its dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_lists_its_checks_and_fails(smoke: ModuleType) -> None:
    path = os.pathsep.join(["/usr/bin", "/bin"])
    found = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": path},
    )
    if smoke.find_gpus():
        pytest.skip("this machine has GPUs")
    assert found.returncode == 2
    assert "no NVIDIA GPU found" in found.stdout
    assert smoke.NEVER in found.stdout
    for check in smoke.CHECKS:
        assert f"{check.__name__} " in found.stdout
        assert check.__doc__


def test_the_report_names_neither_user_nor_machine_nor_secrets(
    smoke: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setattr(smoke, "getuser", lambda: "alice")
    home = Path.home()
    text = f"{home}/runs of alice on {socket.gethostname()}: hf_abcdefgh, malice"
    assert smoke.scrub(text) == "~/runs of USER on HOST: $HF_TOKEN, malice"


def test_a_check_is_skipped_failed_or_ok_with_its_reason(
    smoke: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = smoke.Lab(tmp_path, tmp_path, 1)

    def broken(_: object) -> str:
        raise smoke.FailError("line\nNCCL error")

    def passing(_: object) -> str:
        return "mismatch 0"

    report = smoke.Report(1)
    for check in (smoke.weight_transfer, broken, passing):
        report.run(check, lab)
    assert [row[1] for row in report.rows] == ["skipped", "failed", "ok"]
    assert report.num_failed == 1
    said = capsys.readouterr().out
    for part in ("needs 2 GPUs", "NCCL error", "mismatch 0"):
        assert part in said
        assert part in report.markdown()
