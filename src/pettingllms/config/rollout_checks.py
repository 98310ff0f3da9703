"""Checks of [rollout] and [reward] against the algorithm and the environment."""

from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.registry import ALGORITHMS


def limit_problems(env: Any, sections: Mapping[str, Any]) -> Iterator[str]:
    """Limits on length whose effect the algorithm or the rewards cannot express."""
    if not sections.keys() >= {"algo", "rollout", "reward"}:
        return
    on_limit, reward, algo = sections["rollout"].on_limit, sections["reward"], sections["algo"].type
    if on_limit == "bootstrap" and not ALGORITHMS.load(algo).bootstraps:
        yield (
            f"rollout.on_limit: \"bootstrap\" needs a critic's value for every turn, and '{algo}' "
            'has none; set "reward" or "exclude", or algo.type = "ppo"'
        )
    if on_limit == "reward" and not getattr(reward, env.limit_level):
        yield (
            f"rollout.on_limit: '{env.id}' rewards a cut at the level of the {env.limit_level}, "
            f"and reward.{env.limit_level} is 0, so it would not count; raise it, or set "
            'rollout.on_limit = "exclude"'
        )
    longest = reward.overlong_start + reward.overlong_buffer
    limit = sections["rollout"].max_reply_tokens
    if reward.overlong_buffer and longest > limit:
        yield (
            f"reward.overlong_buffer: the penalty is full at {longest} tokens, but replies have at "
            f"most {limit} (rollout.max_reply_tokens); set overlong_start to "
            f"{max(0, limit - reward.overlong_buffer)}"
        )


def resample_problems(sections: Mapping[str, Any]) -> Iterator[str]:
    """Why advantages are not known between rounds of sampling."""
    if not sections.keys() >= {"algo", "rollout"} or not sections["rollout"].max_resamples:
        return
    algo = sections["algo"].type
    if "values" in ALGORITHMS.load(algo).needs:
        yield (
            f"rollout.max_resamples: '{algo}' compares returns with a critic's values, so equal "
            "rewards still have advantages; leave the key out"
        )
    if sections.get("judge") is not None:
        yield (
            "rollout.max_resamples: judges score the whole batch after sampling, so advantages are "
            "not known before; leave the key out, or [judge]"
        )
