"""Checks of [rollout] and [reward] against the algorithm and the environment."""

from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.errors import nearest
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


def role_option_problems(env: Any, sections: Mapping[str, Any]) -> Iterator[str]:
    """Options of roles that the environment does not have, and prompts of programs."""
    rollout, prompts = sections.get("rollout"), env.config.system_prompts
    options = {
        "env.system_prompts": prompts,
        "rollout.reply_tokens": rollout.reply_tokens if rollout is not None else {},
    }
    for key, by_role in options.items():
        for role in by_role:
            if role not in env.roles:
                yield f"{key}.{role}: '{env.id}' has no such role; {nearest(role, env.roles)}"
    if prompts and hasattr(env, "is_async"):
        yield (
            f"env.system_prompts: '{env.id}' is a workflow, whose programs write their prompts; "
            "leave the key out"
        )


def worker_problems(env: Any, sections: Mapping[str, Any]) -> Iterator[str]:
    """Options of rollout workers and of their gateways that do not fit the run."""
    rollout, inference = sections.get("rollout"), sections.get("inference")
    if rollout is None:
        return
    if rollout.gateway_address and not hasattr(env, "is_async"):  # not a workflow
        yield (
            f"rollout.gateway_address: '{env.id}' is no workflow, so no program calls a gateway; "
            "leave the key out"
        )
    if rollout.num_workers not in ("auto", 0) and inference is not None and inference.recording:
        yield (
            "rollout.num_workers: one process writes the recording (inference.recording), but got "
            f"{rollout.num_workers} workers; leave the key out, or set rollout.num_workers = 0"
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


def truncation_problems(sections: Mapping[str, Any]) -> Iterator[str]:
    """Policies whose exploitability would be that of another distribution."""
    if "eval" not in sections or not sections["eval"].exploitability:
        return
    for name, policy in sections.get("policies", {}).items():
        if getattr(policy, "top_p", 1.0) < 1 or getattr(policy, "top_k", 0):
            yield (
                f"policies.{name}: exploitability is that of the whole distribution; leave top_p "
                "and top_k out, or set eval.exploitability = false"
            )


def staleness_problems(sections: Mapping[str, Any]) -> Iterator[str]:
    """What asynchronous training cannot be combined with, and why."""
    rollout, train = sections.get("rollout"), sections.get("train")
    inference = sections.get("inference")
    if rollout is None:
        return
    if inference is not None and inference.in_flight_updates:
        yield from _in_flight_problems(inference, rollout.max_staleness)
    if not rollout.max_staleness:
        return
    advice = "leave one of them out"
    reasons = {
        "curriculum": "a batch would mix levels, and old tasks would decide the next level",
        "league": "opponents are chosen by step, and one could leave the pool while it plays",
        "co_players": "co-players change by step, and a batch has tasks of several steps",
    }
    for name, reason in reasons.items():
        if sections.get(name) is not None:
            yield f"rollout.max_staleness: does not go with [{name}]: {reason}; {advice}"
    if train is not None and train.alternate:
        yield (
            "rollout.max_staleness: does not go with train.alternate: tasks would be sampled while "
            f"one policy learns, and trained on while another does; {advice}"
        )
    cluster = sections.get("cluster")
    if cluster is not None and cluster.placement == "colocated":
        yield (
            "rollout.max_staleness: engines must sample while learners learn, but got "
            'cluster.placement = "colocated", where they take turns; set it to "separate"'
        )
    if inference is not None and inference.recording:
        yield (
            "rollout.max_staleness: the order of requests depends on timing, so a recording "
            f"(inference.recording) could not be replayed; {advice}"
        )


def _in_flight_problems(inference: Any, max_staleness: int) -> Iterator[str]:
    """Why weights cannot change while replies are sampled."""
    if not max_staleness:
        yield (
            "inference.in_flight_updates: in synchronous training no reply is in progress when new "
            "weights arrive; set rollout.max_staleness, or leave the key out"
        )
    if not inference.capabilities.in_flight:
        yield (
            f"inference.in_flight_updates: the engine '{inference.engine}' cannot continue replies "
            "with new weights; leave the key out, and it finishes them first"
        )
