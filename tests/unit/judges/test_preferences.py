"""From verdicts to rewards in the step of the submission, read by algorithms as they are."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judges import Model, count, counting, llm, run

from pettingllms.algos import make_algorithm
from pettingllms.config import JudgeConfig, parse_config
from pettingllms.config.judge import RuleConfig
from pettingllms.errors import ConfigError
from pettingllms.judges import Judge, JudgeContext, Verdicts, judge_all, make_judges
from pettingllms.training.collect import collect
from pettingllms.types import (
    TEAM,
    Episode,
    Failed,
    Rewards,
    Scored,
    Step,
    Submission,
    Task,
    TreeLinks,
    Turn,
    episode_from_json,
    episode_to_json,
)

NO_IDS = np.empty(0, dtype=np.int32)


def play(number: int, *answers: str, roles: tuple[str, ...] = ("a",), task: str = "t") -> Episode:
    """One step in which each role lays an answer before the judge."""
    turns = [
        Turn(
            role, "p", (), NO_IDS, np.arange(3, dtype=np.int32), None, "", 0, links=TreeLinks(0, 0)
        )
        for role in roles
        if role != TEAM
    ]
    shown = {role: Submission("Q", answer) for role, answer in zip(roles, answers, strict=True)}
    own = Rewards({turn.role: Scored(0.0) for turn in turns})
    step = Step(None, tuple(range(len(turns))), own, submissions=shown)
    return Episode(f"{task}/{number}", "e-v1", Task(task), 0, turns, [step], last=0)


def judged(
    episodes: list[Episode],
    references: list[Episode] = [],  # noqa: B006 - is not changed
    judges: dict[str, Judge] | None = None,
    **options: Any,
) -> Verdicts:
    if options.get("held_out") and judges is None:
        options["judges"] = {options["held_out"]: RuleConfig(kind="rule", part="other")}
    config = JudgeConfig(**{"by": "rule", **options})
    made = judges or make_judges(config, JudgeContext(count, lambda _: None))
    return run(judge_all(episodes, references, config, made, 0.1))


def reward_of(episode: Episode, role: str = "a") -> Any:
    return episode.steps[0].rewards.agent[role]


def test_scores_become_agent_rewards_beside_those_of_the_step() -> None:
    episodes = [play(0, "fig, pear"), play(1, "stone")]
    found = judged(episodes, weight=2.0)
    assert [reward_of(e).value for e in episodes] == [0.4, 0.0]
    assert episodes[0].steps[0].metrics == {"judged_a": 0.2}
    assert found.metrics["score"] == pytest.approx(0.1)
    assert found.metrics["failed_share"] == 0


def test_a_score_of_the_teams_submission_is_a_team_reward() -> None:
    episode = play(0, "fig", roles=(TEAM,))
    judged([episode])
    assert episode.steps[0].rewards.team == Scored(0.1)


def test_against_a_reference_the_reward_is_the_share_of_wins() -> None:
    episodes = [play(0, "fig, pear"), play(1, "stone"), play(2, "lime")]
    references = [play(0, "fig"), play(1, "kiwi, plum, grape")]
    found = judged(episodes, references, against="reference", reference="ref")
    assert [reward_of(e).value for e in episodes] == [0.5, 0.0, 0.25]
    assert found.metrics["score"] == pytest.approx(0.25)


def test_a_reference_without_an_answer_is_a_failure() -> None:
    episode = play(0, "fig")
    judged([episode], [play(0, "fig", task="another")], against="reference", reference="ref")
    assert isinstance(reward_of(episode), Failed)
    assert reward_of(episode).owner == "judge"


@pytest.mark.parametrize("rounds", [0, 3])
def test_inside_a_group_answers_come_in_order(rounds: int) -> None:
    texts = ["fig, pear, lime", "stone", "fig", "fig, pear", "fig, pear, lime, kiwi"]
    episodes = [play(at, text) for at, text in enumerate(texts)]
    found = judged(episodes, against="group", rounds=rounds)
    values = [reward_of(episode).value for episode in episodes]
    order = sorted(range(5), key=lambda at: -values[at])
    assert order[0] == 4
    assert order[-1] == 1
    if not rounds:
        assert order == [4, 0, 3, 2, 1]
    assert np.mean(values) == pytest.approx(0.5)
    assert found.metrics["strength_deviation"] > 0


def test_groups_are_the_plays_of_one_task_and_role() -> None:
    episodes = [play(0, "fig"), play(1, "stone"), play(0, "fig, lime", task="u")]
    judged(episodes, against="group")
    assert reward_of(episodes[0]).value > 0.5 > reward_of(episodes[1]).value
    assert isinstance(reward_of(episodes[2]), Failed)


def test_rivals_are_compared_within_their_step() -> None:
    episodes = [play(0, "fig", "stone", roles=("a", "b")), play(1, "x", "x", roles=("a", "b"))]
    judged(episodes, against="rival")
    assert reward_of(episodes[0], "a").value > 0.5 > reward_of(episodes[0], "b").value
    assert reward_of(episodes[1], "a") == reward_of(episodes[1], "b") == Scored(0.5)


def test_rivals_that_were_asked_different_things_are_not_compared() -> None:
    (episode,) = episodes = [play(0, "fig", "fig", roles=("a", "b"))]
    episode.steps[0].submissions["b"] = Submission("another Q", "fig")
    judged(episodes, against="rival")
    for role in ("a", "b"):
        assert reward_of(episode, role) == Failed("nothing to compare it with", "judge")


def test_equal_answers_tie_without_a_call_of_the_judge() -> None:
    model = Model(counting())
    episodes = [play(0, "fig"), play(1, "fig")]
    judged(episodes, against="group", judges={"rule": llm(model)})
    assert [reward_of(e) for e in episodes] == [Scored(0.5)] * 2
    assert model.prompts == []


class Broken(Judge):
    """Cannot judge what is called a stone."""

    async def score(self, submission: Submission) -> Any:
        failed = Failed("no idea", "judge")
        return failed if "stone" in submission.answer else count(submission)


def test_a_judge_that_fails_gives_no_number_and_no_baseline_moves() -> None:
    judge = Broken("b", RuleConfig(kind="rule"), JudgeContext(count, lambda _: None))
    texts = ["fig", "stone", "fig, lime"]
    episodes = [play(at, text) for at, text in enumerate(texts)]
    found = judged(episodes, judges={"rule": judge})
    assert isinstance(reward_of(episodes[1]), Failed)
    assert any("33% of verdicts failed; the first: no idea" in alarm for alarm in found.alarms)
    algorithm = make_algorithm("grpo")
    (group,) = algorithm.assign(episodes)
    assert len(group.members) == 2
    assert episodes[1].turns[0].credit.advantage is None
    assert episodes[2].turns[0].credit.advantage > 0 > episodes[0].turns[0].credit.advantage


def test_in_a_group_a_failed_comparison_leaves_the_others() -> None:
    judge = Broken("b", RuleConfig(kind="rule"), JudgeContext(count, lambda _: None))
    episodes = [play(0, "fig"), play(1, "stone"), play(2, "fig, lime")]
    judged(episodes, judges={"rule": judge}, against="group")
    assert isinstance(reward_of(episodes[1]), Failed)
    assert reward_of(episodes[2]).value > 0.5 > reward_of(episodes[0]).value


def test_a_judge_that_is_too_slow_fails_what_is_missing_alone() -> None:
    class Slow(Broken):
        async def score(self, submission: Submission) -> Any:
            await asyncio.sleep(60 if "stone" in submission.answer else 0)
            return count(submission)

    judge = Slow("s", RuleConfig(kind="rule"), JudgeContext(count, lambda _: None))
    episodes = [play(0, "fig"), play(1, "stone")]
    judged(episodes, judges={"rule": judge}, timeout=0.1)
    assert reward_of(episodes[0]) == Scored(0.1)
    assert "judge.timeout" in reward_of(episodes[1]).reason


def length(submission: Submission, part: str = "") -> Any:
    """A rule whose parts disagree: one likes letters, the other fruits."""
    return count(submission) if part else Scored(min(1.0, len(submission.answer) / 50))


def test_the_gap_to_the_held_out_judge_is_measured_and_alarms() -> None:
    made = {
        "rule": RuleConfig(kind="rule"),
        "watch": RuleConfig(kind="rule", part="fruits"),
    }
    config = JudgeConfig(
        by="rule", held_out="watch", judges={"watch": made["watch"]}, max_held_out_gap=0.3
    )
    judges = make_judges(config, JudgeContext(length, lambda _: None))
    honest, hacked = [play(0, "fig, pear")], [play(0, "and so on " * 5)]
    assert run(judge_all(honest, [], config, judges, 0.1)).alarms == []
    found = run(judge_all(hacked, [], config, judges, 0.1))
    assert found.metrics["held_out_gap"] == pytest.approx(1.0)
    assert found.metrics["held_out_score"] == 0
    assert "above held-out judge" in found.alarms[0]
    assert reward_of(hacked[0]) == Scored(1.0)


def test_the_held_out_judge_may_see_a_share_and_its_failure_costs_no_reward() -> None:
    config = JudgeConfig(
        by="rule",
        held_out="watch",
        held_out_share=0.5,
        judges={"watch": RuleConfig(kind="rule", part="x")},
    )
    judges = make_judges(config, JudgeContext(count, lambda _: None))
    seen: list[Submission] = []

    async def score(submission: Submission) -> Any:
        seen.append(submission)
        return Failed("gone", "judge")

    judges["watch"].score = score
    episodes = [play(at, f"fig {at}") for at in range(200)]
    found = run(judge_all(episodes, [], config, judges, 0.1))
    assert 60 < len(seen) < 140
    assert "held_out_gap" not in found.metrics
    assert found.metrics["failed_share"] == 0


def test_submissions_are_written_and_read_back() -> None:
    episode = play(0, "fig")
    judged([episode])
    again = episode_from_json(episode_to_json(episode))
    assert again.steps[0].submissions == episode.steps[0].submissions
    assert again.steps[0].rewards == episode.steps[0].rewards


BASE = {
    "env": {"id": "story-v1", "num_rounds": 1},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "m"}},
    "rollout": {"num_tasks": 2, "num_samples": 3},
}


def config_with(**sections: Any) -> Any:
    return parse_config({**BASE, **sections})


def test_an_environment_that_is_judged_has_its_rule_as_judge() -> None:
    assert config_with().judge.by == "rule"


@pytest.mark.parametrize("algo", ["grpo", "dr_mas", "rloo", "reinforce_pp", "magrpo"])
@pytest.mark.parametrize("against", ["score", "group", "reference"])
def test_every_algorithm_reads_judged_rewards(algo: str, against: str, tmp_path: Path) -> None:
    judge: dict[str, Any] = {"by": "rule", "against": against}
    policies = dict(BASE["policies"])
    roles = {"writer_1": "p", "writer_2": "p"}
    if against == "reference":
        judge["reference"] = "ref"
        policies["ref"] = {"kind": "scripted", "player": "hollow"}
    config = config_with(algo={"type": algo}, judge=judge, policies=policies, roles=roles)
    summary = collect(config, tmp_path)
    assert summary.num_failed_turns == 0
    assert summary.num_trained_turns > 0


def test_trees_are_judged_at_the_ends_of_their_branches(tmp_path: Path) -> None:
    rollout = {**BASE["rollout"], "continuation": "episode", "select": "sampled"}
    config = config_with(algo={"type": "at_grpo"}, rollout=rollout)
    assert collect(config, tmp_path).num_trained_turns > 0
    with pytest.raises(ConfigError, match="before the judge scores"):
        config_with(algo={"type": "at_grpo"}, rollout={**rollout, "select": "best"})


@pytest.mark.parametrize(
    ("judge", "problem"),
    [
        ({"by": "nobody"}, "no judge is called 'nobody'"),
        ({"by": "rule", "against": "reference"}, "set reference if"),
        ({"by": "rule", "held_out": "rule"}, "held_out is 'rule', like by"),
        ({"by": "x", "judges": {"x": {"kind": "llm", "policy": "p"}}}, "'p' learns"),
        ({"by": "x", "judges": {"x": {"kind": "llm", "policy": "q"}}}, "no policy is called 'q'"),
        ({"by": "x", "judges": {"x": {"kind": "rule", "part": "plot"}}}, "has no such part"),
        ({"by": "x", "judges": {"x": {"kind": "lmm"}}}, "x.kind: no judge is called 'lmm'"),
        ({"by": "x", "judges": {"x": {}}}, "x: not a table with kind = .* names the judge"),
        ({"by": "x", "judges": {"x": 3}}, "x: not a table with kind"),
        ({"by": ""}, "at least 1 character"),
        ({"judges": {"x": {"kind": "rule"}}}, "`by` names none of them"),
    ],
)
def test_what_cannot_judge_is_refused(judge: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config_with(judge=judge)


def test_a_configuration_with_judges_reads_back() -> None:
    from pettingllms.config import to_toml

    judges = {
        "big": {"kind": "llm", "policy": "api"},
        "plot": {"kind": "rule", "part": "variety"},
        "all": {"kind": "panel", "asks": ["big", "plot"]},
    }
    policies = {
        **BASE["policies"],
        "api": {"kind": "api", "url": "http://127.0.0.1:9/v1", "model": "m"},
    }
    roles = {"writer_1": "p", "writer_2": "p"}
    config = config_with(
        judge={"by": "all", "held_out": "rule", "judges": judges}, policies=policies, roles=roles
    )
    import tomllib

    assert parse_config(tomllib.loads(to_toml(config))) == config
    assert config.played_policies() == {"p", "api"}
