"""PettingLLMs trains teams of language models with reinforcement learning.

The names below are the public interface. They are imported when first used, so that
`import pettingllms` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pettingllms.algos import Algorithm, make_algorithm, reward_list, role_reward, task_key
    from pettingllms.api import (
        Callback,
        PrintProgress,
        Run,
        check,
        dpo,
        evaluate,
        make_config,
        rollout,
        search_team,
        sft,
        tournament,
        train,
    )
    from pettingllms.config import (
        AlgoConfig,
        EnvConfig,
        LossConfig,
        RunConfig,
        load_config,
        parse_config,
    )
    from pettingllms.envs import (
        Agents,
        Environment,
        RoleRule,
        StepResult,
        Workflow,
        WorkflowConfig,
        check_env,
        command,
        make_env,
    )
    from pettingllms.envs.single_turn import single_turn
    from pettingllms.errors import PettingError
    from pettingllms.inference.engines import InferenceEngine
    from pettingllms.judges import Judge
    from pettingllms.learners.losses import Loss, LossInputs
    from pettingllms.models import make_tiny
    from pettingllms.runs import Callbacks, RunFolder, Tracker
    from pettingllms.types import (
        Episode,
        Failed,
        Group,
        Message,
        Rewards,
        Scored,
        Submission,
        Task,
        Turn,
        assistant,
        read_episodes,
        system,
        user,
        write_episodes,
    )

__version__ = "0.1.0"

_HOMES = {
    "pettingllms.algos": (
        "Algorithm",
        "make_algorithm",
        "reward_list",
        "role_reward",
        "task_key",
    ),
    "pettingllms.api": (
        "Callback",
        "PrintProgress",
        "Run",
        "check",
        "dpo",
        "evaluate",
        "make_config",
        "rollout",
        "search_team",
        "sft",
        "tournament",
        "train",
    ),
    "pettingllms.config": (
        "AlgoConfig",
        "EnvConfig",
        "LossConfig",
        "RunConfig",
        "load_config",
        "parse_config",
    ),
    "pettingllms.envs": (
        "Agents",
        "Environment",
        "RoleRule",
        "StepResult",
        "Workflow",
        "WorkflowConfig",
        "check_env",
        "command",
        "make_env",
    ),
    "pettingllms.envs.single_turn": ("single_turn",),
    "pettingllms.errors": ("PettingError",),
    "pettingllms.inference.engines": ("InferenceEngine",),
    "pettingllms.judges": ("Judge",),
    "pettingllms.models": ("make_tiny",),
    "pettingllms.learners.losses": ("Loss", "LossInputs"),
    "pettingllms.runs": ("Callbacks", "RunFolder", "Tracker"),
    "pettingllms.types": (
        "Episode",
        "Submission",
        "Failed",
        "Group",
        "Message",
        "Rewards",
        "Scored",
        "Task",
        "Turn",
        "assistant",
        "read_episodes",
        "system",
        "user",
        "write_episodes",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 - filled from the table above
    "__version__",
    *_HOME_OF,
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pettingllms' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)
