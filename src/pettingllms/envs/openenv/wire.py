"""The JSON of the multi-agent extension of OpenEnv, and its limits."""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pettingllms.envs.openenv.fields import MAX_METRIC, Field, clean
from pettingllms.errors import WireError
from pettingllms.types import (
    TEAM,
    Failed,
    Image,
    Message,
    Reward,
    Rewards,
    Scored,
    Submission,
    Table,
)
from pettingllms.types.rewards import SubmissionLevel

PROTOCOL = 2
"""Version of the extension."""
KEY = "pettingllms"
"""Key of the server's description in the `state` message of OpenEnv."""
ALL_ROLES = "*"
"""In a reset request: the session plays every role."""
MAX_REQUEST = 4 * 2**20
"""Largest message that the server reads, in bytes."""
MAX_ANSWER = 32 * 2**20
"""Largest message that the client reads, in bytes."""
MAX_REPLY = 2**18
"""Most characters of a reply."""
MAX_NAME = 255
MAX_ROLES = 64
MAX_MESSAGES = 4096
MAX_PARTS = 64
MAX_CELLS = 2**16
MAX_NUMBERS = 1024
MAX_IMAGE = 8 * 2**20
SEEDS = 2**64
"""Seeds are whole numbers below this."""
SPEAKERS = ("system", "user", "assistant")
OWNERS = ("environment", "sampler", "judge", "limit")
LEVELS = ("agent", "team")
SPLITS = ("train", "test")
UNKNOWN_STATE = "no state"
"""Start of the server's error about a state that it no longer has; the client then replays."""


# Messages -----------------------------------------------------------------------------------------


def messages_to_json(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Chat messages as clients of OpenEnv know them: `role` and `content`.

    Tables are written out in `content`. If there are tables or images, `parts` has them, and
    `plain` the text without tables.
    """
    return [
        {"role": one.speaker, "content": clean(one.text)}
        | ({"parts": [*map(_part_to_json, one.parts)], "plain": clean(one.content)}
           if one.parts else {})
        for one in messages
    ]  # fmt: skip


def messages_from_json(given: Field) -> tuple[Message, ...]:
    """At least one chat message."""
    found = tuple(map(_message_from_json, given.items(MAX_MESSAGES)))
    if not found:
        given.reject("at least one message")
    return found


def _part_to_json(part: Image | Table) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"image": base64.b64encode(part.data).decode()}
    rows = [[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in part.rows]
    return {"columns": [*map(clean, part.columns)], "rows": rows}


def _message_from_json(given: Field) -> Message:
    speaker = given["role"].one_of(SPEAKERS)
    parts = tuple(map(_part_from_json, given["parts"].items(MAX_PARTS)))
    content = given["plain" if parts else "content"].text()
    return Message(speaker, content, parts)  # type: ignore[arg-type]


def _part_from_json(given: Field) -> Image | Table:
    if given.has("image"):
        return _image_from_json(given["image"])
    columns = tuple(one.text() for one in given["columns"].items(MAX_CELLS))
    rows = given["rows"].items(MAX_CELLS)
    if len(columns) * len(rows) > MAX_CELLS:
        given.reject(f"an image, or a table of at most {MAX_CELLS} cells")
    if not columns:
        given.reject("an image, or a table with columns")
    cells = [tuple(_cell(cell) for cell in row.items(len(columns))) for row in rows]
    if any(len(row) != len(columns) for row in cells):
        given["rows"].reject(f"{len(columns)} cells in each row")
    return Table(columns, tuple(cells))


def _cell(given: Field) -> str | int | float | bool | None:
    if given.value is None or isinstance(given.value, bool | int | float):
        return given.value
    return given.text()


def _image_from_json(given: Field) -> Image:
    text = given.text(MAX_IMAGE * 4 // 3 + 4)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        given.reject("a PNG file in base64")
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        given.reject("a PNG file in base64")
    return Image(data)


# Rewards ------------------------------------------------------------------------------------------


def reward_to_json(reward: Reward) -> Any:
    """A number, or an object with the reason of a failure and its owner."""
    if isinstance(reward, Failed):
        return {"failed": clean(reward.reason), "owner": reward.owner}
    return reward.value


def reward_from_json(given: Field) -> Reward:
    """The output of `reward_to_json`."""
    if isinstance(given.value, dict):
        owner = given["owner"].one_of(OWNERS)
        return Failed(given["failed"].text(), owner)  # type: ignore[arg-type]
    return Scored(given.number())


def rewards_to_json(rewards: Rewards) -> dict[str, Any]:
    """The three levels of rewards."""
    return {
        "process": {role: reward_to_json(one) for role, one in rewards.process.items()},
        "agent": {role: reward_to_json(one) for role, one in rewards.agent.items()},
        "team": None if rewards.team is None else reward_to_json(rewards.team),
    }


def rewards_from_json(given: Field, roles: Sequence[str]) -> Rewards:
    """The output of `rewards_to_json`, with known roles only."""
    if given.value is None:
        return Rewards()
    team = given["team"]
    return Rewards(
        process={n: reward_from_json(one) for n, one in by_role(given["process"], roles).items()},
        agent={n: reward_from_json(one) for n, one in by_role(given["agent"], roles).items()},
        team=None if team.value is None else reward_from_json(team),
    )


def by_role(given: Field, roles: Sequence[str]) -> dict[str, Field]:
    """Values by role; unknown roles are an error."""
    found = given.fields(len(roles) + 1)
    if unknown := [name for name in found if name not in roles]:
        raise WireError(
            f"{given.path} names {unknown[0]!a:.60}; expected roles of this episode: "
            f"{', '.join(filter(None, roles))}"[:400]
        )
    return found


# Submissions --------------------------------------------------------------------------------------

VERDICTS = "verdicts"
"""The only fact of a submission that came over the wire: scores of the rule, by its part."""


def submission_to_json(
    submission: Submission, verdicts: Mapping[str, Reward]
) -> dict[str, Any]:  # fmt: skip
    """A submission with the scores of the environment's rule in place of its facts, which may be
    hidden from roles."""
    return {
        "question": clean(submission.question),
        "answer": clean(submission.answer),
        "criteria": clean(submission.criteria),
        "level": submission.level,
        VERDICTS: {part: reward_to_json(one) for part, one in verdicts.items()},
    }


def submissions_from_json(given: Field, roles: Sequence[str]) -> dict[str, Submission]:
    """Submissions by role, or by `TEAM`."""
    return {
        role: Submission(
            one["question"].text(),
            one["answer"].text(),
            one["criteria"].text(),
            {VERDICTS: {p: reward_to_json(reward_from_json(score))
                        for p, score in one[VERDICTS].fields(MAX_ROLES).items()}},
            one["level"].one_of(get_args(SubmissionLevel)),  # type: ignore[arg-type]
        )
        for role, one in by_role(given, (TEAM, *roles)).items()
    }  # fmt: skip


# The description of a server ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a client must know before the first reset."""

    env: str
    roles: tuple[str, ...]
    image_roles: tuple[str, ...] = ()
    players: tuple[str, ...] = ()
    """Names of scripted players that the server runs."""
    num_tasks: Mapping[str, int] = field(default_factory=dict)
    """Number of tasks per split."""
    late_rewards: bool = True
    limit_reward: float = -1.0
    limit_level: str = "agent"
    can_fork: bool = False
    """Whether a session keeps earlier states, so that a client can step from them again."""
    judged: bool = False
    rule_parts: tuple[str, ...] = ()
    runs_programs: bool = False
    submits: bool = False


def info_to_json(info: ServerInfo) -> dict[str, Any]:
    """The description as JSON values."""
    return {
        "protocol": PROTOCOL,
        "env": info.env,
        "roles": [*info.roles],
        "image_roles": [*info.image_roles],
        "players": [*info.players],
        "num_tasks": dict(info.num_tasks),
        "late_rewards": info.late_rewards,
        "limit_reward": info.limit_reward,
        "limit_level": info.limit_level,
        "can_fork": info.can_fork,
        "judged": info.judged,
        "submits": info.submits,
        "rule_parts": [*info.rule_parts],
        "runs_programs": info.runs_programs,
    }


def info_from_json(given: Field) -> ServerInfo:
    """The output of `info_to_json`."""
    if given["protocol"].value != PROTOCOL:
        raise WireError(
            f"{given.path}.protocol is {given['protocol'].value!a:.20}; this version speaks "
            f"{PROTOCOL}; install the same version of pettingllms on both sides"
        )
    roles = _names(given["roles"])
    if not roles or len(set(roles)) != len(roles):
        given["roles"].reject("at least one role, each once")
    return ServerInfo(
        env=given["env"].text(MAX_NAME),
        roles=roles,
        image_roles=tuple(one.one_of(roles) for one in given["image_roles"].items(MAX_ROLES)),
        players=_names(given["players"]),
        num_tasks={split: given["num_tasks"][split].whole(1, 2**53) for split in SPLITS},
        late_rewards=given["late_rewards"].flag(),
        limit_reward=given["limit_reward"].number(),
        limit_level=given["limit_level"].one_of(LEVELS),
        can_fork=given["can_fork"].flag(),
        judged=given["judged"].flag(),
        submits=given["submits"].flag(),
        rule_parts=_names(given["rule_parts"]),
        runs_programs=given["runs_programs"].flag(),
    )


def _names(given: Field) -> tuple[str, ...]:
    found = tuple(one.text(MAX_NAME) for one in given.items(MAX_ROLES))
    for name, one in zip(found, given.items(MAX_ROLES), strict=True):
        if not name or not name.isprintable():
            one.reject("a printable name")
    return found


# An observation -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What a session may see of one state; immutable, and comparable by value."""

    acting: tuple[str, ...] = ()
    """Roles of the session that have to reply."""
    observations: tuple[tuple[str, tuple[Message, ...]], ...] = ()
    silence: tuple[tuple[str, str], ...] = ()
    """No-op replies that are not empty."""
    success: tuple[tuple[str, bool], ...] = ()
    answers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer to a reset or a step."""

    seen: Seen
    state: int
    rewards: Rewards
    metrics: Mapping[str, float]
    submissions: Mapping[str, Submission]
    reply: str | None = None


def outcome_from_json(data: Field, roles: Sequence[str], at_end: str = "done") -> Outcome:
    """The answer of a server that speaks the extension."""
    given, done = data["observation"], data[at_end].flag()
    acting = tuple(one.one_of(roles) for one in given["acting"].items(len(roles)))
    if done == bool(acting) or len(set(acting)) != len(acting):
        given["acting"].reject("roles, each once, or none if the episode is over")
    shown = by_role(given["observations"], roles)
    seen = Seen(
        acting,
        tuple((role, messages_from_json(_require(shown, given, role))) for role in acting),
        tuple((r, f.text(MAX_REPLY)) for r, f in by_role(given["silence"], roles).items()),
        tuple((r, f.flag()) for r, f in by_role(given["success"], roles).items()),
        tuple((r, f.text()) for r, f in by_role(given["answers"], roles).items()),
    )
    if done and {role for role, _ in seen.success} != set(roles):
        given["success"].reject("true or false for every role when the episode is over")
    return Outcome(
        seen,
        given["state"].whole(0, 2**53),
        rewards_from_json(given["rewards"], roles),
        {name: f.number(MAX_METRIC) for name, f in given["metrics"].fields(MAX_NUMBERS).items()},
        submissions_from_json(given["submissions"], roles),
        given["reply"].text(MAX_REPLY) if given.has("reply") else None,
    )


def _require(shown: Mapping[str, Field], given: Field, role: str) -> Field:
    return shown.get(role, Field(f"{given.path}.observations.{role}", None))


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as JSON numbers; JSON has no NaN and no infinity."""
    return {str(name): float(value) for name, value in metrics.items() if math.isfinite(value)}
