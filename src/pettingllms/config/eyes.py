"""Which policies can be shown images: a run with one that cannot is refused before it starts."""

from pettingllms.config.policies import PolicyConfig


def blind(policy: PolicyConfig) -> str:
    """Why a policy cannot play a role that is shown images; empty if it can."""
    match policy.kind:
        case "scripted":
            return ""  # reads the state
        case "api":
            return f"a server's model ('{policy.model}') is sent text alone"
        case _:
            return f"the engines give '{policy.model}' text alone"
