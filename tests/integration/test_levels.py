"""One environment file, one real model; the levels differ by configuration alone."""

import secrets
import socket
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest
from running import config_of, drive, metrics_of, start, wait_for

pytestmark = pytest.mark.engine


def lora(model: Path, **more: object) -> dict:
    return {"kind": "lora", "model": str(model), "rank": 8, "lr": 1e-3, **more}


def full(model: Path) -> dict:
    return {"kind": "full", "model": str(model), "lr": 1e-4}


def assert_moved(history: list, moving: set[str]) -> None:
    """From step to step exactly these policies changed, in the learner and in the sampler."""
    for before, after in pairwise(history):
        for side in ("learner", "sampler"):
            weight_hashes = {p: after[p][side] for p in after if side in after[p]}
            changed = {p for p in weight_hashes if weight_hashes[p] != before[p][side]}
            assert changed == moving, f"{side}: {changed} changed, {moving} should have"


def assert_gaps(run_folder: Path, policies: set[str]) -> None:
    lines = metrics_of(run_folder)
    assert len(lines) >= 3
    for line in lines:
        for policy in policies:
            assert line[f"policies/{policy}/mismatch"] < 1e-3
            assert line[f"policies/{policy}/canary_difference"] < 1e-3


LEVELS = {
    "L0": lambda m: ({"solo": lora(m)}, {"solo": "solo"}, {"env": {"solo": True, "num_roles": 2}}),
    "L1": lambda m: ({"shared": lora(m)}, {"role0": "shared", "role1": "shared"}, {}),
    "L2": lambda m: ({"a": lora(m), "b": lora(m)}, {"role0": "a", "role1": "b"}, {}),
    "L3": lambda m: ({"a": full(m), "b": full(m)}, {"role0": "a", "role1": "b"}, {}),
}


IN_CI = "L2"
"""The one that no other engine has."""


@pytest.mark.parametrize(
    "level",
    [pytest.param(n, marks=[] if n == IN_CI else [pytest.mark.slow]) for n in LEVELS],
)
def test_a_level_is_configuration(level: str, smollm2: Path, tmp_path: Path) -> None:
    policies, roles, sections = LEVELS[level](smollm2)
    config = config_of(policies, roles, **sections, train={"save_every": 3})
    found = drive(tmp_path, "levels", config)
    assert len(found["history"]) == 4
    assert_moved(found["history"], set(policies))
    assert_gaps(tmp_path / "run", set(policies))


@pytest.fixture
def server(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A real vLLM server on loopback, with a key."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = secrets.token_hex(8)
    monkeypatch.setenv("PETTINGLLMS_TEST_KEY", key)
    process = start(
        tmp_path / "server.txt", "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(smollm2), "--served-model-name", "smol",
        "--host", "127.0.0.1", "--port", str(port), "--api-key", key,
        "--no-enable-chunked-prefill", "--enforce-eager", "--max-model-len", "256",
        "--dtype", "float32", "--max-num-seqs", "8",
    )  # fmt: skip

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "server.txt").read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        wait_for(answers, 300, "the server")
        yield f"http://127.0.0.1:{port}/v1", key
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.slow
def test_a_mixed_team(smollm2: Path, tmp_path: Path, server: tuple[str, str]) -> None:
    """One role trained by LoRA, one full, one frozen, one served over HTTP; five updates."""
    url, key = server
    policies = {
        "adapted": lora(smollm2),
        "whole": full(smollm2),
        "still": {"kind": "frozen", "model": str(smollm2)},
        "served": {"kind": "api", "url": url, "model": "smol", "key": "PETTINGLLMS_TEST_KEY"},
    }
    roles = {f"role{n}": name for n, name in enumerate(policies)}
    config = config_of(policies, roles, train={"num_steps": 5, "save_every": 5})
    found = drive(tmp_path, "levels", config, base="still")
    assert_moved(found["history"], {"adapted", "whole"})
    assert_gaps(tmp_path / "run", {"adapted", "whole"})
    assert found["base_gap"] < 1e-3
    last = metrics_of(tmp_path / "run")[-1]
    assert last["roles/role3/failed_share"] == 0
    assert last["roles/role3/reply_tokens"] > 0
    everything = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert not any(key.encode() in path.read_bytes() for path in everything), "a key was written"


@pytest.mark.slow
def test_eight_adapters_cost_adapters(smollm2: Path, tmp_path: Path) -> None:
    """Memory grows by the adapters only, and training one leaves seven as they were."""
    memory = {}
    for count in (1, 8):
        policies = {f"p{n}": lora(smollm2) for n in range(count)}
        roles = {f"role{n}": f"p{n}" for n in range(count)}
        found = drive(tmp_path / str(count), "adapters", config_of(policies, roles))
        memory[count] = found["memory_after"]
        assert all(found["together"][p] != found["before"][p] for p in policies)
        for side in ("learner", "sampler"):
            changed = {p for p in policies if found["alone"][p][side] != found["together"][p][side]}
            assert changed == {"p0"}
    base = (smollm2 / "model.safetensors").stat().st_size
    more = {side: memory[8][side] - memory[1][side] for side in memory[8]}
    print({"memory": memory, "more": more, "base": base})
    one = next((tmp_path / "8").rglob("adapter.bytes")).stat().st_size
    assert more["tensors"] == pytest.approx(7 * 3 * one, rel=0.05), "weights and two moments each"
    assert more["learner"] < 3 * base  # with what the heap keeps; seven models would be 7
    assert more["engine"] < 2 * base
