"""The league section: opponents of a policy in self-play."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pettingllms.config.policies import TRAINED_KINDS, player_problems
from pettingllms.config.section import Section
from pettingllms.errors import nearest

Rule = Literal["latest", "uniform", "prioritised"]


class LeagueConfig(Section):
    """Opponents for self-play: frozen snapshots, scripted anchors and exploiters. The policy fills
    each role equally often. Games that the shares do not cover are plain self-play."""

    snapshot_every: int = Field(default=0, ge=0)
    """Steps between snapshots; the first has the initial weights. 0: no snapshots."""
    max_snapshots: int = Field(default=32, ge=1)
    """Maximum snapshots in the pool. Beyond it, snapshots are removed so that the pool still spans
    the run."""
    rule: Rule = "prioritised"
    """How snapshots are sampled. `latest`: the newest. `uniform`: uniformly. `prioritised`: more
    often if they beat the policy (prioritized fictitious self-play)."""
    share: float = Field(default=0.5, ge=0, le=1)
    """Share of tasks against snapshots."""
    num_opponents: int = Field(default=4, ge=1)
    """Snapshots drawn per step. Each is a separate batch for the engine."""
    anchors: list[str] = Field(default_factory=list)
    """Scripted opponents, such as minimax, that are met in turn. They stay fixed while the policy
    changes."""
    anchor_share: float = Field(default=0.1, ge=0, le=1)
    """Share of tasks against anchors, if there are any."""
    exploiters: list[str] = Field(default_factory=list)
    """Policies that learn only against the main policy, to find its weaknesses. Their snapshots
    join the pool."""
    exploiter_share: float = Field(default=0.25, ge=0, le=1)
    """Share of tasks against exploiters, if there are any. Both sides learn."""

    def unused_keys(self) -> set[str]:
        """Keys of opponents that the league does not have."""
        of_snapshots = {"max_snapshots", "rule", "share", "num_opponents"}
        return (
            (set() if self.snapshot_every else of_snapshots)
            | (set() if self.anchors else {"anchor_share"})
            | (set() if self.exploiters else {"exploiter_share"})
        )

    @property
    def shares(self) -> dict[str, float]:
        """Share of games per kind of opponent; they sum to 1."""
        shares = {
            "snapshots": self.share if self.snapshot_every else 0.0,
            "anchors": self.anchor_share if self.anchors else 0.0,
            "exploiters": self.exploiter_share if self.exploiters else 0.0,
        }
        return {**shares, "self": max(0.0, 1 - sum(shares.values()))}

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        total = sum(share for kind, share in self.shares.items() if kind != "self")
        if total > 1 + 1e-9:
            raise ValueError(
                f"share, anchor_share and exploiter_share sum to {total:g}, more than 1"
            )
        return self


def league_problems(
    league: LeagueConfig, roles: Mapping[str, str], policies: Mapping[str, Any], capabilities: Any
) -> Iterator[str]:
    """Why these policies cannot form a league."""
    if not (league.snapshot_every or league.anchors or league.exploiters):
        yield (
            "league: has no opponents; set snapshot_every, anchors or exploiters, or remove the "
            "section"
        )
        return
    main = set(roles.values()) or {next(iter(policies))}
    learns = [name for name in main if name in policies and policies[name].kind in TRAINED_KINDS]
    if len(main) > 1 or not learns:
        yield (
            f"league: needs one policy that learns and has every role, but [roles] names "
            f"{', '.join(sorted(main))}; name one full or lora policy for all roles"
        )
    for name in league.exploiters:
        if name not in policies or policies[name].kind not in TRAINED_KINDS:
            known = [n for n, policy in policies.items() if policy.kind in TRAINED_KINDS]
            yield f"league.exploiters: no policy that learns is called '{name}'; " + nearest(
                name, known
            )
        elif name in main:
            yield f"league.exploiters: '{name}' has a role; name a policy without roles"
    whole = [name for name in [*learns, *league.exploiters] if _is_full(policies, name)]
    if league.snapshot_every and whole and not capabilities.model_copies:
        yield (
            f"league.snapshot_every: '{whole[0]}' is a full model, and the engine serves only one;"
            f' set policies.{whole[0]}.kind = "lora", or inference.engine = "torch"'
        )


def anchor_problems(league: LeagueConfig, env: Any) -> Iterator[str]:
    """Anchors that the environment does not have, and environments without opponents."""
    yield from player_problems(env, "league.anchors", league.anchors)
    if len(env.roles) < 2:
        yield f"league: '{env.id}' has one role, so there are no opponents; remove the section"


def _is_full(policies: Mapping[str, Any], name: str) -> bool:
    return name in policies and policies[name].kind == "full"
