"""The co_players section: teammates or opponents of the policies that learn, on a schedule."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.config.policies import TRAINED_KINDS, player_problems
from pettingllms.config.section import Section
from pettingllms.errors import nearest

SCRIPT = "script:"
"""Prefix of scripted players; names of policies have no colon."""


def snapshot_of(member: str) -> tuple[str, int] | None:
    """Policy and step of a snapshot such as `shared@20`; None for other members."""
    policy, at, step = member.rpartition("@")
    return (policy, int(step)) if at and step.isascii() and step.isdigit() else None


class PhaseConfig(Section):
    """A phase of the run with one distribution of co-players."""

    members: dict[str, float] = Field(min_length=1)
    """Co-players and their sampling weights: policies by name, `script:NAME` for scripted players,
    `POLICY@STEP` for a frozen snapshot of a policy that learns."""
    until_step: int | None = Field(default=None, ge=1)
    """Last step of the phase. The last phase needs no end."""
    until_reward: float | None = None
    """The phase also ends when the learners' mean reward over the window reaches this value."""
    drift: int = Field(default=0, ge=0)
    """Steps over which the previous phase's weights change linearly to these. 0: at once."""

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if min(self.members.values()) < 0 or not sum(self.members.values()):
            raise ValueError("weights of members must be 0 or more, and one must be positive")
        return self

    @property
    def ends(self) -> bool:
        """Whether the phase has an end."""
        return self.until_step is not None or self.until_reward is not None


class CoPlayersConfig(Section):
    """Co-players of the policies that learn, on a schedule. Co-players never learn."""

    roles: list[str] = Field(default_factory=list)
    """Roles that co-players fill. Left out: those whose policy does not learn."""
    phases: list[PhaseConfig] = Field(default_factory=list)
    """Phases, in order."""
    window: int = Field(default=4, ge=1)
    """Steps over which rewards are averaged: before a switch, after it, and to detect recovery."""
    recover_share: float = Field(default=0.9, gt=0, le=1)
    """Share of the reward before a switch at which learners count as recovered."""

    def members(self) -> list[str]:
        """All co-players, without repetition."""
        return list(dict.fromkeys(name for phase in self.phases for name in phase.members))

    def policies(self) -> list[str]:
        """Members that are policies of the configuration; they may have no role."""
        return [n for n in self.members() if not n.startswith(SCRIPT) and not snapshot_of(n)]

    def snapshots(self) -> list[tuple[str, int]]:
        """Members that are snapshots: policy and step."""
        found = (snapshot_of(name) for name in self.members())
        return [snapshot for snapshot in found if snapshot is not None]

    def filled_roles(self, roles: Mapping[str, str], policies: Mapping[str, Any]) -> list[str]:
        """Roles that co-players fill, given the role-to-policy map."""
        learns = [name for name, policy in policies.items() if policy.kind in TRAINED_KINDS]
        return self.roles or [role for role, name in roles.items() if name not in learns]

    @model_validator(mode="after")
    def _ends(self) -> Self:
        for at, phase in enumerate(self.phases[:-1], start=1):
            if not phase.ends:
                raise ValueError(f"phase {at} never ends; set until_step or until_reward")
        steps = [phase.until_step for phase in self.phases if phase.until_step is not None]
        if steps != sorted(set(steps)):
            raise ValueError(f"until_step must increase from phase to phase, got {steps}")
        if self.phases and self.phases[0].drift:
            raise ValueError("the first phase has no phase before it; leave its drift out")
        return self


def co_player_problems(sections: Mapping[str, Any]) -> Iterator[str]:
    """Problems between co-players and other sections."""
    co_players: CoPlayersConfig = sections["co_players"]
    roles, policies = sections["roles"], sections["policies"]
    if not co_players.phases:
        yield "co_players: has no phases; add [[co_players.phases]], or remove the section"
        return
    if sections["league"] is not None or sections["rollout"].rotate_roles:
        yield "co_players: excludes [league] and rollout.rotate_roles; use one of them"
    for name in co_players.policies():
        if name not in policies:
            yield f"co_players: no policy is called '{name}'; {nearest(name, policies)}"
        elif policies[name].kind in TRAINED_KINDS:
            yield f"co_players: '{name}' learns; name a snapshot of it, such as '{name}@10'"
    earliest, capabilities = 1, sections["inference"].capabilities
    for phase in co_players.phases:
        for name in phase.members:
            yield from _snapshot_problems(name, earliest, policies, capabilities)
        ends = [earliest + co_players.window - 1 if phase.until_reward is not None else None]
        earliest = 1 + min(n for n in [*ends, phase.until_step, 10**9] if n is not None)
    if roles and not co_players.filled_roles(roles, policies):
        yield "co_players.roles: every role has a policy that learns; name some"


def _snapshot_problems(
    member: str, earliest: int, policies: Mapping[str, Any], capabilities: Any
) -> Iterator[str]:
    found = snapshot_of(member)
    if found is None:
        return
    policy, step = found
    if policy not in policies or policies[policy].kind not in TRAINED_KINDS:
        known = [name for name, section in policies.items() if section.kind in TRAINED_KINDS]
        yield f"co_players: no policy that learns is called '{policy}'; {nearest(policy, known)}"
    elif policies[policy].kind == "full" and not capabilities.model_copies:
        yield (
            f"co_players: '{policy}' is a full model, and the engine serves only one; set "
            f'policies.{policy}.kind = "lora", or inference.engine = "torch"'
        )
    if step >= earliest:
        yield (
            f"co_players: '{member}' may be needed in step {earliest}, before it exists; name an "
            "earlier step, or make the previous phase longer"
        )


def role_problems(co_players: CoPlayersConfig, env: Any) -> Iterator[str]:
    """Roles and scripted players that the environment does not have."""
    for role in co_players.roles:
        if role not in env.roles:
            yield f"co_players.roles: '{env.id}' has no such role; {nearest(role, env.roles)}"
    scripts = [n.removeprefix(SCRIPT) for n in co_players.members() if n.startswith(SCRIPT)]
    yield from player_problems(env, "co_players", scripts)
