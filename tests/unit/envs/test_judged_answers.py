"""debate-v1 and math-v1 with a judge: what is submitted, and that the truth rewards nothing."""

import asyncio
import copy
import random
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("math_verify", reason="needs the extra `math`")

from pettingllms.algos import make_algorithm_for
from pettingllms.api import make_config
from pettingllms.config import JudgeConfig
from pettingllms.config.verifier import VerifierConfig
from pettingllms.datasets import Problem
from pettingllms.envs import check_env, make_env
from pettingllms.judges import judge_all
from pettingllms.judges.base import Judge, JudgeContext, OneJudgeConfig
from pettingllms.training.collect import collect
from pettingllms.types import (
    TEAM,
    Episode,
    Failed,
    Reward,
    Scored,
    Submission,
    read_episodes,
    user,
)
from pettingllms.verifier.collect import verifier_tasks
from pettingllms.verifier.labeled_answers import label, train_test_split

NOT_RIGHT = "no \\boxed"


def debate(**options: Any) -> tuple[Any, Any]:
    env = make_env("debate-v1", judged=True, num_debaters=3, num_rounds=2, **options)
    state = env.reset(env.tasks("train")[0], 0)
    return env, replace(state, problem=Problem("p", "What is 1+1?", "2", short="1+1="))


def replies(env: Any, *answers: object) -> dict[str, str]:
    named = zip(env.roles, answers, strict=True)
    return {r: a if a == NOT_RIGHT else f"Well. \\boxed{{{a}}}" for r, a in named}


def test_every_answer_of_a_round_is_submitted_and_at_the_end_that_of_the_team() -> None:
    env, state = debate()
    first = env.step(state, replies(env, 2, 3, NOT_RIGHT))
    assert set(first.submissions) == {"debater_1", "debater_2"}
    shown = first.submissions["debater_1"]
    assert (shown.question, shown.answer) == ("What is 1+1?", "Well. \\boxed{2}")
    assert shown.level == "process"
    assert first.rewards.process == {"debater_3": Scored(-0.1)}
    last = env.step(first.state, replies(env, 3, 3, 2))
    assert last.submissions[TEAM].answer == "Well. \\boxed{3}"
    assert last.rewards.process == {}
    assert last.rewards.team is None


def test_a_team_without_an_answer_gets_nothing_to_judge_and_0() -> None:
    env, state = debate()
    state = env.step(state, replies(env, *[NOT_RIGHT] * 3)).state
    last = env.step(state, replies(env, *[NOT_RIGHT] * 3))
    assert last.submissions == {}
    assert last.rewards.team == Scored(0.0)


def test_the_rule_is_the_grader() -> None:
    env, state = debate()
    shown = env.step(state, replies(env, 2, 3, "4/2")).submissions
    verdicts = [env.rule(shown[role]) for role in env.roles]
    assert verdicts == [Scored(1.0), Scored(0.0), Scored(1.0)]


def test_in_math_the_final_answers_are_submitted_by_role() -> None:
    env = make_env("math-v1", judged=True, max_rounds=1)
    state = env.reset(env.tasks("train")[0], 0)
    state = replace(state, problem=Problem("p", "What is 1+1?", "2"))
    first = env.step(state, {"tool": "```python\nprint(1+1)\n```"})
    assert not first.submissions
    assert not first.rewards.process
    last = env.step(first.state, {"reasoner": "\\boxed{3}"})
    assert {role: env.rule(one) for role, one in last.submissions.items()} == {
        "tool": Scored(1.0),
        "reasoner": Scored(0.0),
        TEAM: Scored(0.0),
    }
    assert last.submissions["tool"].answer == "print(1+1)\n\nOutput: 2"
    assert not last.rewards.agent
    assert last.rewards.team is None
    silent = env.step(first.state, {"reasoner": "no box"})
    assert silent.rewards.agent == {"reasoner": Scored(0.0)}
    assert silent.rewards.team == Scored(0.0)
    assert silent.rewards.process == {"reasoner": Scored(-0.1)}


@pytest.mark.parametrize("name", ["debate-v1", "math-v1"])
def test_judged_forms_keep_the_contract(name: str) -> None:
    check_env(make_env(name, judged=True), num_episodes=3)
    check_env(make_env(name, judged=True, solo=True), num_episodes=2)


class Blind(Judge):
    """Scores without looking: no reward may follow the truth."""

    async def score(self, submission: Submission) -> Reward:
        return Scored(0.7)


def episodes(player: str, tmp_path: Any, **judge: Any) -> list[Episode]:
    config = make_config(
        env={"id": "debate-v1", "judged": True, "terse": True, "data": "sums", "num_rounds": 2},
        model="some/model",
        rollout={"num_tasks": 3, "num_samples": 2},
    )
    collect(config, tmp_path / player, stand_in=player)
    return list(read_episodes(tmp_path / player / "episodes.jsonl"))


def test_with_a_judge_that_does_not_look_right_and_wrong_answers_get_the_same_reward(
    tmp_path: Any,
) -> None:
    """The truth is in metrics and success alone."""
    config = make_config(env={"id": "debate-v1", "judged": True}, model="some/model")
    found = {}
    for player in ("solver", "wrong"):
        some = episodes(player, tmp_path)
        for episode in some:
            for step in episode.steps:  # what `collect` wrote is that of the rule
                step.rewards = replace(step.rewards, process={}, team=None)
        judges = {"rule": Blind("rule", OneJudgeConfig(), JudgeContext(lambda *_: None, None))}  # type: ignore[arg-type]
        asyncio.run(judge_all(some, [], JudgeConfig(by="rule"), judges, 1.0))
        make_algorithm_for(config).assign(some)
        found[player] = [
            [(step.rewards.process, step.rewards.agent, step.rewards.team) for step in e.steps]
            for e in some
        ]
        assert {e.success["debater_1"] for e in some} == {player == "solver"}
    assert found["solver"] == found["wrong"]
    assert found["solver"][0][0][0] == dict.fromkeys(
        ("debater_1", "debater_2", "debater_3"), Scored(0.7)
    )


def test_a_failed_verdict_fails_the_answer_and_a_scored_one_is_its_process_reward(
    tmp_path: Any,
) -> None:
    class Picky(Judge):
        async def score(self, submission: Submission) -> Reward:
            if submission.level == "agent":
                return Failed("no", "judge")
            return Scored(0.25)

    (episode, *_) = episodes("solver", tmp_path)
    for step in episode.steps:
        step.rewards = replace(step.rewards, process={}, team=None)
    judges = {"rule": Picky("rule", OneJudgeConfig(), JudgeContext(lambda *_: None, None))}  # type: ignore[arg-type]
    asyncio.run(judge_all([episode], [], JudgeConfig(by="rule"), judges, 1.0))
    assert episode.steps[0].rewards.process["debater_1"] == Scored(0.25)
    assert episode.steps[0].rewards.agent == {}
    assert isinstance(episode.steps[-1].rewards.team, Failed)


# The verifier's answers


def test_submissions_are_labelled_by_the_rule_and_not_by_the_success_of_the_team(
    tmp_path: Any,
) -> None:
    env = make_env("debate-v1", judged=True, terse=True, data="sums", num_rounds=2)
    some = episodes("noisy", tmp_path)
    found = label(some, VerifierConfig(), env.rule)
    assert len(found) == len(some) * 2 * 3
    assert {answer.correct for answer in found} == {True, False}
    for answer in found:
        (shown,) = answer.messages
        total = sum(map(int, shown.content.rstrip("=").split("+")))
        assert answer.correct == (answer.text == str(total))
        assert shown == user(shown.content), "the same input as in training on its scores"
    assert {answer.turn for answer in found} == {0}
    assert len({answer.question for answer in found}) == 3, "one per task, not per role"


def test_tasks_with_the_same_question_are_on_one_side_of_the_verifiers_split(
    tmp_path: Any,
) -> None:
    """Generated tasks repeat questions; answers of the test side would be no held-out ones."""
    env = make_env("debate-v1", judged=True, terse=True, data="sums", num_rounds=2)
    first, *_, last = episodes("noisy", tmp_path)
    again = copy.deepcopy(first)
    again.task = replace(first.task, id="train-another")
    found = label([first, again, last], VerifierConfig(), env.rule)
    assert len({answer.question for answer in found}) == 2
    for seed in range(8):
        train, test = train_test_split(found, 0.5, seed)
        assert not {a.messages for a in train} & {a.messages for a in test}


def test_the_verifier_gets_no_question_of_the_tasks_that_are_left_to_training() -> None:
    """Sums of two digits: a hundred questions, so that many tasks repeat one."""
    env = make_env("debate-v1", judged=True, terse=True, data="sums", num_steps=1, num_tasks=80)
    trained, tested = (
        {env.observe(env.reset(task, 0), "debater_1")[0].content for task in tasks}
        for tasks in (env.tasks("train")[:40], env.tasks("test"))
    )
    chosen = verifier_tasks(env, VerifierConfig(first_task=40, num_tasks=40))
    asked = {env.observe(env.reset(task, 0), "debater_1")[0].content for task in chosen}
    assert asked
    assert len(chosen) < 40
    assert not asked & trained
    assert not asked & tested


def test_sums_are_right_and_the_same_for_a_seed() -> None:
    from pettingllms.datasets.sums import make

    rng = random.Random(0)
    for _ in range(50):
        seed, steps = rng.randrange(10**6), rng.randint(1, 6)
        made = make(seed, steps)
        numbers = [int(part) for part in made.short.rstrip("=").split("+")]
        assert len(numbers) == steps + 1
        assert made.answer == str(sum(numbers))
        assert made == make(seed, steps)
