"""Rollout workers under real Ray with an engine without a model; run by test_workers_engine.py."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENGINE = f"{HERE / 'quick_engine.py'}:QuickEngine"
CROWDED = f"{HERE / 'quick_engine.py'}:CrowdedEngine"
DIGITS = f"{HERE / 'digits.py'}:Digits"
TALKS = HERE / "talks.py"
ONE = "127.0.0.1:0"


def config_of(model: str, workers: int, **sections: Any) -> Any:
    from pettingllms.config import parse_config

    given = {
        "env": {"id": DIGITS, "num_roles": 3},
        "algo": {"type": "grpo"},
        "policies": {"shared": {"kind": "lora", "model": model}},
        "rollout": {"num_tasks": 12, "num_samples": 4, "max_reply_tokens": 12},
        "inference": {"engine": ENGINE, "max_num_seqs": 8, "num_replicas": 2},
        "cluster": {"device": "cpu"},
    }
    for name, values in sections.items():
        same = name == "policies" or (name == "env" and "id" in values)
        given[name] = values if same else {**given.get(name, {}), **values}
    given["rollout"]["num_workers"] = workers
    return parse_config(given)


def digest(episodes: Any) -> list[str]:
    """Every bit of every episode, in order."""
    from pettingllms.types import episode_line

    return [hashlib.sha256(episode_line(one).encode()).hexdigest() for one in episodes]


class Playing:
    """A team without learners in the Ray that runs."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.said: list[str] = []

    async def __aenter__(self) -> Any:
        from pettingllms.cluster.team import Team

        self.team = await Team.start(self.config, self.said.append, learning=False)
        return self.team

    async def __aexit__(self, *_: object) -> None:
        await self.team.stop()


async def whole(model: str) -> Any:
    """One team with four workers, of which 0, 1, 2 and 4 play; then faults."""
    playing = Playing(config_of(model, 4, cluster={"max_restarts": 1}))
    async with playing as team:
        pool, found = team._pool, {}
        slots = pool._slots
        for number in (0, 1, 2, 4):
            pool._slots, team._pool = slots[:number], pool if number else None
            found[f"{number} workers"] = await equal(team)
        expected = found["0 workers"]["linear"]
        found |= await faults(team, expected, playing.said)
    return found


async def equal(team: Any) -> Any:
    """Episodes of linear, tree and replay rollouts with their metrics, and the most replies that
    were in flight in an engine."""
    from pettingllms.algos import make_algorithm_for
    from pettingllms.runs.metrics import episode_metrics
    from pettingllms.runs.summary import summarize
    from pettingllms.types import Turn
    from pettingllms.types.stored_turns import StoredTurn

    config, found = team.config, {}
    (engines,) = team._engines.values()
    for one in engines.replicas:
        await one.actor.forget.remote()
    tasks, counts = list(team.env.tasks("train")), []
    episodes = await team.play(tasks, 3, deliver=counts.append)
    assert counts == list(range(1, len(episodes) + 1))
    found["most"] = [await one.actor.most.remote() for one in engines.replicas]
    turns = [turn for one in episodes for turn in one.turns]
    assert all(type(turn) is (StoredTurn if team._pool else Turn) for turn in turns)
    make_algorithm_for(config).assign(episodes)
    found["metrics"] = episode_metrics(episodes, config, summarize(episodes, config))
    if team._pool:
        assert all(turn._content._tokens is None for turn in turns)
        assert all(turn._content._texts is None for turn in turns)
    for turn in turns:
        turn.credit.advantage = None
    found["linear"] = digest(episodes)
    other = {"num_samples": 3, "continuation": "episode", "max_extra_tokens": 200}
    for type_ in ("tree", "replay"):
        update = {**other, "type": type_, "replay": "resampled", "keep_continuations": True}
        rollout = config.rollout.model_copy(update=update)
        found[type_] = digest(await team.play(tasks[:8], 4, rollout, 0.5))
    test = list(team.test_env.tasks("test"))[:3]
    seen = await team.play(test, 4, config.rollout.linear(2), env=team.test_env, first=100)
    found["test"] = digest(await team.apply(sorted_by_id, seen))
    return found


def sorted_by_id(episodes: Any) -> Any:
    """Runs where the content is, which shows that references reach other processes."""
    assert all(turn.text is not None for episode in episodes for turn in episode.turns)
    return sorted(episodes, key=lambda episode: episode.id)


async def environments(model: str) -> Any:
    """A scripted opponent, and a curriculum with simultaneous roles and a centralized critic."""
    from pettingllms.envs import make_env_at

    lora = {"kind": "lora", "model": model}
    cases: dict[str, dict[str, Any]] = {
        "scripted opponent": {
            "env": {"id": "tic_tac_toe-v1"},
            "policies": {"x": lora, "o": {"kind": "scripted", "player": "random"}},
            "roles": {"player_x": "x", "player_o": "o"},
            "algo": {"type": "at_grpo"},
        },
        "curriculum": {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "mappo"},
            "curriculum": {"key": "height", "levels": [4, 6]},
        },
    }
    found: dict[str, Any] = {}
    for name, sections in cases.items():
        found[name] = {}
        for workers in (0, 2):
            config = config_of(model, workers, **sections)
            async with Playing(config) as team:
                if config.curriculum:
                    team.env = make_env_at(config, 2)
                tasks = list(team.env.tasks("train"))[:12]
                turned = {tasks[3].id: dict.fromkeys(config.roles, "script:random")}
                episodes = await team.play(tasks, 3, assignments=turned)
                found[name][workers] = digest(episodes)
                if config.curriculum:
                    turns = [turn for one in episodes for turn in one.turns]
                    assert any(turn.centralized_ids is not None for turn in turns)
                    assert all(one.env.endswith("[height=6]") for one in episodes)
    return found


async def _while_playing(team: Any, action: Any) -> list[str]:
    """Play, and do something once some episodes have ended."""
    begun = asyncio.Event()
    tasks = list(team.env.tasks("train"))
    playing = asyncio.create_task(
        team.play(tasks, 3, deliver=lambda done: begun.set() if done >= 16 else None)
    )
    await asyncio.wait(
        [playing, asyncio.ensure_future(begun.wait())], return_when="FIRST_COMPLETED"
    )
    assert not playing.done(), "too fast for this test"
    await action()
    return digest(await playing)


async def _problem(work: Any) -> str:
    (error,) = await asyncio.gather(work, return_exceptions=True)
    return f"{type(error).__name__}: {error}"


async def faults(team: Any, expected: list[str], said: list[str]) -> Any:
    """A worker is killed while four play, then an engine, then sampling is stopped as by Ctrl-C,
    then the engine is killed once too often."""
    import ray

    found: dict[str, Any] = {}
    (engines,) = team._engines.values()
    tasks = list(team.env.tasks("train"))

    async def kill_worker() -> None:
        ray.kill(team._pool._slots[0].actor)

    async def kill_engine() -> None:
        ray.kill(engines.replicas[0].actor)

    found["worker"] = await _while_playing(team, kill_worker) == expected
    found["engine"] = await _while_playing(team, kill_engine) == expected
    found["restarts"] = [one.num_restarts for one in engines.replicas]
    stopped = asyncio.create_task(team.play(tasks, 3))
    await asyncio.sleep(0.3)
    stopped.cancel()
    (error,) = await asyncio.gather(stopped, return_exceptions=True)
    found["stopped"] = type(error).__name__
    await asyncio.sleep(1)
    found["in_flight"] = [await one.actor.now.remote() for one in engines.replicas]
    found["again"] = digest(await team.play(tasks, 3)) == expected
    found["said"] = list(said)
    found["problem"] = await _problem(_while_playing(team, kill_engine))
    return found


async def many(model: str) -> Any:
    """Ten thousand episodes in flight over four workers."""
    sections = {
        "rollout": {"num_tasks": 2500, "num_samples": 4, "max_reply_tokens": 4},
        "env": {"id": DIGITS, "num_roles": 1, "num_train": 2500},
        # More slots than episodes: each worker has a quarter of them, but not of the episodes.
        "inference": {"engine": CROWDED, "max_num_seqs": 12_000, "num_replicas": 1},
    }
    config = config_of(model, 4, **sections)
    async with Playing(config) as team:
        episodes = await team.play(list(team.env.tasks("train")), 3)
        (engines,) = team._engines.values()
        most = await engines.replicas[0].actor.most.remote()
    assert len({episode.id for episode in episodes}) == len(episodes)
    return {"episodes": len(episodes), "most": most}


async def programs(model: str) -> Any:
    """Workflows of each kind by any number of workers, with and without one address; then a worker
    is killed while programs run."""
    found: dict[str, Any] = {}
    for name, numbers, address in (
        ("Talk", (0, 1, 2, 4), ""),
        ("Talk", (0, 2), ONE),
        ("Blocking", (0, 2), ""),
        ("Commanded", (0, 2), ""),
    ):
        config = config_of(
            model,
            max(numbers),
            env={"id": f"{TALKS}:{name}"},
            algo={"type": "dr_mas"},
            rollout={"gateway_address": address, "num_samples": 2, "max_concurrent": 16},
        )
        playing = Playing(config)
        async with playing as team:
            tasks = list(team.env.tasks("train"))[: 4 if name == "Commanded" else 12]
            same = [await _by_number(team, number, tasks) for number in numbers]
            found.setdefault(name, []).extend(same)
            if address:
                found["killed"] = await _killed(team) == same[0]
                found["said"] = playing.said
    return found


async def _by_number(team: Any, number: int, tasks: Any) -> list[str]:
    """Episodes that this number of a team's workers plays; 0: the driver."""
    from pettingllms.cluster.workflows import driver_programs

    pool, slots = team._pool, team._pool._slots
    pool._slots = slots[:number]
    if not number:
        players = team._samplers.usual_players(team.env)
        team._pool, team._programs = None, await driver_programs(players, print, team._router)
    episodes = await team.play(tasks, 3)
    if not number:
        await team._programs.stop()
    team._pool, team._programs, pool._slots = pool, None, slots
    assert not [one.failure for one in episodes if one.failure]
    assert {len(one.turns) for one in episodes} == {3}
    assert any(turn.links.extends is not None for one in episodes for turn in one.turns)
    return digest(episodes)


async def _killed(team: Any) -> list[str]:
    """Kill a worker once its programs call the engines."""
    import ray

    playing = asyncio.create_task(team.play(list(team.env.tasks("train")), 3))
    (engines,) = team._engines.values()
    async with asyncio.timeout(60):
        while not sum([await one.actor.now.remote() for one in engines.replicas]):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    ray.kill(team._pool._slots[0].actor)
    return digest(await playing)


def main(scenario: str, model: str, result: str) -> None:
    from pettingllms.cluster.start import ray_running
    from pettingllms.config import ClusterConfig

    with ray_running(ClusterConfig()):
        found = asyncio.run(globals()[scenario](model))
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    signal.alarm(600)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*sys.argv[1:])
