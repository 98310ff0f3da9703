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
    "Failed",
    "Group",
    "InferenceEngine",
    "Judge",
    "Loss",
    "LossConfig",
    "LossInputs",
    "Message",
    "PettingError",
    "PrintProgress",
    "Rewards",
    "RoleRule",
    "Run",
    "RunConfig",
    "RunFolder",
    "Scored",
    "StepResult",
    "Submission",
    "Task",
    "Tracker",
    "Turn",
    "Workflow",
    "WorkflowConfig",
    "__version__",
    "assistant",
    "check",
    "check_env",
    "command",
    "dpo",
    "evaluate",
    "load_config",
    "make_algorithm",
    "make_config",
    "make_env",
    "make_tiny",
    "parse_config",
    "task_key",
    "read_episodes",
    "reward_list",
    "role_reward",
    "rollout",
    "search_team",
    "sft",
    "single_turn",
    "system",
    "tournament",
    "train",
    "user",
    "write_episodes",
}


def test_public_names() -> None:
    assert set(pettingllms.__all__) == PUBLIC


def test_every_public_name_is_there_and_documented() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(pettingllms, name).__doc__, name
