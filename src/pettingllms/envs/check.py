"""`check_env`: the environment contract as a test that anyone can run on their own environment.

It plays episodes with the `random` player and with replies that are nonsense, and looks for what
would quietly spoil training: states that change under a fork's feet, chance that no seed controls,
prompts that leak, rewards that nobody can trust. Each fault has a name and says where it was seen.
"""

import json
import pickle
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.workflow import Workflow
from pettingllms.errors import EnvContractError, ImageError, describe
from pettingllms.images import check_image
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed
from pettingllms.types import TEAM, Exhibit, Failed, Message, Rewards, Scored, Task

Env = Environment[Any, Any]
ResultT = TypeVar("ResultT")

SPLITS: tuple[Split, ...] = ("train", "test")
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
class Fault:
    """One broken promise: a name that tests can look for, and where it was seen."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"[{self.name}] {self.detail}"


@dataclass(frozen=True, slots=True)
class _Play:
    """A play as it went: the replies of every step and what they led to."""

    task: Task
    seed: int
    script: list[tuple[dict[str, str], StepResult[Any]]]


class _Broken(Exception):  # noqa: N818 - carries a fault to the one place that collects them
    def __init__(self, name: str, detail: str) -> None:
        self.fault = Fault(name, detail)


def check_env(env: Env, num_episodes: int = 8, max_steps: int = 2000) -> None:
    """Raise EnvContractError with every fault found in the environment and in its solo form."""
    _refuse(env, find_faults(env, num_episodes, max_steps))


def check_start(env: Env, forks: bool, split: Split = "train") -> None:
    """Raise EnvContractError if plays of a split could not begin, or would be told apart from
    sound ones by nothing: tasks of which some are in both splits, states that siblings would change
    for each other (`forks`). Takes no step, so what a step does wrong is not found."""
    faults: dict[str, Fault] = {}
    _collect(faults, _check_roles, env)
    _collect(faults, _check_splits, env, split)
    if not faults and not isinstance(env, Workflow):
        _collect(faults, _check_first, env, forks, split)
    _refuse(env, faults.values())


def _refuse(env: Env, faults: Iterable[Fault]) -> None:
    lines = "\n".join(f"  - {fault}" for fault in faults)
    if lines:
        name = getattr(env, "id", type(env).__name__)
        raise EnvContractError(f"'{name}' breaks the environment contract:\n{lines}")


def find_faults(env: Env, num_episodes: int = 8, max_steps: int = 2000) -> list[Fault]:
    """Every fault found, at most one of each name."""
    faults = _faults_of(env, num_episodes, max_steps)
    if faults or len(env.roles) == 1:
        return list(faults.values())
    try:
        solo = _call(env.solo, "solo()")
        if len(solo.roles) != 1:
            raise _Broken("no-solo", f"solo() has the roles {solo.roles}; it must have one")  # noqa: TRY301
    except _Broken as broken:
        return [Fault("no-solo", broken.fault.detail)]
    faults = _faults_of(solo, num_episodes, max_steps)
    return [Fault(fault.name, f"in the solo form, {fault.detail}") for fault in faults.values()]


def _faults_of(env: Env, num_episodes: int, max_steps: int) -> dict[str, Fault]:
    faults: dict[str, Fault] = {}
    _collect(faults, _check_names, env)
    _collect(faults, _check_tasks, env)
    plays: list[_Play] = []
    for at in range(num_episodes):
        episode_seed = derive_seed("check", 0, at)
        _collect(faults, _check_episode, env, episode_seed, at % 2 == 1, max_steps, plays)
    _collect(faults, _check_replays, env, plays)
    return faults


def _collect(faults: dict[str, Fault], check: Callable[..., None], *args: object) -> None:
    try:
        check(*args)
    except _Broken as broken:
        faults.setdefault(broken.fault.name, broken.fault)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what no check foresaw is a fault too
        faults.setdefault("raises", Fault("raises", describe(error)))


def _check_names(env: Env) -> None:
    library = env.id.partition(":")[0]
    if library not in ENVIRONMENTS.libraries and not re.fullmatch(r"[a-z0-9_]+-v\d+", env.id):
        raise _Broken("id-without-version", f"id is '{env.id}'; write it like 'my_game-v1'")
    _check_roles(env)
    if "random" not in env.players:
        raise _Broken("no-random-player", f"players are {sorted(env.players)}; add one: 'random'")


def _check_roles(env: Env) -> None:
    roles: object = env.roles
    if isinstance(roles, str):
        raise _Broken("bad-roles", f"roles are the text {roles!r}; write ({roles!r},)")
    if not env.roles or len(set(env.roles)) != len(env.roles):
        raise _Broken("bad-roles", f"roles are {env.roles}; give at least one, each once")


def _check_tasks(env: Env) -> None:
    for split in SPLITS:
        first, again = _tasks(env, split), _tasks(env, split)
        if not first:
            raise _Broken("bad-tasks", f"tasks('{split}') is empty")
        if first[:64] != again[:64]:
            raise _Broken("bad-tasks", f"tasks('{split}') gives other tasks the second time")
        for task in first[:64]:
            if json.loads(json.dumps(task.data)) != task.data:
                raise _Broken("bad-tasks", f"the data of '{task.id}' changes when written as JSON")
    _check_splits(env, "train")


def _check_splits(env: Env, wanted: Split) -> None:
    """What runs rely on: tasks of the split, each once, and none of them in both."""
    ids: dict[str, set[str]] = {}
    for split in SPLITS:
        tasks = _tasks(env, split)
        ids[split] = {task.id for task in tasks}
        if len(ids[split]) < len(tasks):
            raise _Broken("bad-tasks", f"tasks('{split}') gives one id to several tasks")
    if not ids[wanted]:
        raise _Broken("bad-tasks", f"tasks('{wanted}') is empty")
    if ids["train"] & ids["test"]:
        raise _Broken("split-overlap", f"in both splits: {sorted(ids['train'] & ids['test'])[:3]}")


def _tasks(env: Env, split: Split) -> Sequence[Task]:
    given: object = _call(lambda: env.tasks(split), f"tasks('{split}')")
    if not isinstance(given, Sequence):
        raise _Broken("bad-tasks", f"tasks('{split}') gave {given!r:.60}; give a list of Task")
    # Where tasks are made when they are asked for, the first must do.
    tasks = given if isinstance(given, list | tuple) else given[:64]
    if wrong := [task for task in tasks if not isinstance(task, Task)]:
        raise _Broken("bad-tasks", f"tasks('{split}') has {wrong[0]!r:.60}; give a list of Task")
    return tasks


def _check_first(env: Env, forks: bool, split: Split) -> None:
    """What the roles that speak first are shown; for forks, also that no step could change it."""
    state = _call(lambda: env.reset(env.tasks(split)[0], 0), "reset")
    if forks:
        _check_state(state)
    for role in _check_acting(env, state):
        _seen(env, state, role)


def _check_episode(env: Env, seed: int, nonsense: bool, max_steps: int, plays: list[_Play]) -> None:
    rng = random.Random(seed)
    tasks = env.tasks("train")
    task = tasks[rng.randrange(min(len(tasks), 64))]
    state = _call(lambda: env.reset(task, seed), "reset")
    _check_state(state)
    if _call(lambda: env.reset(task, seed), "reset") != state:
        raise _Broken("reset-not-repeatable", f"two resets of task '{task.id}', seed {seed} differ")
    paid: set[str] = set()
    acted: set[str] = set()
    script: list[tuple[dict[str, str], StepResult[Any]]] = []
    for _ in range(max_steps):
        roles = _check_acting(env, state)
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
        paid |= _check_exhibits(env, result)
        script.append((replies, result))
        state = result.state
    else:
        raise _Broken("never-ends", f"task '{task.id}' was not over after {max_steps} steps")
    for role in env.roles:
        success: object = _call(partial(env.success, state, role), "success")
        if not isinstance(success, bool):
            raise _Broken("bad-success", f"success for '{role}' is {success!r}, not True or False")
        answer: object = _call(partial(env.answer, state, role), "answer")
        if not isinstance(answer, str | None):
            raise _Broken("bad-answer", f"answer of '{role}' is {answer!r:.60}; give text or None")
    if unpaid := sorted(acted - paid):
        raise _Broken("never-paid", f"a whole play paid {unpaid} nothing at any level")
    plays.append(_Play(task, seed, script))


def _call(call: Callable[[], ResultT], what: str) -> ResultT:
    try:
        return call()
    except _Broken:
        raise
    except (Exception, SystemExit) as error:
        raise _Broken("raises", f"{what} raised {describe(error)}") from error


def _check_state(state: object) -> None:
    try:
        copy = pickle.loads(pickle.dumps(state))  # noqa: S301 - bytes that we made just now
    except Exception as error:
        raise _Broken("not-picklable", f"the state cannot be pickled: {error}") from error
    if copy != state:
        raise _Broken("no-equality", "a pickled copy of a state is not equal to it")
    try:
        hash(state)
    except TypeError as error:
        raise _Broken(
            "mutable-state",
            f"the state can be changed in place ({error}); make it a frozen dataclass of numbers, "
            "strings and tuples",
        ) from error


def _check_acting(env: Env, state: object) -> tuple[str, ...]:
    roles: Any = _call(lambda: env.acting(state), "acting")
    if not isinstance(roles, tuple) or len(set(roles)) != len(roles):
        raise _Broken("bad-acting", f"acting gave {roles!r}; give a tuple with each role once")
    unknown = [role for role in roles if role not in env.roles]
    if unknown:
        raise _Broken("unknown-role", f"acting gave {unknown}, roles are {list(env.roles)}")
    return tuple(roles)


def _seen(env: Env, state: object, role: str) -> tuple[object, ...]:
    seen: tuple[object, ...] = _call(lambda: tuple(env.observe(state, role)), "observe")
    wrong = [m for m in seen if not isinstance(m, Message) or not (m.content.strip() or m.parts)]
    if wrong or not seen:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise _Broken(
            "bad-observation",
            f"'{role}' is shown {shown:.60}; give a list of system(text) and user(text)",
        )
    return seen


def _check_observation(env: Env, state: object, role: str, rng: random.Random) -> None:
    seen = _seen(env, state, role)
    _check_images(env, role, [m for m in seen if isinstance(m, Message)])
    if _call(lambda: tuple(env.observe(state, role)), "observe") != seen:
        raise _Broken("observe-not-repeatable", f"'{role}' is shown another text the second time")
    other = _call(lambda: env.redeal(state, role, rng), "redeal")
    if _call(lambda: tuple(env.observe(other, role)), "observe") != seen:
        raise _Broken(
            "hidden-leak", f"what '{role}' must not know was changed, and its observation changed"
        )


def _check_images(env: Env, role: str, seen: list[Message]) -> None:
    images = [image for message in seen for image in message.images]
    if images and role not in env.seeing:
        raise _Broken(
            "undeclared-image", f"'{role}' is shown an image and is not among `seeing`; add it"
        )
    for image in images:
        try:
            check_image(image)
        except ImageError as error:
            raise _Broken("bad-image", f"'{role}' is shown what nobody can see: {error}") from error


def _check_silence(env: Env, state: object, role: str) -> None:
    silence: object = _call(lambda: env.silence(state, role), "silence")
    if not isinstance(silence, str):
        raise _Broken("bad-silence", f"silence of '{role}' is {silence!r:.60}; give a reply")


def _reply(env: Env, state: object, role: str, rng: random.Random, nonsense: bool) -> str:
    if nonsense and rng.random() < 0.5:
        return rng.choice(NONSENSE)
    player = env.players.get("random")
    if player is None:
        return rng.choice(NONSENSE)
    return _call(lambda: player(env, state, role, rng), "the player 'random'")


def _check_step(
    env: Env, state: Any, replies: Mapping[str, str], rival: Mapping[str, str]
) -> StepResult[Any]:
    """Step twice, with a rival fork in between: nothing may have moved."""
    before = pickle.dumps(state)
    result = _call(lambda: env.step(state, dict(replies)), f"step on {dict(replies)!r:.120}")
    if not isinstance(result, StepResult):
        raise _Broken("bad-result", f"step gave {type(result).__name__}; give a StepResult")
    _check_state(result.state)
    if pickle.loads(before) != state:  # noqa: S301 - bytes that we made just now
        raise _Broken("mutated-state", "step changed the state that it was given")
    fork = _call(lambda: env.step(state, dict(rival)), f"step on {dict(rival)!r:.120}")
    kept = pickle.dumps(fork.state)
    again = _call(lambda: env.step(state, dict(replies)), "step")
    if again != result:
        raise _Broken(
            "step-not-repeatable", "the same step from the same state gave another result"
        )
    if pickle.loads(kept) != fork.state:  # noqa: S301 - bytes that we made just now
        raise _Broken("fork-leak", "stepping one fork changed another")
    if not all(isinstance(value, int | float) for value in result.metrics.values()):
        raise _Broken("bad-metrics", f"metrics are {result.metrics!r:.80}; give numbers")
    return result


def _check_rewards(env: Env, acting: tuple[str, ...], rewards: object) -> set[str]:
    """Check what a step paid; give the roles that it paid."""
    if not isinstance(rewards, Rewards):
        raise _Broken("bad-rewards", f"rewards are {rewards!r:.60}; give Rewards(...)")
    levels = {"process": rewards.process, "agent": rewards.agent}
    for level, by_role in levels.items():
        if unknown := sorted(set(by_role) - set(env.roles)):
            raise _Broken("unknown-role", f"{level} rewards name {unknown}, not among the roles")
    if silent := sorted(set(rewards.process) - set(acting)):
        raise _Broken("process-without-reply", f"process rewards for {silent}, who did not act")
    paid = {*rewards.process, *rewards.agent, *(env.roles if rewards.team is not None else ())}
    if not env.late_rewards and not set(acting) <= paid:
        raise _Broken(
            "late-rewards",
            f"a step paid {sorted(set(acting) - paid)} nothing; pay every acting role, or set "
            "late_rewards = True",
        )
    return paid


def _check_exhibits(env: Env, result: StepResult[Any]) -> set[str]:
    """Check what a step lays before a judge; give the roles that a judge would pay."""
    for role, exhibit in result.exhibits.items():
        if role not in (TEAM, *env.roles) or not isinstance(exhibit, Exhibit):
            raise _Broken(
                "bad-exhibit", f"for {role!r} a judge is shown {exhibit!r:.60}; give an Exhibit"
            )
        if json.loads(json.dumps(dict(exhibit.facts))) != exhibit.facts:
            raise _Broken("bad-exhibit", f"facts for {role!r} change when written as JSON")
        for part in ("", *env.rule_parts):
            _check_verdict(_call(partial(env.rule, exhibit, part), "rule"))
    return set(env.roles) if TEAM in result.exhibits else set(result.exhibits)


def _check_verdict(verdict: object) -> None:
    fits = isinstance(verdict, Scored) and 0 <= verdict.value <= 1
    if not fits and not isinstance(verdict, Failed):
        raise _Broken(
            "bad-exhibit", f"the rule gave {verdict!r:.60}; give Scored from 0 to 1, or Failed"
        )


def _check_replays(env: Env, plays: list[_Play]) -> None:
    """A copy of the environment, given all plays at once and step by step, must go the same way."""
    try:
        twin: Env = pickle.loads(pickle.dumps(env))  # noqa: S301 - bytes that we made just now
    except Exception as error:
        raise _Broken("not-picklable", f"the environment cannot be pickled: {error}") from error
    states = [twin.reset(play.task, play.seed) for play in plays]
    for at in range(max((len(play.script) for play in plays), default=0)):
        for number, play in enumerate(plays):
            if at >= len(play.script):
                continue
            replies, expected = play.script[at]
            result = twin.step(states[number], replies)
            if result != expected:
                raise _Broken(
                    "hidden-memory",
                    f"a replay beside other plays, in a copy of the environment, went another way "
                    f"at step {at + 1}: something outside the state decides what happens",
                )
            states[number] = result.state
