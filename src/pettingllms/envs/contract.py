"""`check_env`: the environment contract as an executable test for any environment.

It runs episodes with the `random` player and with malformed replies. It looks for faults that
would silently spoil training: mutable states, unseeded randomness, observations that leak hidden
information, inconsistent rewards. Each fault has a name and describes what was observed.
"""

import json
import pickle
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pettingllms.envs.base import BOOLEAN_TYPES, StepResult
from pettingllms.envs.check_start import (
    SPLITS,
    check_acting,
    check_observation,
    check_roles,
    check_splits,
    check_state,
    load_tasks,
)
from pettingllms.envs.contract_faults import (
    ContractViolation,
    Env,
    Fault,
    call,
    collect_fault,
    require_no_faults,
)
from pettingllms.errors import ImageError
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed
from pettingllms.types import TEAM, Failed, Message, Rewards, Scored, Submission, Task, total
from pettingllms.vision.images import check_image

NONSENSE = (
    "",
    "I would rather not.",
    "<answer></answer>",
    "</answer><answer>",
    "<answer>1</answer><answer>2</answer>",
    "<answer>\x00\ud800💥 {[(</answer>",
    "<answer>-1</answer>",
    "<answer>²</answer>",
    "<answer>" + "9" * 5000 + "</answer>",
)


@dataclass(frozen=True, slots=True)
class _Episode:
    """A recorded episode: the replies and the result of every step."""

    task: Task
    seed: int
    steps: list[tuple[dict[str, str], StepResult[Any]]]


def check_env(env: Env, num_episodes: int = 8, max_steps: int = 2000) -> None:
    """Raise EnvContractError that lists all faults of the environment and of its solo form."""
    require_no_faults(env, find_faults(env, num_episodes, max_steps))


def find_faults(env: Env, num_episodes: int = 8, max_steps: int = 2000) -> list[Fault]:
    """All faults found, at most one of each name."""
    faults = _faults_of(env, num_episodes, max_steps)
    if faults or len(env.roles) == 1:
        return list(faults.values())
    try:
        solo = call(env.solo, "solo()")
        if len(solo.roles) != 1:
            detail = f"solo() has the roles {solo.roles}; it must have one"
            raise ContractViolation("no-solo", detail)  # noqa: TRY301
    except ContractViolation as violation:
        return [Fault("no-solo", violation.fault.detail)]
    faults = _faults_of(solo, num_episodes, max_steps)
    return [Fault(fault.name, f"in the solo form: {fault.detail}") for fault in faults.values()]


def _faults_of(env: Env, num_episodes: int, max_steps: int) -> dict[str, Fault]:
    faults: dict[str, Fault] = {}
    collect_fault(faults, _check_names, env)
    collect_fault(faults, _check_tasks, env)
    episodes: list[_Episode] = []
    for at in range(num_episodes):
        episode_seed = derive_seed("check", 0, at)
        collect_fault(faults, _check_episode, env, episode_seed, at % 2 == 1, max_steps, episodes)
    collect_fault(faults, _check_replays, env, episodes)
    collect_fault(faults, _check_limit, env, episodes)
    return faults


def _check_names(env: Env) -> None:
    library = env.id.partition(":")[0]
    known = ENVIRONMENTS.libraries | ENVIRONMENTS.servers
    if library not in known and not re.fullmatch(r"[a-z0-9_]+-v\d+", env.id):
        raise ContractViolation(
            "id-without-version", f"id is '{env.id}'; write it like 'my_game-v1'"
        )
    check_roles(env)
    if "random" not in env.players:
        raise ContractViolation(
            "no-random-player", f"players are {sorted(env.players)}; add one: 'random'"
        )


def _check_tasks(env: Env) -> None:
    for split in SPLITS:
        first, again = load_tasks(env, split), load_tasks(env, split)
        if not first:
            raise ContractViolation("bad-tasks", f"tasks('{split}') is empty")
        if first[:64] != again[:64]:
            raise ContractViolation(
                "bad-tasks", f"tasks('{split}') gives other tasks the second time"
            )
        for task in first[:64]:
            if json.loads(json.dumps(task.data)) != task.data:
                raise ContractViolation(
                    "bad-tasks", f"the data of '{task.id}' changes when written as JSON"
                )
    check_splits(env, "train")


def _check_episode(
    env: Env, seed: int, nonsense: bool, max_steps: int, episodes: list[_Episode]
) -> None:
    """Run one episode, check every step, and append it to `episodes`."""
    rng = random.Random(seed)
    tasks = env.tasks("train")
    task = tasks[rng.randrange(min(len(tasks), 64))]
    state = call(lambda: env.reset(task, seed), "reset")
    check_state(state)
    if call(lambda: env.reset(task, seed), "reset") != state:
        raise ContractViolation(
            "reset-not-repeatable", f"two resets of task '{task.id}', seed {seed} differ"
        )
    rewarded: set[str] = set()
    acted: set[str] = set()
    steps: list[tuple[dict[str, str], StepResult[Any]]] = []
    for _ in range(max_steps):
        roles = check_acting(env, state)
        if not roles:
            break
        acted |= set(roles)
        for role in roles:
            _check_role_view(env, state, role, rng)
            _check_silence(env, state, role)
        replies = {role: _reply(env, state, role, rng, nonsense) for role in roles}
        others = {role: _reply(env, state, role, rng, not nonsense) for role in roles}
        result = _check_step(env, state, replies, others)
        rewarded |= _check_rewards(env, roles, result.rewards)
        rewarded |= _check_submissions(env, result)
        steps.append((replies, result))
        state = result.state
    else:
        raise ContractViolation(
            "never-ends", f"task '{task.id}' was not over after {max_steps} steps"
        )
    _check_end(env, state)
    if missing := sorted(acted - rewarded):
        raise ContractViolation(
            "never-rewarded", f"a whole episode gave {missing} no reward at any level"
        )
    _check_late_rewards(env, [(set(replies), result.rewards) for replies, result in steps])
    episodes.append(_Episode(task, seed, steps))


def _check_end(env: Env, state: object) -> None:
    for role in env.roles:
        success: object = call(partial(env.success, state, role), "success")
        if not isinstance(success, BOOLEAN_TYPES):
            raise ContractViolation(
                "bad-success", f"success for '{role}' is {success!r}, not True or False"
            )
        answer: object = call(partial(env.answer, state, role), "answer")
        if not isinstance(answer, str | None):
            raise ContractViolation(
                "bad-answer", f"answer of '{role}' is {answer!r:.60}; give text or None"
            )


def _check_limit(env: Env, episodes: list[_Episode]) -> None:
    """Require that no regular end is worse than truncation: a losing policy would stall."""
    truncated = env.limit_rewards(env.roles)
    for episode in episodes:
        end = episode.steps[-1][1].rewards if episode.steps else Rewards()
        for role in env.roles:
            ended, stalled = _final_reward(end, role), _final_reward(truncated, role)
            if ended is not None and stalled is not None and ended < stalled:
                raise ContractViolation(
                    "limit-reward",
                    f"task '{episode.task.id}' ended with reward {ended:g} for '{role}', but an "
                    f"episode truncated at a limit gives {stalled:g}; declare limit_reward = "
                    f"{ended:g} or less",
                )


def _final_reward(rewards: Rewards, role: str) -> float | None:
    """A role's agent and team reward; None if it has neither."""
    found = total([rewards.agent.get(role), rewards.team])
    return found.value if isinstance(found, Scored) else None


def _check_role_view(env: Env, state: object, role: str, rng: random.Random) -> None:
    seen = check_observation(env, state, role)
    _check_images(env, role, [m for m in seen if isinstance(m, Message)])
    if call(lambda: tuple(env.observe(state, role)), "observe") != seen:
        raise ContractViolation(
            "observe-not-repeatable", f"'{role}' is shown another text the second time"
        )
    other = call(lambda: env.redeal(state, role, rng), "redeal")
    if call(lambda: tuple(env.observe(other, role)), "observe") != seen:
        raise ContractViolation(
            "hidden-leak", f"the observation of '{role}' changed with information hidden from it"
        )


def _check_images(env: Env, role: str, seen: list[Message]) -> None:
    images = [image for message in seen for image in message.images]
    if images and role not in env.image_roles:
        raise ContractViolation(
            "undeclared-image", f"'{role}' is shown an image but is not in `image_roles`; add it"
        )
    for image in images:
        try:
            check_image(image)
        except ImageError as error:
            raise ContractViolation(
                "bad-image", f"'{role}' is shown an unreadable image: {error}"
            ) from error


def _check_silence(env: Env, state: object, role: str) -> None:
    silence: object = call(lambda: env.silence(state, role), "silence")
    if not isinstance(silence, str):
        raise ContractViolation(
            "bad-silence", f"silence of '{role}' is {silence!r:.60}; give a reply"
        )


def _reply(env: Env, state: object, role: str, rng: random.Random, nonsense: bool) -> str:
    if nonsense and rng.random() < 0.5:
        return rng.choice(NONSENSE)
    player = env.players.get("random")
    if player is None:
        return rng.choice(NONSENSE)
    return call(lambda: player(env, state, role, rng), "the player 'random'")


def _check_step(
    env: Env, state: Any, replies: Mapping[str, str], others: Mapping[str, str]
) -> StepResult[Any]:
    """Step twice, with a step of another fork in between: both results must be equal."""
    before = pickle.dumps(state)
    result = call(lambda: env.step(state, dict(replies)), f"step on {dict(replies)!r:.120}")
    if not isinstance(result, StepResult):
        raise ContractViolation(
            "bad-result", f"step gave {type(result).__name__}; give a StepResult"
        )
    check_state(result.state)
    if pickle.loads(before) != state:  # noqa: S301 - our own bytes
        raise ContractViolation("mutated-state", "step changed the state that it was given")
    fork = call(lambda: env.step(state, dict(others)), f"step on {dict(others)!r:.120}")
    kept = pickle.dumps(fork.state)
    again = call(lambda: env.step(state, dict(replies)), "step")
    if again != result:
        raise ContractViolation(
            "step-not-repeatable", "the same step from the same state gave another result"
        )
    if pickle.loads(kept) != fork.state:  # noqa: S301 - our own bytes
        raise ContractViolation("fork-leak", "stepping one fork changed another")
    if not all(isinstance(value, int | float) for value in result.metrics.values()):
        raise ContractViolation("bad-metrics", f"metrics are {result.metrics!r:.80}; give numbers")
    return result


def _check_rewards(env: Env, acting: tuple[str, ...], rewards: object) -> set[str]:
    """Check the rewards of a step; return the roles that received one."""
    if not isinstance(rewards, Rewards):
        raise ContractViolation("bad-rewards", f"rewards are {rewards!r:.60}; give Rewards(...)")
    levels = {"process": rewards.process, "agent": rewards.agent}
    for level, by_role in levels.items():
        if unknown := sorted(set(by_role) - set(env.roles)):
            raise ContractViolation(
                "unknown-role", f"{level} rewards name {unknown}, not among the roles"
            )
    if idle := sorted(set(rewards.process) - set(acting)):
        raise ContractViolation(
            "process-without-reply", f"process rewards for {idle}, which did not act"
        )
    rewarded = {*rewards.process, *rewards.agent, *(env.roles if rewards.team is not None else ())}
    if not env.late_rewards and not set(acting) <= rewarded:
        raise ContractViolation(
            "late-rewards",
            f"a step gave {sorted(set(acting) - rewarded)} no reward; reward every acting role, "
            "or set late_rewards = True",
        )
    return rewarded


def _check_late_rewards(env: Env, steps: Sequence[tuple[set[str], Rewards]]) -> None:
    """A role that acts without reward at a level, and gets one later, is rewarded late."""
    if env.late_rewards:
        return
    waiting: set[tuple[str, str]] = set()
    for acting, rewards in steps:
        team = set(env.roles) if rewards.team is not None else set()
        given = {"agent": set(rewards.agent), "team": team}
        for level, roles in given.items():
            if late := sorted(role for role in roles if (role, level) in waiting):
                raise ContractViolation(
                    "late-rewards",
                    f"{late} acted in a step without {level} reward and got one in a later step; "
                    "give it in every step, or set late_rewards = True",
                )
            waiting |= {(role, level) for role in acting - roles}


def _check_submissions(env: Env, result: StepResult[Any]) -> set[str]:
    """Check a step's submissions; return the roles that a judge would reward."""
    if result.submissions and not (env.judged or env.submits):
        raise ContractViolation(
            "bad-submission",
            "a step submits to a judge, but the environment does not declare it; set "
            "submits = True, or judged = True",
        )
    for role, submission in result.submissions.items():
        if role not in (TEAM, *env.roles) or not isinstance(submission, Submission):
            raise ContractViolation(
                "bad-submission",
                f"the submission of {role!r} is {submission!r:.60}; give a Submission of a role",
            )
        if json.loads(json.dumps(dict(submission.facts))) != submission.facts:
            raise ContractViolation(
                "bad-submission", f"facts for {role!r} change when written as JSON"
            )
        for part in ("", *env.rule_parts):
            _check_verdict(call(partial(env.rule, submission, part), "rule"))
    return set(env.roles) if TEAM in result.submissions else set(result.submissions)


def _check_verdict(verdict: object) -> None:
    fits = isinstance(verdict, Scored) and 0 <= verdict.value <= 1
    if not fits and not isinstance(verdict, Failed):
        raise ContractViolation(
            "bad-submission", f"the rule gave {verdict!r:.60}; give Scored from 0 to 1, or Failed"
        )


def _check_replays(env: Env, episodes: list[_Episode]) -> None:
    """Replay all episodes interleaved, in a copy of the environment: results must be equal."""
    try:
        twin: Env = pickle.loads(pickle.dumps(env))  # noqa: S301 - our own bytes
    except Exception as error:
        raise ContractViolation(
            "not-picklable", f"the environment cannot be pickled: {error}"
        ) from error
    states = [twin.reset(episode.task, episode.seed) for episode in episodes]
    for at in range(max((len(episode.steps) for episode in episodes), default=0)):
        for number, episode in enumerate(episodes):
            if at >= len(episode.steps):
                continue
            replies, expected = episode.steps[at]
            result = twin.step(states[number], replies)
            if result != expected:
                raise ContractViolation(
                    "hidden-memory",
                    f"an interleaved replay in a copy of the environment differs at step {at + 1}: "
                    "the result depends on something outside the state",
                )
            states[number] = result.state
