"""The public names are pinned: a change here is a change for every user."""

import pettingllms

PUBLIC = {
    "Agents",
    "EnvConfig",
    "Environment",
    "Episode",
    "Failed",
    "Message",
    "Rewards",
    "RoleRule",
    "RunConfig",
    "Scored",
    "StepResult",
    "Task",
    "Turn",
    "Workflow",
    "WorkflowConfig",
    "__version__",
    "assistant",
    "check_env",
    "command",
    "load_config",
    "make_env",
    "read_episodes",
    "system",
    "user",
    "write_episodes",
}


def test_public_names() -> None:
    assert set(pettingllms.__all__) == PUBLIC


def test_every_public_name_is_there_and_documented() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(pettingllms, name).__doc__, name
