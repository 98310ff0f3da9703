"""The public names are pinned: a change here is a change for every user."""

import pettingllms

PUBLIC = {
    "Agents",
    "AlgoConfig",
    "Algorithm",
    "Callback",
    "Callbacks",
    "EnvConfig",
    "Environment",
    "Episode",
    "Submission",
    "Failed",
    "Group",
    "Judge",
    "Loss",
    "LossConfig",
    "LossInputs",
    "Message",
    "PettingError",
    "Rewards",
    "RoleRule",
    "RunConfig",
    "RunFolder",
    "Scored",
    "StepResult",
    "Task",
    "Tracker",
    "Turn",
    "Workflow",
    "WorkflowConfig",
    "__version__",
    "assistant",
    "check_env",
    "command",
    "load_config",
    "make_algorithm",
    "make_env",
    "parse_config",
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
