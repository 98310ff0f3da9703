"""Programs of real packages, on real engines: their roles learn, and nothing else changes."""

import json
import socket
import urllib.request
from pathlib import Path
from statistics import median

import pytest
from running import HERE, drive, kill_all, run, start, wait_for

from pettingllms.types import read_episodes

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {
    "openai": ("agents_openai.py:Sums", ("planner", "worker")),
    "langgraph": ("agents_langgraph.py:LangGraphSums", ("planner", "worker")),
    "autogen_agentchat": ("agents_autogen.py:AutoGenSums", ("planner", "worker")),
    "ag2": ("agents_ag2.py:Ag2Sums", ("planner", "worker")),
}
OTHERS = {
    "llama_index": ("agents_llamaindex.py:LlamaIndexSums", ("query", "critic")),
    "agents": ("agents_openai_agents.py:HandOffSums", ("planner", "worker")),
    "langchain_openai": ("agents_langchain_tools.py:ToolSums", ("asker", "worker")),
}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("package", PROGRAMS)
def test_two_steps_change_the_adapters_of_both_roles(
    package: str, smollm2: Path, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    program, roles = PROGRAMS[package]
    found = drive(tmp_path, "levels", trained(program, roles, smollm2, num_steps=2))
    first, *steps = found["history"]
    assert len(steps) == 2
    assert set(first) == set(roles)
    before = first
    for after in steps:
        for role in roles:
            assert after[role]["learner"] != before[role]["learner"], role
            assert after[role]["sampler"] != before[role]["sampler"], role
        before = after


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("package", OTHERS)
def test_a_step_changes_the_adapter_of_every_role_that_spoke(
    package: str, smollm2: Path, tmp_path: Path
) -> None:
    """A model as small as this may never hand over; who said nothing stays as it was."""
    pytest.importorskip(package)
    program, roles = OTHERS[package]
    found = drive(tmp_path, "levels", trained(program, roles, smollm2, num_steps=1))
    before, after = found["history"]
    episodes = list(read_episodes(tmp_path / "run" / "episodes" / "step-000001"))
    assert all(episode.failure is None for episode in episodes)
    spoke = {turn.role for episode in episodes for turn in episode.turns}
    assert roles[0] in spoke
    moved = {role for role in roles if after[role]["learner"] != before[role]["learner"]}
    assert moved == spoke


def trained(program: str, roles: tuple[str, ...], model: Path, num_steps: int) -> dict:
    return {
        "seed": 3,
        "env": {"id": str(EXAMPLES / program)},
        "algo": {"type": "dr_mas"},
        "policies": {role: {"kind": "lora", "model": str(model)} for role in roles},
        "roles": {role: role for role in roles},
        "rollout": {"num_tasks": 1, "num_samples": 3, "max_reply_tokens": 8},
        "inference": {"max_model_len": 512, "max_num_seqs": 16},
        "train": {"num_steps": num_steps, "save_every": num_steps},
    }


@pytest.mark.engine
@pytest.mark.slow
def test_records_are_what_the_engine_saw_and_answers_are_those_of_bare_vllm(
    tiny: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start(
        tmp_path / "server.log", "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(tiny), "--served-model-name", "tiny", "--dtype", "float32",
        "--max-model-len", "1024", "--max-num-seqs", "64", "--enforce-eager",
        "--no-enable-chunked-prefill", "--generation-config", "vllm",
        "--host", "127.0.0.1", "--port", str(port),
    )  # fmt: skip
    try:
        wait_for(lambda: _answers(port), 400, "bare vLLM")
        result = tmp_path / "result.json"
        script = str(HERE / "drive_gateway.py")
        run(tmp_path / "log.txt", script, str(tiny), str(result), str(port), seconds=900)
    finally:
        kill_all(server.pid)
        server.wait(timeout=60)
    found = json.loads(result.read_text())
    print({name: value for name, value in found.items() if name not in ("pairs", "guided")})
    assert found["said"] == [], "the template preserves prefixes"
    assert found["same"], "every record is one exchange of the engine, id for id"
    assert found["num_turns"] > 500
    assert found["num_extending"] > 150
    assert (found["broken"], found["failed"]) == (0, 0)
    assert found["gap"] < 1e-3
    for ours, theirs in [*found["pairs"], found["guided"]]:
        assert _compared(ours) == _compared(theirs)
        assert ours["choices"][0].keys() <= theirs["choices"][0].keys()
        assert ours.keys() <= theirs.keys()
    assert isinstance(json.loads(found["guided"][0]["choices"][0]["message"]["content"])["n"], int)
    assert found["guided_marked"] == 1
    medians = {
        who: {what: median(one[what] for one in rounds) for what in rounds[0]}
        for who, rounds in found["speed"].items()
    }
    print(medians)
    assert medians["gateway"]["rate"] >= 0.9 * medians["bare"]["rate"]


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _compared(answer: dict) -> dict:
    """What must be the same, field by field: all but names and times."""
    (choice,) = answer["choices"]
    usage = {name: answer["usage"][name] for name in
             ("prompt_tokens", "completion_tokens", "total_tokens")}  # fmt: skip
    return {
        "object": answer["object"], "model": answer["model"], "usage": usage,
        "index": choice["index"], "finish_reason": choice["finish_reason"],
        "role": choice["message"]["role"], "content": choice["message"]["content"],
        "tool_calls": choice["message"].get("tool_calls") or [], "logprobs": choice["logprobs"],
    }  # fmt: skip
