"""Which role a call is for. A key or a path says it; else one rule does, or nobody: no guess.

A program with a client for each agent gets a base URL or a key for each, and needs no rule. Where
one client serves several agents, the first rule that fits tells them apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pettingllms.envs.workflow import ROLE_HEADER, RoleRule
from pettingllms.errors import ConfigError, nearest
from pettingllms.gateway.calls import Call, CallError


def fits(rule: RoleRule, call: Call) -> bool:
    """Whether a call is for a rule's role."""
    match rule.where:
        case "model":
            return call.model == rule.value
        case "header":
            return call.headers.get(rule.name.lower()) == rule.value
        case "system":
            said = [m.content for m in call.messages if m.speaker == "system"]
            return any(rule.value in text for text in said)


@dataclass(frozen=True, slots=True)
class RoleMap:
    """The roles of a program, and how its calls are told apart."""

    roles: Sequence[str]
    rules: Sequence[RoleRule] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for rule in self.rules:
            if rule.role not in self.roles:
                what = f"a rule is for the role '{rule.role}'; {nearest(rule.role, self.roles)}"
                raise ConfigError("rules", [what])
            if not rule.value:
                what = f"the rule for '{rule.role}' has no value, so it fits every call"
                raise ConfigError("rules", [what])

    def of(self, call: Call, bound: str | None) -> str:
        """The role of a call; `bound` is what its key and path say."""
        if bound is not None:
            if bound not in self.roles:
                raise CallError(404, f"there is no role '{bound[:40]}' in this program")
            return bound
        if call.model in self.roles:
            return call.model
        if (named := call.headers.get(ROLE_HEADER)) is not None:
            if named not in self.roles:
                what = nearest(named[:40], self.roles)
                raise CallError(400, f"{ROLE_HEADER} is '{named[:40]}'; {what}")
            return named
        fitting = {rule.role: None for rule in self.rules if fits(rule, call)}
        if len(fitting) == 1:
            return next(iter(fitting))
        if len(self.roles) == 1:
            return self.roles[0]
        raise CallError(400, self._unmatched(list(fitting)))

    def _unmatched(self, fitting: Sequence[str]) -> str:
        known = ", ".join(self.roles)
        if fitting:
            return (
                f"this call fits the rules of several roles ({', '.join(fitting)}); make the rules "
                "tell them apart"
            )
        return (
            f"this call is for no role that can be told: the roles are {known}. Give each agent a "
            "base URL or a key of its own, or a rule that its system prompt, a header or its model "
            "name fits"
        )


def held_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that rules may read: none that holds a key."""
    hidden = ("authorization", "x-api-key", "cookie", "proxy-authorization")
    return {name.lower(): value for name, value in headers.items() if name.lower() not in hidden}
