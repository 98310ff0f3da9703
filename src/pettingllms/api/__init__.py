"""The Python API: what every command of the CLI does, as calls on Python objects."""

from pettingllms.api.calls import dpo, evaluate, rollout, sft, train
from pettingllms.api.configs import make_config
from pettingllms.api.contests import check, search_team, tournament
from pettingllms.api.progress import PrintProgress
from pettingllms.api.run_handle import Run
from pettingllms.runs.callbacks import Callback

__all__ = [
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
]
