"""Checks across sections: roles, players, and the needs of an algorithm."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from pettingllms.config.co_players import co_player_problems, role_problems
from pettingllms.config.curriculum import CurriculumConfig, Level, at_level
from pettingllms.config.engines import base_problems, engine_problems
from pettingllms.config.judge import RULE, JudgeConfig
from pettingllms.config.league import anchor_problems, league_problems
from pettingllms.config.merge_checks import merge_problems
from pettingllms.config.policies import image_problem, player_problems, resource_problems
from pettingllms.config.reward_checks import reward_problems
from pettingllms.config.rollout_checks import (
    limit_problems,
    resample_problems,
    role_option_problems,
    staleness_problems,
    truncation_problems,
    worker_problems,
)
from pettingllms.config.run import RunConfig, policies_without_roles
from pettingllms.config.schedule import schedule_problems
from pettingllms.config.section import EnvConfig
from pettingllms.config.training import CriticConfig
from pettingllms.config.user_code import log_problems
from pettingllms.errors import describe, nearest
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS, LOSSES, absolute
from pettingllms.vision.images import NEEDS, can_decode

POLICY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def build_env(sections: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """The environment, or the exception of its constructor, or neither."""
    if "env" not in sections:
        return None, None
    try:
        return ENVIRONMENTS.load(sections["env"].id).create(sections["env"]), None
    except Exception as error:  # noqa: BLE001 - reported as a problem, with this cause
        return None, error


def cross_check(sections: Mapping[str, Any], env: Any) -> list[str]:
    """Problems between the sections that could be read; missing ones are skipped."""
    problems: list[str] = []
    both = {"roles", "policies"} <= sections.keys()
    if both:
        beside = policies_without_roles(
            sections.get("league"), sections.get("judge"), sections.get("co_players")
        )
        problems += _check_policies(sections["roles"], sections["policies"], beside)
    problems += resource_problems(sections.get("policies", {}))
    if {"policies", "train"} <= sections.keys():
        problems += schedule_problems(sections["policies"], sections["train"])
    if {"curriculum", "eval"} <= sections.keys():
        problems += _check_eval_level(sections["curriculum"], sections["eval"].level)
    if {"algo", "critic", "reward"} <= sections.keys():
        problems += _check_critic(sections["algo"].type, sections["critic"], sections["reward"])
    problems += _check_league(sections, env)
    problems += reward_problems(sections, env)
    problems += _check_co_players(sections, env)
    problems += [*_check_best(sections), *_check_success(sections, env)]
    problems += [*_check_reference(sections), *_check_loss(sections)]
    problems += resample_problems(sections)
    problems += [*staleness_problems(sections), *truncation_problems(sections)]
    problems += log_problems(sections.get("log"))
    problems += merge_problems(sections)
    if env is None:
        return problems
    problems += _check_anchors(env, sections)
    if both:
        problems += _check_roles(env, sections["roles"], sections["policies"])
        problems += _check_image_roles(env, sections["roles"], sections["policies"])
    if "policies" in sections:
        problems += _check_players(env, sections["policies"])
    if {"algo", "rollout"} <= sections.keys():
        problems += _check_needs(env, sections["algo"].type, sections["rollout"])
    problems += [*limit_problems(env, sections), *role_option_problems(env, sections)]
    problems += worker_problems(env, sections)
    problems += _check_exploitability(env, sections)
    problems += _check_inference(sections)
    if sections.get("curriculum") is not None:
        problems += _check_curriculum(env, sections["env"], sections["curriculum"])
    return problems


def resolve(config: RunConfig, env: Any) -> RunConfig:
    """Fill in what the file leaves open; the configuration must have no problems."""
    algorithm = ALGORITHMS.load(config.algo.type)
    only = next(iter(config.policies))
    played = {"type": algorithm.rollout_type()}
    if played["type"] == "replay" and config.rollout.replay == "auto":
        played["replay"] = "silent" if "silence" in algorithm.needs else "resampled"
    critic = None
    if "values" in algorithm.needs:
        critic = config.critic or CriticConfig()
        if critic.kind == "auto":
            kind = "model" if algorithm.one_critic() else "head"
            critic = critic.model_copy(update={"kind": kind})
    judge = config.judge
    if env.judged and judge is None:
        judge = JudgeConfig(by=RULE)
    update = {
        "env": config.env_at(1).model_copy(update={"id": absolute(config.env.id)}),
        "roles": {role: config.roles.get(role, only) for role in env.roles},
        "rollout": config.rollout.model_copy(update=played),
        "critic": critic,
        "judge": judge,
    }
    return config.model_copy(update=update)


def _check_policies(
    roles: Mapping[str, str], policies: Mapping[str, Any], beside: Sequence[str]
) -> Iterator[str]:
    for role, policy in roles.items():
        if policy not in policies:
            yield f"roles.{role}: no policy is called '{policy}'; {nearest(policy, policies)}"
    for name in policies:
        if not POLICY_NAME.fullmatch(name):
            yield (
                f"policies.{name}: the name is also a folder; use letters, digits, '_', '-' and "
                "'.', and start with a letter, digit or '_'"
            )
        if len(policies) > 1 and name not in roles.values() and name not in beside:
            yield f"policies.{name}: has no role; remove it, or name it under [roles]"


def _check_roles(env: Any, roles: Mapping[str, str], policies: Mapping[str, Any]) -> Iterator[str]:
    for role in roles:
        if role not in env.roles:
            yield f"roles.{role}: '{env.id}' has no such role; {nearest(role, env.roles)}"
    missing = [role for role in env.roles if role not in roles]
    if missing and len(policies) > 1:
        yield (
            f"roles: {', '.join(missing)} have no policy; with more than one policy, name one for "
            "every role"
        )


def _check_players(env: Any, policies: Mapping[str, Any]) -> Iterator[str]:
    for name, policy in policies.items():
        if policy.kind == "scripted":
            yield from player_problems(env, f"policies.{name}.player", [policy.player])


def _check_image_roles(
    env: Any, roles: Mapping[str, str], policies: Mapping[str, Any]
) -> Iterator[str]:
    if env.image_roles and not can_decode():
        yield f"env: '{env.id}' shows images, and {NEEDS}"
    only = next(iter(policies)) if len(policies) == 1 else ""
    for role in env.image_roles:
        policy = policies.get(name := roles.get(role, only))
        if policy is not None and (reason := image_problem(policy)):
            yield (
                f"policies.{name}: '{env.id}' shows images to '{role}', and {reason}, or "
                f"{without_images(env, 'env')}"
            )


def without_images(env: Any, section: str) -> str:
    """Alternatives to a VLM for a role that is shown images; `section` has the options."""
    other = "give that role to a scripted player"
    as_text = f'set {section}.observation = "text", or '
    return as_text + other if hasattr(env.config, "observation") else other


def _check_anchors(env: Any, sections: Mapping[str, Any]) -> Iterator[str]:
    anchors = sections["guard"].anchors if sections.get("guard") is not None else []
    yield from player_problems(env, "guard.anchors", anchors)
    if anchors and "train" in sections and not sections["train"].eval_every:
        yield "guard.anchors: need evaluations, and train.eval_every is 0; set it"
    if anchors and len(env.roles) == 1:
        yield (
            f"guard.anchors: '{env.id}' has one role, so anchors have none to fill; leave them out"
        )


def _check_critic(algo_type: str, critic: CriticConfig | None, reward: Any) -> Iterator[str]:
    algorithm = ALGORITHMS.load(algo_type)
    if algorithm.mixer is not None and not reward.team:
        yield f"reward.team: '{algo_type}' uses only team rewards; set it above 0"
    if critic is None:
        return
    if "values" not in algorithm.needs:
        yield f"critic: '{algo_type}' needs no values, so there is no critic; remove the section"
    elif critic.kind == "head" and algorithm.one_critic():
        yield (
            f"critic.kind: '{algo_type}' has one critic for all roles, which is a separate "
            'model; set critic.kind = "model", or leave the key out'
        )
    elif critic.kind != "model" and critic.model and not algorithm.one_critic():
        yield 'critic.model: a head is part of its policy\'s model; set critic.kind = "model"'
    elif critic.kind != "model" and critic.num_ranks and not algorithm.one_critic():
        yield (
            "critic.num_ranks: a head is trained by its policy's learner; set critic.kind = "
            '"model", or leave the key out'
        )
    if critic.clip is not None and algorithm.mixer is not None:
        yield f"critic.clip: '{algo_type}' trains sums of values; leave the key out"


def _check_needs(env: Any, algo_type: str, rollout: Any) -> Iterator[str]:
    algorithm = ALGORITHMS.load(algo_type)
    if missing := sorted(algorithm.__abstractmethods__):
        yield f"algo.type: '{algo_type}' has no {' and no '.join(missing)}; write them"
    needed = algorithm.rollout_type()
    if needed != "linear" and not env.can_fork:
        yield (
            f"algo.type: '{algo_type}' needs an environment that can fork, and '{env.id}' cannot; "
            'set algo.type = "grpo"'
        )
    if "centralized" in algorithm.needs and not env.has_centralized_observation:
        yield (
            f"algo.type: '{algo_type}' needs centralized observations, and '{env.id}' has "
            'none; set algo.type = "grpo"'
        )
    if rollout.type not in ("auto", needed):
        yield (
            f"rollout.type: '{algo_type}' needs rollout.type = \"{needed}\", "
            f'not "{rollout.type}"; leave the key out'
        )
    if needed == "tree" and env.can_fork and env.late_rewards and rollout.continuation == "none":
        yield (
            f"rollout.continuation: '{env.id}' has late rewards, so a sibling's step does not "
            'determine its return; set rollout.continuation = "auto"'
        )
    replays = ("auto", "silent" if "silence" in algorithm.needs else "resampled")
    if needed == "replay" and rollout.replay not in replays:
        yield (
            f"rollout.replay: '{algo_type}' cannot use replays that are \"{rollout.replay}\"; "
            f"set one of {', '.join(replays)}, or leave the key out"
        )
    if rollout.num_samples < algorithm.min_samples:
        yield (
            f"rollout.num_samples: '{algo_type}' compares at least {algorithm.min_samples} "
            f"samples with each other, and this is {rollout.num_samples}"
        )


def _check_curriculum(env: Any, section: EnvConfig, curriculum: CurriculumConfig) -> Iterator[str]:
    key, role = curriculum.key, curriculum.role
    if not key:
        yield "curriculum: key and levels are missing; set both, or remove the section"
        return
    options = type(section).model_fields.keys() - EnvConfig.model_fields.keys()
    if role is not None and role not in env.roles:
        yield f"curriculum.role: '{env.id}' has no such role; {nearest(role, env.roles)}"
    if key not in options:
        yield f"curriculum.key: '{env.id}' has no option '{key}'; {nearest(key, options)}"
        return
    first, given = curriculum.levels[0], getattr(section, key)
    if key in section.model_fields_set and given != first:
        yield (
            f"env.{key}: is {given!r}, and the curriculum starts it at {first!r}; leave it "
            "out, or change curriculum.levels (eval.level selects the one to evaluate)"
        )
    for value in curriculum.levels:
        problem = _level_problem(env, section, key, value)
        if problem is not None:
            yield f"curriculum.levels: '{env.id}' cannot have {key} = {value!r}: {problem}"


def _level_problem(env: Any, section: EnvConfig, key: str, value: Level) -> str | None:
    """Why the environment cannot be created at a level; None if it can."""
    try:
        changed = at_level(section, key, value)
    except ValidationError as error:
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
    made, failure = build_env({"env": changed})
    if failure is not None:
        return describe(failure)
    if made.roles != env.roles:
        return f"its roles would be {', '.join(made.roles)}, but roles cannot change during a run"
    return None


def _check_league(sections: Mapping[str, Any], env: Any) -> Iterator[str]:
    needed = ("league", "roles", "policies", "inference")
    if sections.get("league") is None:
        return
    if sections.keys() >= set(needed):
        league, roles, policies, inference = (sections[name] for name in needed)
        yield from league_problems(league, roles, policies, inference.capabilities)
    if env is not None:
        yield from anchor_problems(sections["league"], env)


def _check_co_players(sections: Mapping[str, Any], env: Any) -> Iterator[str]:
    needed = {"co_players", "roles", "policies", "league", "rollout", "inference"}
    if sections.get("co_players") is None:
        return
    if needed <= sections.keys():
        yield from co_player_problems(sections)
    if env is not None:
        yield from role_problems(sections["co_players"], env)


def _check_best(sections: Mapping[str, Any]) -> Iterator[str]:
    """Trees that continue the best reply, where policies are rated by their returns."""
    needed = ("league", "co_players", "rollout", "algo")
    if not sections.keys() >= set(needed):
        return
    league, co_players, rollout, algo = (sections[name] for name in needed)
    phases = co_players.phases if co_players else []
    rated = league is not None or any(phase.until_reward is not None for phase in phases)
    is_tree = ALGORITHMS.load(algo.type).rollout_type() == "tree"
    if rated and is_tree and rollout.select == "best":
        yield (
            f"rollout.select: {'a league' if league else 'co_players.phases.until_reward'} "
            'would rate the best of several replies, not the policy; set "sampled"'
        )


def _check_success(sections: Mapping[str, Any], env: Any) -> Iterator[str]:
    """A curriculum needs the policies' success, which best branches do not measure."""
    needed = ("curriculum", "rollout", "algo")
    if env is None or not sections.keys() >= set(needed):
        return
    curriculum, rollout, algo = (sections[name] for name in needed)
    is_tree = ALGORITHMS.load(algo.type).rollout_type() == "tree"
    known = rollout.continuation == "episode" or (
        rollout.continuation == "auto" and env.late_rewards
    )
    if curriculum is not None and is_tree and rollout.select == "best" and not known:
        yield (
            'rollout.select: with "best" and siblings that are not continued to the end, the '
            "success that a curriculum needs is unknown; set rollout.select = "
            '"sampled" or rollout.continuation = "episode"'
        )


def _check_reference(sections: Mapping[str, Any]) -> Iterator[str]:
    if not {"loss", "train"} <= sections.keys() or not sections["train"].init_from:
        return
    loss = sections["loss"]
    advice = "export those policies and name them as models"
    models = "the models that [policies] names, not the weights that train.init_from loads"
    if loss.kl_coef:
        yield f"loss.kl_coef: the reference models would be {models}; {advice}, or set it to 0"
    elif "reference_logprobs" in LOSSES.load(loss.type).needs:
        yield f"loss.type: '{loss.type}' would compare with {models}; {advice}"


def _check_loss(sections: Mapping[str, Any]) -> Iterator[str]:
    if "loss" in sections and "pairs" in LOSSES.load(sections["loss"].type).needs:
        yield (
            f"loss.type: '{sections['loss'].type}' needs preference pairs, and `train` has none; "
            "leave the key out, and run `pettingllms dpo CONFIG EPISODES` on the run's episodes"
        )


def _check_exploitability(env: Any, sections: Mapping[str, Any]) -> Iterator[str]:
    asked = "eval" in sections and sections["eval"].exploitability
    if asked and not (hasattr(env, "starts") and hasattr(env, "legal")):
        played = f"'{env.id}' by one role" if env.roles == ("solo",) else f"'{env.id}'"
        yield f"eval.exploitability: {played} has no enumerable game tree; leave the key out"


def _check_inference(sections: Mapping[str, Any]) -> Iterator[str]:
    if {"inference", "policies"} <= sections.keys():
        yield from engine_problems(sections["inference"], sections["policies"])
    if {"learner", "policies"} <= sections.keys():
        yield from base_problems(sections["learner"], sections["policies"])
    asked = "env" in sections and getattr(sections["env"], "guided", False)
    if asked and "inference" in sections:
        inference = sections["inference"]
        if not inference.guided or not inference.capabilities.guided:
            yield (
                "env.guided: needs an engine that constrains replies to schemas; set "
                "inference.guided = true, with vLLM"
            )


def _check_eval_level(curriculum: CurriculumConfig | None, level: int | None) -> Iterator[str]:
    num_levels = len(curriculum.levels) if curriculum else 0
    if level is not None and level > num_levels:
        yield f"eval.level: is {level}, and curriculum.levels has {num_levels}"
