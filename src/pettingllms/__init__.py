"""PettingLLMs trains teams of language models by reinforcement learning.

The names below are the public interface. They are imported when first used, so that
`import pettingllms` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pettingllms.algos import Algorithm, make_algorithm
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
    from pettingllms.errors import PettingError
    from pettingllms.judges import Judge
    from pettingllms.learners.losses import Loss, LossInputs
    from pettingllms.runs import Callback, Callbacks, RunFolder, Tracker
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
    "pettingllms.algos": ("Algorithm", "make_algorithm"),
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
    "pettingllms.errors": ("PettingError",),
    "pettingllms.judges": ("Judge",),
    "pettingllms.learners.losses": ("Loss", "LossInputs"),
    "pettingllms.runs": ("Callback", "Callbacks", "RunFolder", "Tracker"),
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
