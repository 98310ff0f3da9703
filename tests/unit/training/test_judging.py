"""The judges of a run: by which environment's rule they judge."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.team import Team
from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env_for
from pettingllms.league import SCRIPT, Assignment, make_co_players, rotations
from pettingllms.rollouts import Player, Worker, in_order
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.training.collect import EPISODES_FILE, collect
from pettingllms.training.judging import RolloutInputs, make_run_judges
from pettingllms.types import Episode, Rewards, Scored, Step, Submission, Task, read_episodes


def level(number: float) -> Any:
    return SimpleNamespace(rule=lambda submission, part: Scored(number))


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
    judges = make_run_judges(config, lambda: now[0], lambda _: None, None)  # type: ignore[arg-type]

    def judged(env: Any = None) -> float:
        step = Step(None, (), Rewards(), submissions={"author": Submission("Q", "A")})
        episode = Episode("t/0", "story-v1", Task("t"), 0, [], [step], last=0)
        asyncio.run(judges.judge([episode], RolloutInputs([], 0, env=env), by_score=False))
        return step.rewards.agent["author"].value

    assert judged() == 1.0
    now[0] = level(2.0)
    assert judged() == 2.0, "a curriculum went on"
    assert judged(level(3.0)) == 3.0, "tests are on the last level"
    assert judged() == 2.0


LEARNER = "noisy"
TeamRewards = dict[str, list[float]]
"""By task: the team rewards of its episodes."""
CO_PLAYERS = {"co_players": {"phases": [{"members": {"script:contrary": 1.0}}]}}


@pytest.mark.parametrize(
    "sections", [CO_PLAYERS, {"rollout": {"rotate_roles": True, "num_samples": 2}}]
)
def test_a_bench_gives_the_rewards_of_a_rollout_without_engines(
    sections: dict[str, Any], tmp_path: Path
) -> None:
    config = held_to("hollow", sections)
    env = make_env_for(config.env)
    tasks = env.tasks("train")[: config.rollout.num_tasks]
    assignments = (
        make_co_players(config.co_players, config.roles, config.policies, config.seed).assignments(
            1, tasks
        )
        if config.co_players
        else rotations(config.roles, tasks, 0)
    )
    collected = verdicts_of_rollout(config, tmp_path)
    assert verdicts_of_bench(config, assignments) == collected
    assert len({reward for some in collected.values() for reward in some}) > 1, "else any would do"


def test_a_reference_is_sampled_with_separate_seeds(tmp_path: Path) -> None:
    """One that plays just as the learner does is beaten now and then, in every play of a task."""
    config = held_to("noisy", {"rollout": {"num_tasks": 16, "num_samples": 3}})
    collected = verdicts_of_rollout(config, tmp_path)
    assert verdicts_of_bench(config, {}) == collected
    for number in range(3):
        found = [collected[task][number] for task in collected]
        assert {0.0, 1.0} <= set(found), f"play {number} met itself"


def test_a_team_plays_under_the_numbers_that_it_is_told() -> None:
    config = parse_config(
        {
            "env": {"id": "story-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "scripted", "player": LEARNER}},
        }
    )
    team = Team(config, print)
    tasks, rollout = team.env.tasks("train")[:4], config.rollout.linear(2)

    def said(first: int) -> dict[str, list[str]]:
        played = asyncio.run(team.play(tasks, 0, rollout, first=first))
        return {episode.id: [turn.text for turn in episode.turns] for episode in played}

    before, after = said(0), said(1)
    assert [name.rpartition("/")[2] for name in after] == ["1", "2"] * 4
    assert all(before[name] == after[name] for name in before if name.endswith("/1"))


def held_to(reference: str, sections: dict[str, Any]) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "story-v1"},
            "algo": {"type": "grpo"},
            "policies": {
                "p": {"kind": "full", "model": "m"},
                "ref": {"kind": "scripted", "player": reference},
                "mate": {"kind": "scripted", "player": "author"},
            },
            "roles": {"writer_1": "p", "writer_2": "mate"},
            "judge": {"by": "rule", "against": "reference", "reference": "ref"},
            "rollout": {"num_tasks": 4, "num_samples": 2},
            **sections,
        }
    )


def verdicts_of_rollout(config: RunConfig, folder: Path) -> TeamRewards:
    collect(config, folder, stand_in=LEARNER)
    return rewards_by_task(read_episodes(folder / EPISODES_FILE))


def verdicts_of_bench(config: RunConfig, assignments: Mapping[str, Assignment]) -> TeamRewards:
    """The rewards by a run's judges, with scripted players in place of engines."""
    env = make_env_for(config.env)
    tasks = env.tasks("train")[: config.rollout.num_tasks]

    def player(name: str) -> Player:
        scripted = getattr(config.policies.get(name), "player", LEARNER)
        player = name.removeprefix(SCRIPT) if name.startswith(SCRIPT) else scripted
        return scripted_player(env, player, name)

    async def play(
        tasks: Any, seed: int, rollout: Any, env: Any, assignments: Any, first: int = 0
    ) -> list[Episode]:
        def players(names: Any) -> Any:
            return {role: player(name) for role, name in names.items()}

        others = {id_: players(names) for id_, names in assignments.items()}
        found: list[Episode] = []
        worker = Worker(env, players(config.roles), rollout, config.reward, others)
        await worker.run(tasks, seed, found.append, first)
        return in_order(found, tasks)

    async def judged() -> list[Episode]:
        episodes = await play(tasks, config.seed, config.rollout, env, assignments)
        judges = make_run_judges(config, lambda: env, lambda _: None, play)  # type: ignore[arg-type]
        await judges.judge(
            episodes, RolloutInputs(tasks, config.seed, assignments, env), by_score=False
        )
        return episodes

    return rewards_by_task(asyncio.run(judged()))


def rewards_by_task(episodes: Iterable[Episode]) -> TeamRewards:
    found: TeamRewards = {}
    for episode in episodes:
        team = [step.rewards.team for step in episode.steps]
        found.setdefault(episode.task.id, []).extend(
            one.value for one in team if isinstance(one, Scored)
        )
    return found
