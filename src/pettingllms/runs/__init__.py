"""Run folders: checkpoints, metrics, trackers and callbacks."""

from pettingllms.runs.callbacks import Callback, Callbacks
from pettingllms.runs.folder import RunFolder
from pettingllms.runs.trackers import Tracker

__all__ = ["Callback", "Callbacks", "RunFolder", "Tracker"]
