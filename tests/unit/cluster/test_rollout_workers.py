"""A rollout worker without Ray: made from a pickled spec, it plays what the driver plays."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

import ray

from pettingllms.cluster.playing import TEST, Play, env_of, level_of, play_here
from pettingllms.cluster.rollout_workers import RolloutWorker, worker_spec
from pettingllms.cluster.samplers import PolicySamplers
from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import Agents, Workflow, WorkflowConfig
from pettingllms.registry import ENVIRONMENTS
from pettingllms.rollouts.linear import linear_rollout
from pettingllms.rollouts.packed_episodes import Packed, token_rows, unpack
from pettingllms.rollouts.worker import ROLLOUTS
from pettingllms.types import Episode, Rewards, Scored, Task, episode_line
from pettingllms.types.stored_turns import Text, TokenRow

DIGITS = Path(__file__).parents[2] / "integration" / "digits.py"


class Held:
    def __init__(self, packed: Packed) -> None:
        self._rows, self._texts = token_rows(packed.tokens), packed.texts

    def tokens(self, row: int) -> TokenRow:
        return self._rows[row]

    def text(self, row: int) -> Text:
        return self._texts[row]


def config_of(env: dict[str, Any], **sections: Any) -> RunConfig:
    scripted = {"kind": "scripted", "player": "random"}
    given = {"env": env, "algo": {"type": "grpo"}, "policies": {"p": scripted}, **sections}
    return parse_config(given)


def play_of(config: RunConfig, level: int = 1, **options: Any) -> Play:
    rollout = config.rollout.model_copy(update={"type": "linear", **options})
    return Play(5, rollout, None, frozenset(), False, {}, {}, level, 0)


def in_driver(config: RunConfig, play: Play, tasks: list[Task]) -> list[Episode]:
    env, samplers = env_of(config, play.level), PolicySamplers(config, {})
    player = lambda name: play.player(samplers, env, name)  # noqa: E731
    return asyncio.run(play_here(play, tasks, config, env, player, lambda _: None))


def in_worker(config: RunConfig, plays: list[tuple[Play, list[Task]]]) -> list[list[Episode]]:
    spec = ray.cloudpickle.loads(ray.cloudpickle.dumps(worker_spec(config, [], 3)))

    async def run() -> list[Packed]:
        worker = RolloutWorker(spec)
        await worker.start()
        return [await worker.play(play, tasks) for play, tasks in plays]

    return [
        list(unpack(packed.summaries, Held(packed), {task.id: task for task in tasks}))
        for packed, (_, tasks) in zip(asyncio.run(run()), plays, strict=True)
    ]


CONFIGS = {
    "game": config_of({"id": "tic_tac_toe-v1"}),
    "file": config_of({"id": f"{DIGITS}:Digits", "num_roles": 3}),
    "curriculum": config_of(
        {"id": "plan_path-v1"}, curriculum={"key": "height", "levels": [4, 6]}, eval={"level": 1}
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_worker_plays_what_the_driver_plays(name: str) -> None:
    config = CONFIGS[name]
    levels = (1, 2, TEST) if name == "curriculum" else (1, TEST)
    plays = []
    for level in levels:
        env = env_of(config, level)
        plays.append((play_of(config, level), list(env.tasks("train" if level else "test"))[:4]))
    found = in_worker(config, plays)
    for episodes, (play, tasks) in zip(found, plays, strict=True):
        expected = in_driver(config, play, tasks)
        assert len(expected) == 16
        assert [*map(episode_line, episodes)] == [*map(episode_line, expected)]
    if name == "curriculum":
        assert [some[0].env[-10:] for some in found] == ["[height=4]", "[height=6]", "[height=4]"]


def test_calls_of_asynchronous_runs_share_the_bound_of_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call per group: the bound of concurrent episodes is that of the worker."""
    rollout = {"max_concurrent": 3, "max_staleness": 1}
    config = config_of({"id": "tic_tac_toe-v1"}, rollout=rollout)
    playing, most = 0, 0

    async def slow_rollout(*args: Any) -> None:
        nonlocal playing, most
        playing += 1
        most = max(most, playing)
        await asyncio.sleep(0.01)
        playing -= 1
        await linear_rollout(*args)

    async def run() -> list[Packed]:
        worker = RolloutWorker(worker_spec(config, [], 1))
        await worker.start()
        play, tasks = play_of(config), list(env_of(config, 1).tasks("train"))[:4]
        return await asyncio.gather(*(worker.play(play, [task]) for task in tasks))

    monkeypatch.setitem(ROLLOUTS, "linear", slow_rollout)
    found = asyncio.run(run())
    assert [len(packed.summaries.episodes) for packed in found] == [4] * 4
    assert most == 3


def test_the_level_of_an_environment_is_found_again() -> None:
    config = CONFIGS["curriculum"]
    assert [level_of(config, env_of(config, level)) for level in (1, 2)] == [1, 2]
    assert level_of(CONFIGS["game"], env_of(CONFIGS["game"], 1)) == 1


def test_an_environment_of_a_session_travels_by_value() -> None:
    base: Any = ENVIRONMENTS.load("tic_tac_toe-v1")

    class Mine(base):  # type: ignore[misc]
        id = "session:mine"

    ENVIRONMENTS.register("session:mine", Mine)
    config = config_of({"id": "session:mine"})
    spec = worker_spec(config, [], 1)
    data = ray.cloudpickle.dumps(spec)
    ENVIRONMENTS.register("session:mine", base)
    worker = RolloutWorker(ray.cloudpickle.loads(data))
    asyncio.run(worker.start())
    assert worker._env(1).id == "session:mine"


def test_a_workflow_of_a_session_gets_a_gateway_in_each_worker() -> None:
    class Mine(Workflow[WorkflowConfig]):
        id = "session:program"
        roles = ("a", "b")

        def tasks(self, split: str) -> list[Task]:
            return [Task("t")]

        async def run(self, task: Task, agents: Agents) -> str:
            return agents.key

        def score(self, task: Task, result: Any) -> Rewards:
            return Rewards(team=Scored(1.0))

        def success(self, state: Any, role: str) -> bool:
            return True

    ENVIRONMENTS.register("session:program", Mine)
    api = {"kind": "api", "model": "m", "url": "http://localhost:1/v1"}
    config = config_of({"id": "session:program"}, policies={"p": api})
    url = "http://10.0.0.1:9"
    data = ray.cloudpickle.dumps(worker_spec(config, [], 2, "1", url))
    worker = RolloutWorker(ray.cloudpickle.loads(data))

    async def run() -> Any:
        started = await worker.start()
        assert worker._programs is not None
        gateway = worker._programs.gateway
        session = gateway.open(Episode("t/0", "e", Task("t"), 0), {}, 1)
        await worker.stop()
        return started, gateway.agents(session)

    started, agents = asyncio.run(run())
    assert started.gateway_url.startswith("http://127.0.0.1:")
    assert agents.url == url
    assert agents.key.startswith("pl-1-")


def test_servers_are_shared_evenly() -> None:
    api = {"kind": "api", "model": "m", "url": "http://localhost:1/v1", "max_concurrent": 10}
    config = config_of({"id": "tic_tac_toe-v1"}, policies={"p": api})
    shared: Any = worker_spec(config, [], 4).config.policies["p"]
    assert shared.max_concurrent == 3
