"""Checks of where rewards come from: judges, submissions and influence shaping."""

from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.config.influence import influence_problems
from pettingllms.config.judge import RULE, JudgeConfig, judge_problems, part_problems
from pettingllms.registry import ALGORITHMS


def reward_problems(sections: Mapping[str, Any], env: Any) -> Iterator[str]:
    """Problems of `[judge]` and `[reward]` with the other sections that could be read."""
    if {"algo", "reward"} <= sections.keys():
        yield from influence_problems(sections["algo"].type, sections["reward"])
    if "judge" not in sections:
        return
    judge = sections["judge"]
    if judge is None and env is not None and env.judged:
        judge = JudgeConfig(by=RULE)
    if judge is None:
        return
    if env is not None:
        yield from _submission_problems(env)
        yield from part_problems(judge, env)
    if sections.keys() >= {"policies", "rollout", "algo"}:
        policies, rollout, algo = (sections[name] for name in ("policies", "rollout", "algo"))
        is_tree = ALGORITHMS.load(algo.type).rollout_type() == "tree"
        yield from judge_problems(judge, policies, rollout, is_tree)


def _submission_problems(env: Any) -> Iterator[str]:
    """Why a judge would have nothing to score."""
    if env.judged or env.submits:
        return
    advice = "remove the section, or name an environment that submits"
    if "judged" in type(env.config).model_fields:
        advice = "set env.judged = true, or remove the section"
    yield f"judge: '{env.id}' submits nothing to a judge, so it would give no reward; {advice}"
