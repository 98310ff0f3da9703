"""The judges of a run: by which environment's rule they judge."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.judging import Judges, Played
from pettingllms.collect import EPISODES_FILE, collect
from pettingllms.config import parse_config
from pettingllms.envs import make_env_for
from pettingllms.inference.scripted import scripted_seat
from pettingllms.league import make_company, rotations
from pettingllms.rollout import Worker, in_order
from pettingllms.types import Episode, Exhibit, Rewards, Scored, Step, Task, read_episodes


def level(number: float) -> Any:
    return SimpleNamespace(rule=lambda exhibit, part: Scored(number))


def test_the_rule_is_that_of_the_level_that_was_played() -> None:
    config = parse_config(
        {
            "env": {"id": "story-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            "judge": {"by": "rule", "against": "score"},
        }
    )
    now = [level(1.0)]
    judges = Judges(config, lambda: now[0], lambda _: None, None)  # type: ignore[arg-type]

    def judged(env: Any = None) -> float:
        step = Step(None, (), Rewards(), exhibits={"author": Exhibit("Q", "A")})
        episode = Episode("t/0", "story-v1", Task("t"), 0, [], [step], last=0)
        asyncio.run(judges.judge([episode], Played([], 0, env=env), by_score=False))
        return step.rewards.agent["author"].value

    assert judged() == 1.0
    now[0] = level(2.0)
    assert judged() == 2.0, "a curriculum went on"
    assert judged(level(3.0)) == 3.0, "tests are on the last level"
    assert judged() == 2.0


SCRIPTS = {"p": "careless", "ref": "hollow", "mate": "author"}
COMPANY = {"company": {"phases": [{"members": {"script:contrary": 1.0}}]}}


@pytest.mark.parametrize("sections", [COMPANY, {"rollout": {"rotate": True, "num_samples": 2}}])
def test_a_bench_pays_what_a_rollout_without_engines_pays(
    sections: dict[str, Any], tmp_path: Path
) -> None:
    config = parse_config(
        {
            "env": {"id": "story-v1"},
            "algo": {"type": "grpo"},
            "policies": {
                "p": {"kind": "full", "model": "m"},
                "ref": {"kind": "scripted", "player": SCRIPTS["ref"]},
                "mate": {"kind": "scripted", "player": SCRIPTS["mate"]},
            },
            "roles": {"writer_1": "p", "writer_2": "mate"},
            "judge": {"by": "rule", "against": "reference", "reference": "ref"},
            "rollout": {"num_tasks": 4, "num_samples": 2},
            **sections,
        }
    )
    env = make_env_for(config.env)
    tasks = env.tasks("train")[: config.rollout.num_tasks]
    lineups = (
        make_company(config, {}).lineups(1, tasks)
        if config.company.is_on
        else rotations(config.roles, tasks, 0)
    )

    async def play(tasks: Any, seed: int, rollout: Any, env: Any, lineups: Any) -> list[Episode]:
        def seats(names: Any) -> Any:
            return {
                role: scripted_seat(env, SCRIPTS.get(name, name.removeprefix("script:")), name)
                for role, name in names.items()
            }

        others = {id_: seats(names) for id_, names in lineups.items()}
        found: list[Episode] = []
        worker = Worker(env, seats(config.roles), rollout, config.reward, others)
        await worker.run(tasks, seed, found.append)
        return in_order(found, tasks)

    async def judged() -> list[Episode]:
        episodes = await play(tasks, config.seed, config.rollout, env, lineups)
        judges = Judges(config, lambda: env, lambda _: None, play)  # type: ignore[arg-type]
        await judges.judge(episodes, Played(tasks, config.seed, lineups, env), by_score=False)
        return episodes

    collect(config, tmp_path, stand_in=SCRIPTS["p"])
    collected = list(read_episodes(tmp_path / EPISODES_FILE))
    trained = asyncio.run(judged())
    paid = [[step.rewards.team for step in episode.steps] for episode in trained]
    assert paid == [[step.rewards.team for step in episode.steps] for episode in collected]
    verdicts = {one.value for some in paid for one in some if isinstance(one, Scored)}
    assert len(verdicts) > 1, "else any reference would do"
