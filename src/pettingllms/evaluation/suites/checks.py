"""What keeps a bench from being played, found before anything is: all problems at once.

An environment may need a package, a program or a sandbox that this machine lacks, and it may say so
only when it is made, when its tasks are asked for, or in the middle of a play. So each bench is
made and played once by its `random` player. What is wrong in the suite itself is kept apart from
what is missing here, or in the subject, such as eyes for a bench of images: the one is to be
mended, the other may be passed over.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from pettingllms.config import RewardConfig, problems_in
from pettingllms.config.checks import build_env, without_images
from pettingllms.errors import PettingError, UnknownNameError, describe, nearest
from pettingllms.evaluation.players import Env, not_seen_by
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer
from pettingllms.evaluation.suites.rollouts import Form, Settings
from pettingllms.evaluation.suites.suite import SOLO, Bench
from pettingllms.rollout import Worker
from pettingllms.rollout.env_calls import CallFailed, Guard
from pettingllms.rollout.scripted import scripted_player
from pettingllms.types import Episode, Task

TRIAL = "random"


@dataclass(slots=True)
class Ready:
    """Benches that can be played, and why others cannot."""

    forms: dict[str, dict[str, Form]] = field(default_factory=dict)
    """By bench, then by form."""
    wrong: list[str] = field(default_factory=list)
    """What is to be mended in the suite or the command."""
    missing: dict[str, list[str]] = field(default_factory=dict)
    """By bench: what this machine or the subject lacks."""


class _Wrong(Exception):  # noqa: N818 - what a user is told, not an error of the program
    """Something that is to be mended."""


class _Missing(Exception):  # noqa: N818 - as above
    """Something that this machine or the subject lacks."""


def get_ready(benches: Sequence[Bench], evaluated: EvaluatedPlayer) -> Ready:
    """Make every bench and try it out."""
    ready = Ready()
    for bench in benches:
        forms: dict[str, Form] = {}
        for name in bench.forms:
            try:
                forms[name] = _make(bench, name, evaluated)
                _try_out(forms[name])
            except _Wrong as wrong:
                ready.wrong += [f"{bench.title}: {line}" for line in wrong.args]
            except _Missing as missing:
                lines = ready.missing.setdefault(bench.title, [])
                lines += [line for line in missing.args if line not in lines]
        ready.forms[bench.title] = forms
    ready.wrong = list(dict.fromkeys(ready.wrong))
    return ready


def _make(bench: Bench, name: str, evaluated: EvaluatedPlayer) -> Form:
    try:
        section = bench.section(name)
    except ValidationError as error:
        raise _Wrong(*problems_in(error, "options")) from None
    except UnknownNameError as error:
        kind = _Wrong if error.__cause__ is None else _Missing
        raise kind(str(error)) from None
    env, broken = build_env({"env": section})
    if broken is not None:
        raise _Missing(_words(broken))
    alone = name == SOLO and bench.against_solo
    roles = tuple(env.roles if alone else bench.roles or env.roles)
    role = roles[0] if alone else bench.role or roles[0]
    if problems := list(_unknown(env, bench, roles, role, evaluated)):
        raise _Wrong(*problems)
    if unseen := list(dict.fromkeys(_unseen(env, roles, evaluated))):
        raise _Missing(*unseen)
    return Form(bench, name, env, _tasks(env, bench), roles, role)


def _unknown(
    env: Env, bench: Bench, roles: Sequence[str], role: str, evaluated: EvaluatedPlayer
) -> list[str]:
    """Roles and players that the environment does not have."""
    found = [
        f"roles: '{env.id}' has no role '{one}'; {nearest(one, env.roles)}"
        for one in roles
        if one not in env.roles
    ]
    if role not in roles:
        found.append(f"role: '{role}' is not the subject's; {nearest(role, roles)}")
    players = [bench.others] if set(roles) < set(env.roles) else []
    players += [evaluated.name] if evaluated.kind == "player" else []
    for player in players:
        try:
            env.player(player)
        except UnknownNameError as error:
            found.append(str(error))
    return found


def _unseen(env: Env, roles: Sequence[str], evaluated: EvaluatedPlayer) -> Iterator[str]:
    """Roles that are shown images, for which the subject has a model that only reads."""
    for role in env.image_roles:
        if evaluated.config is None or role not in roles:
            continue
        policy = evaluated.config.policies[evaluated.policy_of(role)]
        if unseen := not_seen_by(env, policy):
            yield f"{unseen}, or {without_images(env, 'options')}"


def _tasks(env: Env, bench: Bench) -> list[Task]:
    first, last = bench.first_task, bench.first_task + bench.num_tasks

    async def ask() -> list[Task]:
        with Guard(bench.env_timeout, env.blocking) as guard:
            return await guard.call(
                "tasks", lambda: list(itertools.islice(env.tasks("test"), first, last))
            )

    try:
        tasks = asyncio.run(ask())
    except CallFailed as failed:
        raise _Missing(_words(failed.__cause__ or failed)) from None
    if not tasks:
        raise _Wrong(f"first_task: {first} is past the end of the test tasks")
    return tasks


def _try_out(form: Form) -> None:
    """Play one task with scripts; what breaks now would break every play."""
    players = {role: scripted_player(form.env, TRIAL) for role in form.env.roles}
    limits = Settings()
    config = form.bench.rollout(1, 1, limits.seconds).model_copy(
        update={"max_reply_tokens": 1_000_000}
    )
    found: list[Episode] = []
    worker = Worker(form.env, players, config, RewardConfig())
    asyncio.run(worker.run(form.tasks[:1], limits.seed, found.append))
    failure = found[0].failure
    if failure is not None and failure.owner != "limit":
        raise _Missing(failure.reason)


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, PettingError) else describe(error)
