"""The example programs, each with its own framework, against a gateway with scripted roles."""

from pathlib import Path
from typing import Any

import pytest
from programs import play

from pettingllms.config import load_config
from pettingllms.envs import make_env
from pettingllms.types import SampleRequest

EXAMPLES = Path(__file__).parents[3] / "examples"
PROGRAMS = {
    "openai": ("openai", "Sums", ["planner", "worker", "worker"]),
    "langgraph": ("langgraph", "LangGraphSums", ["planner", "worker"]),
    "autogen": ("autogen_agentchat", "AutoGenSums", ["planner", "worker"] * 2),
    "ag2": ("ag2", "Ag2Sums", ["planner", "worker", "worker"]),
    "openai_agents": ("agents", "HandOffSums", ["planner", "worker"]),
    "llamaindex": ("llama_index", "LlamaIndexSums", ["query", "critic", "query"]),
    "langchain_tools": ("langchain_openai", "ToolSums", ["asker", "worker", "worker"]),
}
CALLS = {
    "openai_agents": ("planner", '{"name": "transfer_to_worker", "arguments": {}}'),
    "langchain_tools": ("worker", '{"name": "add", "arguments": {"a": 0, "b": 0}}'),
}
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs_unchanged_and_its_roles_are_recorded(name: str) -> None:
    package, workflow, roles = PROGRAMS[name]
    pytest.importorskip(package)
    caller, call = CALLS.get(name, ("", ""))
    called: list[str] = []

    def answer(request: SampleRequest, number: int) -> str:
        if request.role == caller and not called:
            called.append(request.role)
            return f"<tool_call>{call}</tool_call>"
        return f"It is {request.seed % 10}"

    env: Any = make_env(f"{EXAMPLES / f'agents_{name}.py'}:{workflow}", seconds=120.0)
    (episode,) = play(env, num_tasks=1, answer=answer, num_samples=1)
    assert episode.failure is None, episode.failure
    assert [turn.role for turn in episode.turns] == roles
    again = [turn.links.extends for turn in episode.turns if turn.role == roles[-1]][1:]
    if roles[-2] == roles[-1]:
        assert again == [len(roles) - 2], "the second call of the worker extends the first"


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_configuration_loads(name: str) -> None:
    config = load_config(EXAMPLES / f"agents_{name}.toml")
    assert set(config.roles) == set(PROGRAMS[name][2])
    assert config.trained_policies() == set(config.roles)


def test_the_loop_trains_a_graph_on_two_adapters(tmp_path: Path) -> None:
    """The real LangGraph and training loop with fake engines: both policies' weights change."""
    for package in ("langgraph", "langchain_openai", "ray", "torch", "transformers"):
        pytest.importorskip(package)
    from fakes import train_with_fakes

    config = load_config(
        EXAMPLES / "agents_langgraph.toml", ["rollout.num_tasks=1", "rollout.num_samples=2"]
    )

    def answer(request: SampleRequest, number: int, weights: int) -> str:
        return f"It is {'9' * (request.seed % 17)} after {weights}"

    run = train_with_fakes(config, tmp_path / "run", answer)
    assert run.weights == {"planner": 2, "worker": 2}
    metrics = run.watched.metrics[2]
    assert metrics["rollout"]["failed_episodes"] == 0
    assert {role: found["num_turns"] for role, found in metrics["roles"].items()} == {
        "planner": 2,
        "worker": 2,
    }
