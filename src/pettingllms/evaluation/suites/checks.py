"""Check all benches of a suite before the first episode and report all problems at once.

An environment may lack a package, a program or a sandbox, and may fail only when created, when
listing tasks, or during an episode. So each bench is created and played once by its `random`
player. Errors in the suite are kept apart from missing requirements, such as a VLM for a bench with
images: errors must be fixed, while benches with missing requirements can be skipped.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from pettingllms.config import RewardConfig, problems_in
from pettingllms.config.checks import build_env, without_images
from pettingllms.errors import DataError, PettingError, UnknownNameError, describe, nearest
from pettingllms.evaluation.players import Env, no_image_support
from pettingllms.evaluation.suites.bench_data import missing_data, sources_of
from pettingllms.evaluation.suites.evaluated import EvaluatedPlayer
from pettingllms.evaluation.suites.rollouts import Form, Settings
from pettingllms.evaluation.suites.suite import SOLO, Bench
from pettingllms.rollouts import Worker
from pettingllms.rollouts.env_calls import CallFailed, EnvCaller
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.types import Episode, Task

TRIAL_PLAYER = "random"


@dataclass(slots=True)
class CheckedBenches:
    """Benches that can run, and why others cannot."""

    forms: dict[str, dict[str, Form]] = field(default_factory=dict)
    """By bench, then by form."""
    errors: list[str] = field(default_factory=list)
    """Errors in the suite or the command."""
    missing: dict[str, list[str]] = field(default_factory=dict)
    """By bench: requirements that this machine or the evaluated player lacks."""


class _SuiteError(Exception):
    """An error in the suite."""


class _MissingRequirementError(Exception):
    """A requirement that this machine or the evaluated player lacks."""


def check_benches(benches: Sequence[Bench], evaluated: EvaluatedPlayer) -> CheckedBenches:
    """Create every bench and run one trial episode."""
    checked = CheckedBenches()
    absent = missing_data(benches)
    for bench in benches:
        forms: dict[str, Form] = {}
        if bench.title in absent:
            checked.missing[bench.title] = absent[bench.title]
            checked.forms[bench.title] = forms
            continue
        for name in bench.forms:
            try:
                forms[name] = _make(bench, name, evaluated)
                _run_trial(forms[name])
            except _SuiteError as error:
                checked.errors += [f"{bench.title}: {line}" for line in error.args]
            except _MissingRequirementError as missing:
                lines = checked.missing.setdefault(bench.title, [])
                lines += [line for line in missing.args if line not in lines]
        checked.forms[bench.title] = forms
    checked.errors = list(dict.fromkeys(checked.errors))
    return checked


def _make(bench: Bench, name: str, evaluated: EvaluatedPlayer) -> Form:
    if unset := [key for key in bench.needed_options if not bench.options.get(key)]:
        raise _MissingRequirementError(
            f"needs {' and '.join(unset)}; {' '.join(f'--option {key}=VALUE' for key in unset)}"
        )
    try:
        sources_of(bench)
        section = bench.section(name)
    except DataError as error:
        raise _SuiteError(str(error)) from None
    except ValidationError as error:
        raise _SuiteError(*problems_in(error, "options")) from None
    except UnknownNameError as error:
        kind = _SuiteError if error.__cause__ is None else _MissingRequirementError
        raise kind(str(error)) from None
    env, broken = build_env({"env": section})
    if broken is not None:
        raise _MissingRequirementError(_message(broken))
    is_solo = name == SOLO and bench.against_solo
    roles = tuple(env.roles if is_solo else bench.roles or env.roles)
    role = roles[0] if is_solo else bench.role or roles[0]
    if problems := list(_unknown_names(env, bench, roles, role, evaluated)):
        raise _SuiteError(*problems)
    if unsupported := list(dict.fromkeys(_text_only_roles(env, roles, evaluated))):
        raise _MissingRequirementError(*unsupported)
    return Form(bench, name, env, _tasks(env, bench), roles, role)


def _unknown_names(
    env: Env, bench: Bench, roles: Sequence[str], role: str, evaluated: EvaluatedPlayer
) -> list[str]:
    """Roles and players that the environment does not have."""
    found = [
        f"roles: '{env.id}' has no role '{one}'; {nearest(one, env.roles)}"
        for one in roles
        if one not in env.roles
    ]
    if role not in roles:
        found.append(
            f"role: '{role}' is not played by the evaluated player; {nearest(role, roles)}"
        )
    players = [bench.others] if set(roles) < set(env.roles) else []
    players += [evaluated.name] if evaluated.kind == "player" else []
    for player in players:
        try:
            env.player(player)
        except UnknownNameError as error:
            found.append(str(error))
    return found


def _text_only_roles(env: Env, roles: Sequence[str], evaluated: EvaluatedPlayer) -> Iterator[str]:
    """Why the evaluated player's models cannot play roles with images."""
    for role in env.image_roles:
        if evaluated.config is None or role not in roles:
            continue
        policy = evaluated.config.policies[evaluated.policy_for(role)]
        if reason := no_image_support(env, policy):
            yield f"{reason}, or {without_images(env, 'options')}"


def _tasks(env: Env, bench: Bench) -> list[Task]:
    first, last = bench.first_task, bench.last_task

    async def list_tasks() -> list[Task]:
        with EnvCaller(bench.env_timeout, env.blocking) as guard:
            return await guard.call(
                "tasks", lambda: list(itertools.islice(env.tasks("test"), first, last))
            )

    try:
        tasks = asyncio.run(list_tasks())
    except CallFailed as failed:
        raise _MissingRequirementError(_message(failed.__cause__ or failed)) from None
    if not tasks:
        raise _SuiteError(f"first_task: {first} is past the end of the test tasks")
    return tasks


def _run_trial(form: Form) -> None:
    """Play one task with scripted players, to find problems that would break every episode."""
    players = {role: scripted_player(form.env, TRIAL_PLAYER) for role in form.env.roles}
    limits = Settings()
    config = form.bench.rollout(1, 1, limits.seconds).model_copy(
        update={"max_reply_tokens": 1_000_000}
    )
    found: list[Episode] = []
    worker = Worker(form.env, players, config, RewardConfig())
    asyncio.run(worker.run(form.tasks[:1], limits.seed, found.append))
    failure = found[0].failure
    if failure is not None and failure.owner != "limit":
        raise _MissingRequirementError(failure.reason)


def _message(error: BaseException) -> str:
    return str(error) if isinstance(error, PettingError) else describe(error)
