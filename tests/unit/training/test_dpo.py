"""Which replies make pairs, which never do, and that policies learn from those of their roles."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plays import overwrite
from ranks import SavesInProcess

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import Watched

from pettingllms.config import RewardConfig, RunConfig, parse_config
from pettingllms.config.sft import DpoConfig
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.learners.batches import Item, Pair, Unit
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.models.tiny import texts_of
from pettingllms.runs.folder import RunFolder
from pettingllms.training.dpo import Preferred, _dpo, _dpo_config, pairs_by_policy, preferred
from pettingllms.training.sft import learner_of
from pettingllms.types import (
    Episode,
    Failed,
    Image,
    Rewards,
    Scored,
    Step,
    Task,
    TreeLinks,
    Turn,
    user,
)

MIX = RewardConfig()


def episode(
    task: str,
    *turns: tuple[str, str, str, float | Failed],
    seed: int = 0,
    branched: bool = False,
    failure: Failed | None = None,
) -> Episode:
    """One step for each turn: role, prompt, reply, and the role's reward. If `branched`, all of
    them are siblings at the start."""
    last = len(turns) - 1
    made = Episode(f"{task}/0", "hand-v1", Task(task), seed, last=last, failure=failure)
    for at, (role, prompt, reply, score) in enumerate(turns):
        ids = (np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in (prompt, reply))
        links = TreeLinks(at, at if branched else last, at if branched else None)
        turn = Turn(role, "p", (user(prompt),), *ids, None, reply, 0, links=links)
        made.turns.append(turn)
        reward = score if isinstance(score, Failed) else Scored(score)
        parent = None if branched or not at else at - 1
        made.steps.append(Step(parent, (at,), Rewards(process={role: reward})))
    return made


def found(*episodes: Episode, **options: Any) -> list[tuple[str, str, str]]:
    pairs = preferred(episodes, MIX, DpoConfig(**options), lambda _, turn: turn.policy)
    return [(pair.role, pair.chosen.text, pair.rejected.text) for pair in pairs]


def test_the_best_reply_to_a_prompt_is_preferred_to_the_worst() -> None:
    plays = [
        episode("t", ("a", "q", text, reward)) for text, reward in (("x", 0), ("y", 1), ("z", 0.5))
    ]
    assert found(*plays) == [("a", "y", "x")]
    assert found(*plays, pairs="all") == [("a", "y", "x"), ("a", "y", "z"), ("a", "z", "x")]
    assert found(*plays, pairs="all", margin=0.5) == [("a", "y", "x")]
    assert found(*plays, pairs="all", max_pairs=1) == [("a", "y", "x")]


def test_ties_and_equal_replies_are_no_pairs() -> None:
    assert found(*(episode("t", ("a", "q", text, 1.0)) for text in "xy")) == []
    assert found(*(episode("t", ("a", "q", "x", reward)) for reward in (0.0, 1.0))) == []
    assert found(episode("t", ("a", "q", "x", 1.0))) == []


def test_a_reply_with_the_best_and_the_worst_reward_hides_no_other() -> None:
    """By the chance of what came after it, as in games."""
    rewarded = (("x", 1.0), ("y", 1.0), ("z", 0.5), ("x", 0.0))
    assert found(*(episode("t", ("a", "q", *one)) for one in rewarded)) == [("a", "y", "x")]


def test_pairs_never_cross_roles_tasks_prompts_or_chance() -> None:
    good, others = episode("t", ("a", "q", "x", 1.0)), [
        episode("t", ("b", "q", "y", 0.0)),
        episode("u", ("a", "q", "y", 0.0)),
        episode("t", ("a", "r", "y", 0.0)),
        episode("t", ("a", "q", "y", 0.0), seed=1),
    ]  # fmt: skip
    assert found(good, *others, pairs="all") == []
    assert found(good, *others, episode("t", ("a", "q", "z", 0.0))) == [("a", "x", "z")]


def test_pairs_never_cross_images() -> None:
    """The text of a board that is shown as a picture is the same for all boards."""
    one, same, other = (
        episode("t", ("a", "q", *end)) for end in (("x", 1.0), ("y", 0.0), ("z", 0.0))
    )
    for made, data in ((one, b"board"), (same, b"board"), (other, b"another")):
        overwrite(made.turns[0], messages=(user("q", Image(data)),))
    assert found(one, same, other, pairs="all") == [("a", "x", "y")]


def test_what_failed_is_in_no_pair() -> None:
    lost = Failed("no verdict", "judge")
    good = episode("t", ("a", "q", "x", 1.0))
    assert found(good, episode("t", ("a", "q", "y", lost))) == []
    cut = Failed("cut", "limit")
    assert found(good, episode("t", ("a", "q", "y", 0.0), failure=cut)) == []


def test_a_reply_that_a_limit_cut_can_be_rejected_and_never_preferred() -> None:
    whole, cut = episode("t", ("a", "q", "x", 1.0)), episode("t", ("a", "q", "y", 0.0))
    overwrite(cut.turns[0], limit="the model ends here")
    assert found(whole, cut) == [("a", "x", "y")]
    overwrite(whole.turns[0], limit="the model ends here")
    overwrite(cut.turns[0], limit="")
    assert found(whole, cut) == []


def test_each_role_has_its_own_pairs_and_later_turns_count_what_follows() -> None:
    plays = [
        episode("t", ("a", "q", "x", 0.0), ("b", "r", "u", 1.0)),
        episode("t", ("a", "q", "y", 0.5), ("b", "r", "v", 0.0)),
    ]
    assert found(*plays) == [("a", "y", "x"), ("b", "u", "v")]


def test_siblings_of_a_tree_are_compared_within_it_alone() -> None:
    first = episode("t", ("a", "q", "x", 0.0), ("a", "q", "y", 1.0), branched=True)
    second = episode("t", ("a", "q", "v", 0.2), ("a", "q", "w", 0.1), branched=True)
    assert found(first, second) == [("a", "y", "x"), ("a", "v", "w")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = texts_of([make_env("plan_path-v1", terse=True)], 1)
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return make_tiny(folder, texts=texts, hidden_size=64, vocab_size=320, symbols=True)


def config(model: Path, shared: bool = False, **options: Any) -> RunConfig:
    names = ("team",) if shared else ("planner", "checker")
    return parse_config(
        {
            "env": {"id": "plan_path-v1", "terse": True, "max_rounds": 1},
            "algo": {"type": "grpo"},
            "policies": {
                name: {"kind": "lora", "model": str(model), "rank": 4, "lr": 1e-2} for name in names
            },
            "roles": {role: names[at % len(names)] for at, role in enumerate(ROLES)},
            **options,
        }
    )


ROLES = ("planner", "checker")


def sampled(model: Path, roles: tuple[str, ...] = ROLES, shared: bool = False) -> list[Preferred]:
    """A pair of each role, ids as a policy of the role's name would have sampled them."""
    renderer, pairs = ChatRenderer(model), []
    for role in roles:
        plays = []
        for text, reward in (("R", 1.0), ("D", 0.0)):
            play = episode("t", (role, "where?", text, reward))
            turn = play.turns[0]
            overwrite(turn, policy=role, prompt_ids=renderer.render(turn.messages))
            overwrite(turn, response_ids=renderer.encode(text))
            overwrite(turn, logprobs=np.full(len(turn.response_ids), -1, np.float32))
            plays.append(play)
        whose = partial(learner_of, config(model, shared=shared))
        pairs += preferred(plays, MIX, DpoConfig(), whose)
    return pairs


def test_policies_get_the_pairs_of_their_roles_by_the_ids_that_were_sampled(model: Path) -> None:
    found = sampled(model)
    pairs = pairs_by_policy(config(model), found)
    for one, role in zip(found, ROLES, strict=True):
        (pair,) = pairs[role]
        assert pair.chosen.response_ids is one.chosen.response_ids
        assert pair.rejected.response_ids is one.rejected.response_ids
        assert pair.chosen.prompt_ids.tolist() == one.chosen.prompt_ids.tolist()
    one = pairs_by_policy(config(model, shared=True), sampled(model, shared=True))
    assert [len(some) for some in one.values()] == [2]


def test_replies_of_opponents_and_of_other_learners_are_nobodys_pairs(model: Path) -> None:
    plays = []
    for text, reward, by in (
        ("R", 1.0, "planner"),
        ("D", 0.0, "planner"),
        ("U", 2.0, "script:bfs"),
    ):
        play = episode("t", ("planner", "where?", text, reward), ("checker", "and?", "A", reward))
        overwrite(play.turns[0], policy=by)
        overwrite(play.turns[1], policy="checker")
        plays.append(play)
    whose = partial(learner_of, config(model))
    (pair,) = preferred(plays, MIX, DpoConfig(), whose)
    assert (pair.policy, pair.chosen.text, pair.rejected.text) == ("planner", "R", "D")
    overwrite(plays[1].turns[0], policy="checker")  # rotated
    assert preferred(plays, MIX, DpoConfig(), whose) == []


def test_replies_to_one_prompt_at_different_depths_are_no_pairs() -> None:
    play = episode("t", *(("a", "q", text, 1.0) for text in "wxyz"))
    assert found(play, pairs="all") == []
    other = episode("t", ("a", "q", "v", 0.0), *(("a", "q", text, 1.0) for text in "xyz"))
    assert found(play, other, pairs="all") == [("a", "w", "v")]


def test_a_policy_without_a_pair_is_refused_and_so_is_dpo_as_the_loss_of_a_run(model: Path) -> None:
    with pytest.raises(ConfigError, match="'checker' has no pair"):
        pairs_by_policy(config(model), sampled(model, ("planner",)))
    with pytest.raises(ConfigError, match=r"loss.type: 'dpo' needs preference pairs"):
        config(model, loss={"type": "dpo"})


class Team(SavesInProcess):
    """The run's real learner in this process, with what it was given."""

    def __init__(self, run: RunConfig) -> None:
        policies: Any = dict(run.policies)
        folder = Path(next(iter(policies.values())).model)
        self.learner = Learner(LearnerSpec(folder, policies, run.learner, run.loss, 16, 0))
        self.seen: list[list[Unit]] = []

    async def load_learners(self, saved: Any) -> None: ...

    async def logprobs(self, policy: str, items: list[Item]) -> Any:
        return self.learner.logprobs(policy, items)

    async def learn_units(self, policy: str, units: list[Unit], step: int) -> dict[str, float]:
        self.seen.append(units)
        return self.learner.train(policy, units, step)

    async def stop(self) -> None: ...


def test_it_learns_through_the_whole_path_and_is_held_to_where_it_began(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pettingllms.cluster import team as cluster_team

    run = _dpo_config(config(model, dpo={"num_steps": 8, "beta": 0.5}))
    assert (run.loss.type, run.loss.beta) == ("dpo", 0.5)
    team = Team(run)
    pairs = pairs_by_policy(run, sampled(model))
    wanted = team.learner.logprobs("planner", [pairs["planner"][0].chosen])[0]

    async def start(*_: Any, **__: Any) -> Team:
        return team

    monkeypatch.setattr(cluster_team.Team, "start", start)
    folder = RunFolder(tmp_path / "run")
    folder.create(run, supervised=True)
    asyncio.run(_dpo(run, pairs, folder, Watched()))
    assert len(team.seen) == 16
    for units in team.seen:
        (pair,) = units
        assert isinstance(pair, Pair)
    first = team.seen[-2][0]
    assert isinstance(first, Pair)
    np.testing.assert_allclose(first.chosen.reference, wanted, atol=1e-6)
    for role, some in pairs.items():
        items = [some[0].chosen, some[0].rejected]
        chosen, rejected = (row.sum() for row in team.learner.logprobs(role, items))
        assert chosen - rejected > 1
    assert RunFolder(tmp_path / "run").weights(ROLES).keys() == set(ROLES)
