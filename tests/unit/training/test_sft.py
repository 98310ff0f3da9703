"""What a policy is taught: scripts by their text, policies by the ids that they sampled."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plays import overwrite

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import SavesFiles, Watched, in_memory
from toys import Relay

from pettingllms.cli.train import resume_run
from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.models import make_tiny
from pettingllms.models.tiny import texts_of
from pettingllms.policies import plan_critics
from pettingllms.runs.folder import RunFolder
from pettingllms.training.sft import _sft, _supervised, batches_of, items_by_policy, source_episodes


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
        turns = [turn for e in episodes for turn in e.main_turns() if turn.role == name]
        for turn, item in zip(turns, some, strict=True):
            assert renderer.decode(item.response_ids) == turn.text
            assert item.response_ids[-1] == renderer.encode("")[-1]
            assert item.prompt_ids.tolist() == renderer.render(turn.messages).tolist()
            assert item.advantage == 1.0


def test_one_policy_is_taught_the_solo_form_too(model: Path) -> None:
    """A team and a single role can then start from the same weights."""
    policies = {"shared": {"kind": "full", "model": str(model)}}
    roles = dict.fromkeys(("planner", "checker"), "shared")
    data = config(model, with_solo=True).model_dump() | {"policies": policies, "roles": roles}
    run = parse_config(data)
    (items,) = items_by_policy(run, source_episodes(run)).values()
    renderer = ChatRenderer(model)
    prompts = [renderer.decode(item.prompt_ids) for item in items]
    asked = {role: sum(role in text for text in prompts) for role in (*roles, "solver")}
    assert asked == {"planner": 6, "checker": 6, "solver": 6}


def test_a_solo_form_for_two_policies_is_rejected(model: Path) -> None:
    run = config(model, with_solo=True)
    with pytest.raises(ConfigError, match="exactly one policy that learns, but the config has"):
        source_episodes(run)


def test_what_a_policy_sampled_is_never_tokenised_again(model: Path) -> None:
    run = config(model)
    episodes = source_episodes(run)
    turn = episodes[0].main_turns()[0]
    overwrite(turn, prompt_ids=ChatRenderer(model).render(turn.messages))
    overwrite(turn, response_ids=np.array([7, 7, 7], np.int32))
    overwrite(turn, logprobs=np.zeros(3, np.float32))
    item = items_by_policy(run, episodes)["planner"][0]
    assert item.response_ids is turn.response_ids
    assert item.prompt_ids.tolist() == turn.prompt_ids.tolist()


def test_what_a_program_showed_beside_its_messages_is_taught_too(model: Path) -> None:
    """Its tools are in the prompt and not among the messages."""
    run, renderer = config(model), ChatRenderer(model)
    episodes = source_episodes(run)
    turn = episodes[0].main_turns()[0]
    plain = renderer.render(turn.messages)
    overwrite(
        turn, prompt_ids=np.concatenate([renderer.encode(turn.messages[0].content)[:3], plain])
    )
    overwrite(turn, response_ids=renderer.encode(turn.text))
    overwrite(turn, logprobs=np.zeros(len(turn.response_ids), np.float32))
    item = items_by_policy(run, episodes)[turn.role][0]
    assert item.prompt_ids.tolist() == turn.prompt_ids.tolist() != plain.tolist()
    assert item.response_ids.tolist() == turn.response_ids.tolist()
    overwrite(turn, prompt_ids=turn.prompt_ids[:4])  # of another tokenizer
    item = items_by_policy(run, episodes)[turn.role][0]
    assert item.prompt_ids.tolist() == plain.tolist()


def test_ids_of_another_tokenizer_are_not_this_policys_whatever_it_is_called(model: Path) -> None:
    run = config(model)
    episodes = source_episodes(run)
    turn = episodes[0].main_turns()[0]  # its ids are bytes
    overwrite(turn, logprobs=np.zeros(turn.num_tokens, np.float32))
    item, renderer = items_by_policy(run, episodes)["planner"][0], ChatRenderer(model)
    assert renderer.decode(item.response_ids) == turn.text
    assert item.prompt_ids.tolist() == renderer.render(turn.messages).tolist()


def test_a_reply_that_was_cut_teaches_no_end(model: Path) -> None:
    run = config(model)
    episodes = source_episodes(run)
    turn = episodes[0].main_turns()[0]
    overwrite(turn, finish="length")
    item, renderer = items_by_policy(run, episodes)["planner"][0], ChatRenderer(model)
    assert item.response_ids.tolist() == renderer.encode(turn.text)[:-1].tolist()


def test_a_script_is_not_cut_and_what_could_not_be_sampled_is_not_taught(model: Path) -> None:
    """A limit of the policy's tokens is none of a script's bytes."""
    rollout = config(model).rollout.model_copy(update={"max_reply_tokens": 1})
    run = config(model).model_copy(update={"rollout": rollout})
    episodes = source_episodes(run)
    assert [t.text for e in episodes for t in e.main_turns()] == [
        t.text for e in source_episodes(config(model)) for t in e.main_turns()
    ]
    with pytest.raises(ConfigError, match=r"max_reply_tokens is 1; set it to \d+"):
        items_by_policy(run, episodes)


def test_policies_are_taught_by_likelihood_alone(model: Path) -> None:
    options = {
        "loss": {"kl_coef": 0.1, "entropy_coef": 0.1},
        "algo": {"type": "mappo"},
        "learner": {"decay_tokens": 2, "num_minibatches": 3},
    }
    run = parse_config(
        {**config(model, lr=0.5, num_steps=8).model_dump(exclude={"critic"}), **options}
    )
    taught = _supervised(run)
    assert (taught.loss.type, taught.loss.kl_coef, taught.loss.entropy_coef) == ("plain", 0, 0)
    rates = [taught.learner.rate(100, step, 10**9) for step in (1, 8, 9)]
    assert rates == pytest.approx([1, 0.2125, 0.1])
    assert taught.learner.num_minibatches == 1
    assert taught.critic is None
    assert plan_critics(run)
    assert not plan_critics(taught)
    assert {policy.lr for policy in taught.policies.values()} == {0.5}


class Taught(SavesFiles):
    """A team of learners that remember what they were given."""

    def __init__(self, skipped: float = 0.0) -> None:
        self.begun: dict[str, Any] = {}
        self.steps: list[tuple[str, int]] = []
        self.skipped = skipped

    async def load_learners(self, saved: Any) -> None:
        self.begun = saved

    async def learn_units(self, policy: str, items: Any, step: int) -> dict[str, float]:
        self.steps.append((policy, step))
        return {"loss": 1.0, "skipped_updates": self.skipped}

    def files_of(self, policy: str) -> dict[str, bytes]:
        return {"model.safetensors": policy.encode()}

    async def stop(self) -> None: ...


def taught(
    run: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch, team: Taught
) -> tuple[Taught, list[str]]:
    from pettingllms.cluster.team import Team

    async def start(*_: Any, **__: Any) -> Taught:
        return team

    monkeypatch.setattr(Team, "start", start)
    place, watched = RunFolder(folder), Watched()
    place.create(run, supervised=True)
    items = items_by_policy(run, source_episodes(run))
    asyncio.run(_sft(_supervised(run), items, place, watched))
    return team, watched.said


def test_policies_are_taught_side_by_side_and_begin_with_what_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(model, num_steps=2)
    first, _ = taught(run, tmp_path / "first", monkeypatch, Taught())
    assert first.begun == {}
    assert sorted(first.steps) == [(p, n) for p in ("checker", "planner") for n in (1, 2)]
    train = run.train.model_copy(update={"init_from": str(tmp_path / "first")})
    second, _ = taught(
        run.model_copy(update={"train": train}), tmp_path / "second", monkeypatch, Taught()
    )
    begun = {policy: in_memory(files) for policy, files in second.begun.items()}
    assert begun == {p: {"model.safetensors": p.encode()} for p in ("planner", "checker")}


def test_a_step_that_was_skipped_is_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, said = taught(config(model, num_steps=1), tmp_path / "run", monkeypatch, Taught(1.0))
    assert "step 1 of 'planner' was skipped: its gradient is not finite" in said


def test_what_sft_wrote_is_not_resumed_as_a_run_of_train(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(model, num_steps=1)
    taught(run, tmp_path / "run", monkeypatch, Taught())
    with pytest.raises(ConfigError, match=r"train\.init_from="):
        resume_run(tmp_path / "run")
    with pytest.raises(ConfigError) as refused:
        RunFolder(tmp_path / "run").create(run, supervised=True)
    assert "resume" not in str(refused.value)


def test_only_roles_that_reached_their_aim_teach_if_asked(model: Path) -> None:
    run = config(model, only_success=True)
    episodes = source_episodes(run)
    assert len(items_by_policy(run, episodes)["planner"]) == 6
    episodes[0].success = {"planner": False, "checker": True}
    items = items_by_policy(run, episodes)
    assert (len(items["planner"]), len(items["checker"])) == (5, 6)


def test_no_policy_is_trained_on_what_others_wrote_in_its_own_episodes(model: Path) -> None:
    run = config(model)
    episodes = source_episodes(run)
    for episode, author in zip(episodes, ("script:bfs", "planner@100", "checker"), strict=False):
        first = next(turn for turn in episode.main_turns() if turn.role == "planner")
        overwrite(first, policy=author)
    items = items_by_policy(run, episodes)
    assert (len(items["planner"]), len(items["checker"])) == (3, 7), "rotated: the checker's own"
    for episode in episodes:
        for turn in episode.turns:
            overwrite(turn, policy="teacher")
    items = items_by_policy(run, episodes)
    assert (len(items["planner"]), len(items["checker"])) == (6, 6), "a teacher's plays, by role"


def test_a_policy_that_changes_roles_is_trained_in_every_role() -> None:
    run = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {
                "learner": {"kind": "full", "model": "m"},
                "rival": {"kind": "scripted", "player": "random"},
            },
            "roles": {"player_x": "learner", "player_o": "rival"},
            "rollout": {"rotate_roles": True},
            "sft": {"player": "random", "num_episodes": 4},
        }
    )
    turns = [turn for episode in source_episodes(run) for turn in episode.main_turns()]
    assert {turn.role for turn in turns if turn.policy == "learner"} == {"player_x", "player_o"}


def test_a_run_without_a_teacher_or_with_two_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="no episodes to learn from"):
        source_episodes(config(model, player=""))
    with pytest.raises(ConfigError, match="both set"):
        source_episodes(config(model, episodes=["somewhere.jsonl"]))


class Slow(Relay):
    """Each step takes a random time, on a separate thread."""

    blocking = True

    def step(self, state, replies):
        time.sleep(random.random() / 200)
        return super().step(state, replies)


def test_what_is_taught_does_not_depend_on_which_play_ended_first(model: Path) -> None:
    slow = parse_config(
        {
            "env": {"id": f"{__name__}:Slow"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": str(model)}},
            "sft": {"player": "random", "num_episodes": 12},
        }
    )
    tasks = [episode.task.id for episode in source_episodes(slow)]
    assert tasks == [f"train-{at}" for at in range(12)]


def test_every_item_comes_once_an_epoch(model: Path) -> None:
    run = config(model, num_turns=2)
    items = items_by_policy(run, source_episodes(run))["planner"]
    batches = batches_of(items, run.sft.num_turns, run, "planner", "sft")
    for _ in range(2):
        seen = [id(item) for _ in range(3) for item in next(batches)]
        assert sorted(seen) == sorted(map(id, items))
