"""`check_env`: the environment contract as a test that anyone can run on their own environment.

It plays episodes with the `random` player and with replies that are nonsense, and looks for what
would quietly spoil training: states that change under a fork's feet, chance that no seed controls,
prompts that leak, rewards that nobody can trust. Each fault has a name and says where it was seen.
"""

import json
import pickle
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pettingllms.envs.base import YES_OR_NO, StepResult
from pettingllms.envs.check_start import (
    SPLITS,
    check_acting,
    check_roles,
    check_splits,
    check_state,
    seen_by,
    tasks_of,
)
from pettingllms.envs.contract_faults import Broken, Env, Fault, call, collect, refuse
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
class _Play:
    """A play as it went: the replies of every step and what they led to."""

    task: Task
    seed: int
    script: list[tuple[dict[str, str], StepResult[Any]]]


def check_env(env: Env, num_episodes: int = 8, max_steps: int = 2000) -> None:
    """Raise EnvContractError with every fault found in the environment and in its solo form."""
    refuse(env, find_faults(env, num_episodes, max_steps))


def find_faults(env: Env, num_episodes: int = 8, max_steps: int = 2000) -> list[Fault]:
    """Every fault found, at most one of each name."""
    faults = _faults_of(env, num_episodes, max_steps)
    if faults or len(env.roles) == 1:
        return list(faults.values())
    try:
        solo = call(env.solo, "solo()")
        if len(solo.roles) != 1:
            raise Broken("no-solo", f"solo() has the roles {solo.roles}; it must have one")  # noqa: TRY301
    except Broken as broken:
        return [Fault("no-solo", broken.fault.detail)]
    faults = _faults_of(solo, num_episodes, max_steps)
    return [Fault(fault.name, f"in the solo form, {fault.detail}") for fault in faults.values()]


def _faults_of(env: Env, num_episodes: int, max_steps: int) -> dict[str, Fault]:
    faults: dict[str, Fault] = {}
    collect(faults, _check_names, env)
    collect(faults, _check_tasks, env)
    plays: list[_Play] = []
    for at in range(num_episodes):
        episode_seed = derive_seed("check", 0, at)
        collect(faults, _check_episode, env, episode_seed, at % 2 == 1, max_steps, plays)
    collect(faults, _check_replays, env, plays)
    collect(faults, _check_limit, env, plays)
    return faults


def _check_names(env: Env) -> None:
    library = env.id.partition(":")[0]
    if library not in ENVIRONMENTS.libraries and not re.fullmatch(r"[a-z0-9_]+-v\d+", env.id):
        raise Broken("id-without-version", f"id is '{env.id}'; write it like 'my_game-v1'")
    check_roles(env)
    if "random" not in env.players:
        raise Broken("no-random-player", f"players are {sorted(env.players)}; add one: 'random'")


def _check_tasks(env: Env) -> None:
    for split in SPLITS:
        first, again = tasks_of(env, split), tasks_of(env, split)
        if not first:
            raise Broken("bad-tasks", f"tasks('{split}') is empty")
        if first[:64] != again[:64]:
            raise Broken("bad-tasks", f"tasks('{split}') gives other tasks the second time")
        for task in first[:64]:
            if json.loads(json.dumps(task.data)) != task.data:
                raise Broken("bad-tasks", f"the data of '{task.id}' changes when written as JSON")
    check_splits(env, "train")


def _check_episode(env: Env, seed: int, nonsense: bool, max_steps: int, plays: list[_Play]) -> None:
    rng = random.Random(seed)
    tasks = env.tasks("train")
    task = tasks[rng.randrange(min(len(tasks), 64))]
    state = call(lambda: env.reset(task, seed), "reset")
    check_state(state)
    if call(lambda: env.reset(task, seed), "reset") != state:
        raise Broken("reset-not-repeatable", f"two resets of task '{task.id}', seed {seed} differ")
    paid: set[str] = set()
    acted: set[str] = set()
    script: list[tuple[dict[str, str], StepResult[Any]]] = []
    for _ in range(max_steps):
        roles = check_acting(env, state)
        if not roles:
            break
        acted |= set(roles)
        for role in roles:
            _check_observation(env, state, role, rng)
            _check_silence(env, state, role)
        replies = {role: _reply(env, state, role, rng, nonsense) for role in roles}
        rival = {role: _reply(env, state, role, rng, not nonsense) for role in roles}
        result = _check_step(env, state, replies, rival)
        paid |= _check_rewards(env, roles, result.rewards)
        paid |= _check_submissions(env, result)
        script.append((replies, result))
        state = result.state
    else:
        raise Broken("never-ends", f"task '{task.id}' was not over after {max_steps} steps")
    for role in env.roles:
        success: object = call(partial(env.success, state, role), "success")
        if not isinstance(success, YES_OR_NO):
            raise Broken("bad-success", f"success for '{role}' is {success!r}, not True or False")
        answer: object = call(partial(env.answer, state, role), "answer")
        if not isinstance(answer, str | None):
            raise Broken("bad-answer", f"answer of '{role}' is {answer!r:.60}; give text or None")
    if unpaid := sorted(acted - paid):
        raise Broken("never-paid", f"a whole play paid {unpaid} nothing at any level")
    _check_late(env, [(set(replies), result.rewards) for replies, result in script])
    plays.append(_Play(task, seed, script))


def _check_limit(env: Env, plays: list[_Play]) -> None:
    """Look for an end that is worse than being cut at a limit: who is losing would stall."""
    cut = env.limit_rewards(env.roles)
    for play in plays:
        end = play.script[-1][1].rewards if play.script else Rewards()
        for role in env.roles:
            ended, stalled = _outcome(end, role), _outcome(cut, role)
            if ended is not None and stalled is not None and ended < stalled:
                raise Broken(
                    "limit-reward",
                    f"task '{play.task.id}' ended with {ended:g} for '{role}', and an episode that "
                    f"a limit cuts earns {stalled:g}; declare limit_reward = {ended:g} or less",
                )


def _outcome(rewards: Rewards, role: str) -> float | None:
    """What a role got at the levels of agent and team; None if that is nothing."""
    found = total([rewards.agent.get(role), rewards.team])
    return found.value if isinstance(found, Scored) else None


def _check_observation(env: Env, state: object, role: str, rng: random.Random) -> None:
    seen = seen_by(env, state, role)
    _check_images(env, role, [m for m in seen if isinstance(m, Message)])
    if call(lambda: tuple(env.observe(state, role)), "observe") != seen:
        raise Broken("observe-not-repeatable", f"'{role}' is shown another text the second time")
    other = call(lambda: env.redeal(state, role, rng), "redeal")
    if call(lambda: tuple(env.observe(other, role)), "observe") != seen:
        raise Broken(
            "hidden-leak", f"what '{role}' must not know was changed, and its observation changed"
        )


def _check_images(env: Env, role: str, seen: list[Message]) -> None:
    images = [image for message in seen for image in message.images]
    if images and role not in env.image_roles:
        raise Broken(
            "undeclared-image", f"'{role}' is shown an image and is not among `seeing`; add it"
        )
    for image in images:
        try:
            check_image(image)
        except ImageError as error:
            raise Broken("bad-image", f"'{role}' is shown what nobody can see: {error}") from error


def _check_silence(env: Env, state: object, role: str) -> None:
    silence: object = call(lambda: env.silence(state, role), "silence")
    if not isinstance(silence, str):
        raise Broken("bad-silence", f"silence of '{role}' is {silence!r:.60}; give a reply")


def _reply(env: Env, state: object, role: str, rng: random.Random, nonsense: bool) -> str:
    if nonsense and rng.random() < 0.5:
        return rng.choice(NONSENSE)
    player = env.players.get("random")
    if player is None:
        return rng.choice(NONSENSE)
    return call(lambda: player(env, state, role, rng), "the player 'random'")


def _check_step(
    env: Env, state: Any, replies: Mapping[str, str], rival: Mapping[str, str]
) -> StepResult[Any]:
    """Step twice, with a rival fork in between: nothing may have moved."""
    before = pickle.dumps(state)
    result = call(lambda: env.step(state, dict(replies)), f"step on {dict(replies)!r:.120}")
    if not isinstance(result, StepResult):
        raise Broken("bad-result", f"step gave {type(result).__name__}; give a StepResult")
    check_state(result.state)
    if pickle.loads(before) != state:  # noqa: S301 - bytes that we made just now
        raise Broken("mutated-state", "step changed the state that it was given")
    fork = call(lambda: env.step(state, dict(rival)), f"step on {dict(rival)!r:.120}")
    kept = pickle.dumps(fork.state)
    again = call(lambda: env.step(state, dict(replies)), "step")
    if again != result:
        raise Broken("step-not-repeatable", "the same step from the same state gave another result")
    if pickle.loads(kept) != fork.state:  # noqa: S301 - bytes that we made just now
        raise Broken("fork-leak", "stepping one fork changed another")
    if not all(isinstance(value, int | float) for value in result.metrics.values()):
        raise Broken("bad-metrics", f"metrics are {result.metrics!r:.80}; give numbers")
    return result


def _check_rewards(env: Env, acting: tuple[str, ...], rewards: object) -> set[str]:
    """Check what a step paid; give the roles that it paid."""
    if not isinstance(rewards, Rewards):
        raise Broken("bad-rewards", f"rewards are {rewards!r:.60}; give Rewards(...)")
    levels = {"process": rewards.process, "agent": rewards.agent}
    for level, by_role in levels.items():
        if unknown := sorted(set(by_role) - set(env.roles)):
            raise Broken("unknown-role", f"{level} rewards name {unknown}, not among the roles")
    if silent := sorted(set(rewards.process) - set(acting)):
        raise Broken("process-without-reply", f"process rewards for {silent}, who did not act")
    paid = {*rewards.process, *rewards.agent, *(env.roles if rewards.team is not None else ())}
    if not env.late_rewards and not set(acting) <= paid:
        raise Broken(
            "late-rewards",
            f"a step paid {sorted(set(acting) - paid)} nothing; pay every acting role, or set "
            "late_rewards = True",
        )
    return paid


def _check_late(env: Env, steps: Sequence[tuple[set[str], Rewards]]) -> None:
    """A role that acts without a reward of a level, and gets one of it later, is rewarded late."""
    if env.late_rewards:
        return
    waiting: set[tuple[str, str]] = set()
    for acting, rewards in steps:
        team = set(env.roles) if rewards.team is not None else set()
        given = {"agent": set(rewards.agent), "team": team}
        for level, roles in given.items():
            if late := sorted(role for role in roles if (role, level) in waiting):
                raise Broken(
                    "late-rewards",
                    f"{late} acted in a step without {level} reward and got one in a later step; "
                    "give it in every step, or set late_rewards = True",
                )
            waiting |= {(role, level) for role in acting - roles}


def _check_submissions(env: Env, result: StepResult[Any]) -> set[str]:
    """Check what a step lays before a judge; give the roles that a judge would pay."""
    for role, submission in result.submissions.items():
        if role not in (TEAM, *env.roles) or not isinstance(submission, Submission):
            raise Broken(
                "bad-submission",
                f"for {role!r} a judge is shown {submission!r:.60}; give a Submission",
            )
        if json.loads(json.dumps(dict(submission.facts))) != submission.facts:
            raise Broken("bad-submission", f"facts for {role!r} change when written as JSON")
        for part in ("", *env.rule_parts):
            _check_verdict(call(partial(env.rule, submission, part), "rule"))
    return set(env.roles) if TEAM in result.submissions else set(result.submissions)


def _check_verdict(verdict: object) -> None:
    fits = isinstance(verdict, Scored) and 0 <= verdict.value <= 1
    if not fits and not isinstance(verdict, Failed):
        raise Broken(
            "bad-submission", f"the rule gave {verdict!r:.60}; give Scored from 0 to 1, or Failed"
        )


def _check_replays(env: Env, plays: list[_Play]) -> None:
    """A copy of the environment, given all plays at once and step by step, must go the same way."""
    try:
        twin: Env = pickle.loads(pickle.dumps(env))  # noqa: S301 - bytes that we made just now
    except Exception as error:
        raise Broken("not-picklable", f"the environment cannot be pickled: {error}") from error
    states = [twin.reset(play.task, play.seed) for play in plays]
    for at in range(max((len(play.script) for play in plays), default=0)):
        for number, play in enumerate(plays):
            if at >= len(play.script):
                continue
            replies, expected = play.script[at]
            result = twin.step(states[number], replies)
            if result != expected:
                raise Broken(
                    "hidden-memory",
                    f"a replay beside other plays, in a copy of the environment, went another way "
                    f"at step {at + 1}: something outside the state decides what happens",
                )
            states[number] = result.state
