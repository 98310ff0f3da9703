"""A program's run yields an ordinary episode for algorithms and the training loop."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import Broken, Commanded, Paying, Plain, Two, play
from toys import AnsweringSampler

from pettingllms.algos.grpo import Grpo
from pettingllms.config import RewardConfig, RolloutConfig, parse_config
from pettingllms.envs import Workflow
from pettingllms.envs.workflow import WorkflowConfig
from pettingllms.errors import ConfigError, ForkError
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.programs import ProgramRollout, ProgramThread
from pettingllms.rollouts import Player, Worker
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.runtime.in_flight import InFlight
from pettingllms.types import (
    Episode,
    Failed,
    PromptTooLong,
    Rewards,
    SampleRequest,
    Scored,
    episode_from_json,
    episode_to_json,
)

FILE = Path(__file__).parents[2] / "helpers" / "programs.py"


@pytest.mark.parametrize("kind", [Two, Plain])
def test_a_run_is_an_episode_that_algorithms_accept(kind: type[Workflow[Any]]) -> None:
    episodes = play(kind())
    assert [episode.id for episode in episodes] == [
        "train-0/0", "train-0/1", "train-1/0", "train-1/1",
    ]  # fmt: skip
    for episode in episodes:
        assert episode.failure is None
        assert [turn.role for turn in episode.turns] == ["a", "b", "b"]
        assert [turn.links.extends for turn in episode.turns] == [None, None, 1]
        assert [turn.policy for turn in episode.turns] == ["p_a", "p_b", "p_b"]
        assert [step.turns for step in episode.steps] == [(0,), (1,), (2,)]
        assert isinstance(episode.steps[-1].rewards.team, Scored)
        assert episode.success == {"a": True, "b": True}
        back = episode_from_json(episode_to_json(episode))
        assert [turn.links.extends for turn in back.turns] == [None, None, 1]
    one, other = episodes[:2]
    assert one.turns[0].text != other.turns[0].text, "samples of one task differ by chance"
    groups = Grpo().assign(episodes)
    assert len(groups) == 2
    assert all(turn.credit.advantage is not None for e in episodes for turn in e.turns)


def test_the_same_seed_gives_the_same_episodes() -> None:
    first, second = (
        [turn.text for episode in play(Two()) for turn in episode.turns] for _ in range(2)
    )
    assert first == second


def test_a_command_finds_its_roles_in_its_environment() -> None:
    (episode,) = play(Commanded(), num_tasks=1, num_samples=1)
    assert episode.failure is None
    assert [turn.role for turn in episode.turns] == ["a", "b"]
    assert episode.turns[0].messages[0].content == "train-0"


def test_programs_post_rewards_of_three_levels() -> None:
    (episode,) = play(Paying(), num_tasks=1, num_samples=1)
    assert episode.failure is None
    first, second = (step.rewards for step in episode.steps)
    assert first.process == {"a": Scored(0.25)}
    assert second.agent == {"b": Scored(0.5)}
    assert second.team == Scored(1.125)


def test_a_broken_program_fails_its_episode_and_no_other() -> None:
    ended = threading.Event()

    def answer(request: SampleRequest, number: int) -> str:
        return "fine"

    class Slow(AnsweringSampler):
        async def sample(self, request: SampleRequest) -> Any:
            if request.task_id == "leaves" and request.role == "b":
                Broken.held.set()
                await asyncio.sleep(1)
                ended.set()
            return await super().sample(request)

    async def run() -> dict[str, Episode]:
        workflow = Broken()
        players = {r: Player(f"p_{r}", Slow(answer), ByteRenderer()) for r in workflow.roles}
        config = RolloutConfig(type="linear", num_samples=1)
        gateway, thread = await Gateway.start(lambda _: None), ProgramThread()
        thread.start()
        worker = Worker(
            workflow,
            players,
            config,
            RewardConfig(),
            run_workflow=ProgramRollout(gateway, thread, config),
        )
        episodes: list[Episode] = []
        await worker.run(workflow.tasks("train"), 5, episodes.append)
        assert not len(gateway.keys)
        await asyncio.to_thread(ended.wait, 10)
        await gateway.stop()
        thread.stop()
        return {episode.task.id: episode for episode in episodes}

    found = asyncio.run(run())
    reasons = {name: str(e.failure and e.failure.reason) for name, e in found.items()}
    assert "raised RuntimeError: out of luck" in reasons["raises"]
    assert "no reply from any role" in reasons["silent"]
    assert "no reward, neither" in reasons["unpaid"]
    assert "no such role: zoe" in reasons["stray"]
    assert "no luck" in reasons["exits"]
    assert "calls were served" in reasons["leaves"]
    assert all(turn.credit.failure for episode in found.values() for turn in episode.turns)


def test_limits_of_the_rollout_cut_a_program() -> None:
    (episode,) = play(Two(), 1, num_samples=1, max_steps=2)
    assert episode.failure is None
    assert episode.limit == "cut after 2 calls (rollout.max_steps)"
    assert [step.turns for step in episode.steps] == [(0,), (1,), ()]
    assert episode.steps[-1].rewards == Rewards(team=Scored(0.0))
    assert episode.success == {"a": False, "b": False}
    (episode,) = play(Two(), 1, num_samples=1, max_episode_tokens=5)
    assert "rollout.max_episode_tokens" in episode.limit
    (episode,) = play(Two(), 1, num_samples=1, max_steps=2, on_limit="exclude")
    assert episode.failure == Failed("cut after 2 calls (rollout.max_steps)", "limit")
    assert all(turn.credit.failure for turn in episode.turns)


@pytest.mark.parametrize("missing", [0, 1, 4])
def test_a_last_reply_cut_by_a_limit_earns_the_limit_reward(missing: int) -> None:
    (whole,) = play(Two(), 1, num_samples=1)
    limit = whole.num_tokens - missing
    (episode,) = play(Two(), 1, num_samples=1, max_episode_tokens=limit)
    if not missing:
        assert episode.failure is None
        assert episode.success == whole.success
        return
    assert episode.limit == f"cut after {limit} tokens (rollout.max_episode_tokens)"
    assert [step.turns for step in episode.steps] == [(0,), (1,), (2,)]
    assert [turn.links.step for turn in episode.turns] == [0, 1, 2]
    assert all(turn.credit.failure is None and turn.links.last == 2 for turn in episode.turns)
    assert not any(episode.success.values())


@pytest.mark.parametrize("on_limit", ["reward", "exclude", "bootstrap"])
def test_a_reply_cut_by_the_context_length_ends_the_episode(on_limit: str) -> None:
    class Model(AnsweringSampler):
        async def sample(self, request: SampleRequest) -> Any:
            (sample,) = await super().sample(request)
            return [replace(sample, limit="the model ends here", finish="length")]

    workflow = Two(WorkflowConfig(id=Two.id, limit_reward=-1.0))
    (episode,) = play(workflow, 1, num_samples=1, sampler=Model, on_limit=on_limit)
    (turn,) = episode.turns
    assert turn.limit == "the model ends here"
    if on_limit == "exclude":
        assert episode.failure is not None
        assert turn.credit.failure == Failed("the model ends here", "limit")
        return
    assert episode.failure is None
    assert episode.limit == "the model ends here"
    assert turn.credit.failure is None
    assert turn.links.step == turn.links.last == episode.last == 0
    rewards = Rewards(team=Scored(-1.0)) if on_limit == "reward" else Rewards()
    assert episode.steps[0].rewards == rewards


def test_a_program_that_fails_on_a_long_prompt_is_cut() -> None:
    class Model(AnsweringSampler):
        async def sample(self, request: SampleRequest) -> Any:
            if len(self.requests) == 2:
                return [PromptTooLong("the prompt is too long", "limit")]
            return await super().sample(request)

    (episode,) = play(Two(), 1, num_samples=1, sampler=Model)
    assert episode.failure is None
    assert episode.limit == "the prompt is too long"
    assert [turn.credit.failure is None for turn in episode.turns] == [True, True, False]
    assert episode.steps[-1].rewards == Rewards(team=Scored(0.0))


def test_algorithms_with_needs_beyond_workflows_are_rejected_at_start() -> None:
    base = {
        "env": {"id": f"{FILE}:Two"},
        "policies": {"p": {"kind": "lora", "model": "m"}},
    }
    for algo in ("at_grpo", "counterfactual", "remove_role"):
        with pytest.raises(ConfigError, match="needs an environment that can fork"):
            parse_config({**base, "algo": {"type": algo}})
    with pytest.raises(ConfigError, match="needs centralized observations"):
        parse_config({**base, "algo": {"type": "mappo"}})
    for algo in ("grpo", "dr_mas", "rloo", "magrpo", "reinforce_pp", "rae", "ppo", "vdn", "qmix"):
        assert parse_config({**base, "algo": {"type": algo}}).roles == {"a": "p", "b": "p"}
    with pytest.raises(ConfigError, match="no solo form"):
        parse_config({**base, "env": {"id": f"{FILE}:Two", "solo": True}, "algo": {"type": "grpo"}})
    guided = {**base, "env": {"id": f"{FILE}:Two", "guided": True}, "algo": {"type": "grpo"}}
    with pytest.raises(ConfigError, match="inference.guided = true"):
        parse_config(guided)
    assert parse_config({**guided, "inference": {"guided": True}}).env.guided  # type: ignore[attr-defined]
    with pytest.raises(ForkError, match="pettingllms train"):
        Two().reset(Two().tasks("train")[0], 0)


def test_the_loop_trains_a_workflow_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from fakes import train_with_fakes

    config = parse_config(
        {
            "env": {"id": f"{FILE}:Two"},
            "algo": {"type": "dr_mas"},
            "policies": {n: {"kind": "lora", "model": "m"} for n in ("one", "two", "still")[:2]},
            "roles": {"a": "one", "b": "two"},
            "rollout": {"num_tasks": 2, "num_samples": 2},
            "train": {"num_steps": 2, "save_every": 2, "eval_every": 2},
        }
    )

    def answer(request: SampleRequest, number: int, weights: int) -> str:
        return f"{request.role}{request.seed % 97}w{weights}"

    run = train_with_fakes(config, tmp_path / "run", answer)
    assert run.weights == {"one": 2, "two": 2}
    assert run.watched.metrics[2]["roles"]["b"]["num_turns"] == 8
    assert run.watched.metrics[2]["rollout"]["failed_episodes"] == 0
    assert run.watched.metrics[2]["roles"]["a"]["eval_success"] == 1


def test_a_programs_clock_stops_while_its_calls_wait_for_an_engine() -> None:
    """12 calls of 0.2 s one after another, and each of the 4 programs may take 1.5 s."""
    places = InFlight(1)

    class Busy(AnsweringSampler):
        async def sample(self, request: SampleRequest) -> Any:
            async with places.place(request.num_samples):
                await asyncio.sleep(0.2)
                return await super().sample(request)

    workflow = Two(WorkflowConfig(id=Two.id, seconds=1.5))
    episodes = play(workflow, num_tasks=4, sampler=Busy, num_samples=1)
    assert [episode.failure for episode in episodes] == [None] * 4
