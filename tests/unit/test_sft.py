"""What a policy is taught: scripts by their text, policies by the ids that they sampled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.models import make_tiny
from pettingllms.models.texts import texts_of
from pettingllms.sft import _batches, items_by_policy, source_episodes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = texts_of([make_env("plan_path-v1", terse=True)], 1)
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return make_tiny(folder, texts=texts, hidden_size=64, vocab_size=320, symbols=True)


def config(model: Path, **sft: Any) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "plan_path-v1", "terse": True, "max_rounds": 1},
            "algo": {"type": "grpo"},
            "policies": {
                "planner": {"kind": "full", "model": str(model)},
                "checker": {"kind": "full", "model": str(model)},
            },
            "roles": {"planner": "planner", "checker": "checker"},
            "sft": {"player": "bfs", "num_episodes": 6, **sft},
        }
    )


def test_each_policy_is_taught_its_own_roles_replies_as_text_and_their_end(model: Path) -> None:
    run = config(model)
    episodes = source_episodes(run)
    assert len(episodes) == 6
    items, renderer = items_by_policy(run, episodes), ChatRenderer(model)
    assert {name: len(some) for name, some in items.items()} == {"planner": 6, "checker": 6}
    for name, some in items.items():
        turns = [turn for e in episodes for turn in e.trunk_turns() if turn.role == name]
        for turn, item in zip(turns, some, strict=True):
            assert renderer.decode(item.response_ids) == turn.text
            assert item.response_ids[-1] == renderer.encode("")[-1]
            assert item.prompt_ids.tolist() == renderer.render(turn.messages).tolist()
            assert item.advantage == 1.0


def test_what_a_policy_sampled_is_never_tokenised_again(model: Path) -> None:
    run = config(model)
    episodes = source_episodes(run)
    turn = episodes[0].trunk_turns()[0]
    turn.response_ids = np.array([7, 7, 7], np.int32)
    turn.logprobs = np.zeros(3, np.float32)
    item = items_by_policy(run, episodes)["planner"][0]
    assert item.response_ids is turn.response_ids
    assert item.prompt_ids is turn.prompt_ids


def test_only_roles_that_reached_their_aim_teach_if_asked(model: Path) -> None:
    run = config(model, only_success=True)
    episodes = source_episodes(run)
    assert len(items_by_policy(run, episodes)["planner"]) == 6
    episodes[0].success = {"planner": False, "checker": True}
    items = items_by_policy(run, episodes)
    assert (len(items["planner"]), len(items["checker"])) == (5, 6)


def test_a_run_without_a_teacher_or_with_two_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="no teacher"):
        source_episodes(config(model, player=""))
    with pytest.raises(ConfigError, match="both set"):
        source_episodes(config(model, episodes=["somewhere.jsonl"]))


def test_every_item_comes_once_an_epoch(model: Path) -> None:
    run = config(model, num_turns=2)
    items = items_by_policy(run, source_episodes(run))["planner"]
    batches = _batches(items, run, "planner")
    for _ in range(2):
        seen = [id(item) for _ in range(3) for item in next(batches)]
        assert sorted(seen) == sorted(map(id, items))
