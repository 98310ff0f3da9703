"""A batch whose log-probs are not the learner's stops the run before weights change."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from plays import overwrite

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("peft")

from local import in_this_process

from pettingllms.algos import make_algorithm_for
from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import StaleWeightsError
from pettingllms.models import make_tiny

ONCE = {"num_minibatches": 1, "num_epochs": 1}
OFTEN = {"num_minibatches": 2, "num_epochs": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=["1 2 3"] * 9, hidden_size=64)


def config_of(model: Path, learner: dict[str, int]) -> RunConfig:
    return parse_config(
        {
            "seed": 5,
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "rae"},
            "policies": {"p": {"kind": "full", "model": str(model), "lr": 1e-2}},
            "roles": {"player_x": "p", "player_o": "p"},
            "rollout": {"num_tasks": 4, "max_reply_tokens": 2},
            "inference": {"engine": "torch", "max_model_len": 64},
            "learner": learner,
        }
    )


async def learn_once(config: RunConfig, off: float) -> tuple[str, bool]:
    """What stopped a step whose sampled log-probs were off, and whether weights had moved."""
    from pettingllms.cluster.team import Team

    team = await Team.start(config, print)
    await team.load({}, {})
    episodes = await team.play(team.env.tasks("train")[:4], 1)
    make_algorithm_for(config).assign(episodes)
    for at, turn in enumerate(turn for episode in episodes for turn in episode.turns):
        turn.credit.advantage = float(at % 2) - 0.5
        overwrite(turn, logprobs=turn.logprobs + off)
    learners: Any = team._learners["full:p"]
    before = (await learners.files("p"))[1]
    said = ""
    try:
        await team.learn(episodes, 1)
    except StaleWeightsError as error:
        said = str(error)
    state = await learners.call("state", "p")
    moved = (await learners.files("p"))[1] != before
    assert moved == (len(state["optimizer.safetensors"]) > 1000)
    await team.stop()
    return said, moved


@pytest.mark.parametrize("learner", [ONCE, OFTEN])
def test_mismatch_stops_before_the_first_optimizer_step(
    model: Path, learner: dict[str, int]
) -> None:
    with in_this_process():
        said, moved = asyncio.run(learn_once(config_of(model, learner), 0.1))
        assert not moved, "weights moved before the run stopped"
        assert "differ on what 'p' just sampled by 0.1 per token" in said
        assert asyncio.run(learn_once(config_of(model, learner), 0.0)) == ("", True)
