"""Determines the role of a call: by key or path, model name, role header, or rules.

A program with one client per agent uses one base URL or key per agent and needs no rules. If agents
share a client, rules identify the role. Ambiguous calls are rejected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pettingllms.envs.workflow import ROLE_HEADER, RoleRule
from pettingllms.errors import ConfigError, nearest
from pettingllms.gateway.calls import Call, CallError


def matches(rule: RoleRule, call: Call) -> bool:
    """Whether a rule matches a call."""
    match rule.where:
        case "model":
            return call.model == rule.value
        case "header":
            return call.headers.get(rule.name.lower()) == rule.value
        case "system":
            prompts = [m.content for m in call.messages if m.speaker == "system"]
            return any(rule.value in text for text in prompts)


@dataclass(frozen=True, slots=True)
class RoleMap:
    """The roles of a program and the rules that map calls to them."""

    roles: Sequence[str]
    rules: Sequence[RoleRule] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for rule in self.rules:
            if rule.role not in self.roles:
                what = f"a rule is for the role '{rule.role}'; {nearest(rule.role, self.roles)}"
                raise ConfigError("rules", [what])
            if not rule.value:
                what = f"the rule for '{rule.role}' has no value, so it matches every call"
                raise ConfigError("rules", [what])

    def of(self, call: Call, bound: str | None) -> str:
        """The role of a call; `bound` is the role of its key or path, if any."""
        if bound is not None:
            if bound not in self.roles:
                raise CallError(404, f"this program has no role '{bound[:40]}'")
            return bound
        if call.model in self.roles:
            return call.model
        if (named := call.headers.get(ROLE_HEADER)) is not None:
            if named not in self.roles:
                what = nearest(named[:40], self.roles)
                raise CallError(400, f"{ROLE_HEADER} is '{named[:40]}'; {what}")
            return named
        matching = {rule.role: None for rule in self.rules if matches(rule, call)}
        if len(matching) == 1:
            return next(iter(matching))
        if len(self.roles) == 1:
            return self.roles[0]
        raise CallError(400, self._unmatched(list(matching)))

    def _unmatched(self, matching: Sequence[str]) -> str:
        known = ", ".join(self.roles)
        if matching:
            return (
                f"this call matches the rules of several roles ({', '.join(matching)}); make the "
                "rules mutually exclusive"
            )
        return (
            f"cannot determine the role of this call (roles: {known}). Give each agent a separate "
            "base URL or key, or add a rule for its system prompt, a header or its model name"
        )


def without_keys(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that rules may read: all that cannot contain keys."""
    hidden = ("authorization", "x-api-key", "cookie", "proxy-authorization")
    return {name.lower(): value for name, value in headers.items() if name.lower() not in hidden}
