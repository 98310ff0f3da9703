"""Errors that a user can act on: each message states what happened, why, and what to do."""

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "EngineDiedError",
    "EnvContractError",
    "EpisodesLostError",
    "ExchangeError",
    "ExperimentError",
    "ExploitabilityError",
    "ForkError",
    "GraderError",
    "HubError",
    "ImageError",
    "LearnerError",
    "LearnerLostError",
    "LibraryError",
    "ModelError",
    "NoAnswerError",
    "PausedError",
    "PettingError",
    "RecordError",
    "RequestRefusedError",
    "SamplerError",
    "SandboxError",
    "StaleWeightsError",
    "StateLostError",
    "TaskError",
    "UnknownNameError",
    "WireError",
]


class PettingError(Exception):
    """Base of every error that PettingLLMs raises on purpose."""


class ConfigError(PettingError, ValueError):
    """A configuration that cannot run; lists all problems found."""

    def __init__(self, source: str, problems: Iterable[str]) -> None:
        self.source = source
        self.problems = list(problems)
        count = len(self.problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{source}: {count} problem{'s' if count != 1 else ''}\n{lines}")


class UnknownNameError(PettingError, ValueError):
    """A name that is in no registry; the message suggests the nearest one."""


class EnvContractError(PettingError):
    """An environment that violates the contract; the message lists all violations."""


class ExchangeError(PettingError, ValueError):
    """An environment, or episodes, that another framework cannot play or read."""


class LibraryError(PettingError, ValueError):
    """A game library that is not installed, or an unsupported game of one."""


class ForkError(PettingError):
    """An episode whose state cannot be forked."""


class HubError(PettingError):
    """A repository of the Hugging Face hub that could not be written or read."""


class NoAnswerError(PettingError):
    """A server that did not answer after all retries."""


class RequestRefusedError(NoAnswerError):
    """A server that rejects a request for what it contains."""


class WireError(PettingError, ValueError):
    """A malformed message from a remote environment or from its client."""


class SamplerError(PettingError):
    """A sampler that could not answer a request."""


class EngineDiedError(SamplerError):
    """An inference engine whose processes died while their owner is alive."""


class LearnerError(PettingError):
    """A learner that got a batch it cannot train on."""


class ClusterError(PettingError):
    """Processes of a run that cannot be started, or that keep dying."""


class StateLostError(ClusterError):
    """State that was lost with a process or a machine; a run goes back to its last checkpoint."""


class LearnerLostError(StateLostError):
    """A learner that died or hangs; a run restarts it."""


class EpisodesLostError(StateLostError):
    """Tokens and texts of episodes that were in the memory of a machine that left the cluster."""


class StaleWeightsError(PettingError):
    """Samplers whose weights differ from those of the learners."""


class CheckpointError(PettingError):
    """A checkpoint that is missing or incomplete."""


class PausedError(PettingError):
    """A run that paused itself; it is saved and can be resumed after inspection."""


class ExploitabilityError(PettingError, ValueError):
    """A game whose exploitability cannot be computed."""


class TaskError(PettingError, ValueError):
    """Tasks that cannot form one batch."""


class ModelError(PettingError, ValueError):
    """A model that is missing, or that cannot be downloaded or created."""


class ExperimentError(PettingError):
    """An experiment that stopped before its end, or that has no result."""


class SandboxError(PettingError):
    """A machine without a working sandbox for model-generated code, or a sandbox that failed."""


class RecordError(PettingError, ValueError):
    """An episode file that cannot be read."""


class DataError(PettingError, ValueError):
    """A data file with unexpected content; the message names file and row."""


class MissingDataError(DataError):
    """A data set that `pettingllms data get` has not stored on this machine."""


class ImageError(PettingError, ValueError):
    """An image that cannot be used: truncated, too large, or not an image."""


class GraderError(PettingError):
    """A grader that cannot be started, or that gave no verdict."""


def describe(error: BaseException) -> str:
    """The type and message of an exception, even if its `__str__` fails."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - third-party exceptions may fail here
        message = "no message"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known name, or all names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else "none are known"
