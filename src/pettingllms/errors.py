"""Errors that a user can act on: each message says what happened, why, and what to do."""

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "EngineDiedError",
    "EnvContractError",
    "ExperimentError",
    "ExploitabilityError",
    "ForkError",
    "GraderError",
    "ImageError",
    "LearnerError",
    "LibraryError",
    "ModelError",
    "NoAnswerError",
    "PausedError",
    "PettingError",
    "RecordError",
    "SamplerError",
    "SandboxError",
    "StaleWeightsError",
    "TaskError",
    "UnknownNameError",
]


class PettingError(Exception):
    """Base of every error that PettingLLMs raises on purpose."""


class ConfigError(PettingError, ValueError):
    """A configuration that cannot run; carries every problem found, not only the first."""

    def __init__(self, source: str, problems: Iterable[str]) -> None:
        self.source = source
        self.problems = list(problems)
        count = len(self.problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"{source}: {count} problem{'s' if count != 1 else ''}\n{lines}")


class UnknownNameError(PettingError, ValueError):
    """A name that no registry knows; the message gives the nearest ones."""


class EnvContractError(PettingError):
    """An environment that breaks the contract; the message names every fault."""


class LibraryError(PettingError, ValueError):
    """A game library that is not installed, or a game of one that cannot be played here."""


class ForkError(PettingError):
    """A play that cannot go on twice from one state."""


class NoAnswerError(PettingError):
    """A server that gave no answer, however often it was asked."""


class SamplerError(PettingError):
    """A sampler that could not answer a request."""


class EngineDiedError(SamplerError):
    """An engine whose processes are gone, while the one that owns it is still there."""


class LearnerError(PettingError):
    """A learner that was given what it cannot learn from."""


class ClusterError(PettingError):
    """Processes of a run that cannot be started, or that keep dying."""


class StaleWeightsError(PettingError):
    """Samplers that do not have the weights that learners train."""


class CheckpointError(PettingError):
    """A checkpoint that is not there, or not whole."""


class PausedError(PettingError):
    """A run that paused itself: it is saved, and goes on when somebody has looked."""


class ExploitabilityError(PettingError, ValueError):
    """A game of which no distance from perfect play can be worked out."""


class TaskError(PettingError, ValueError):
    """Tasks that cannot be played as one batch."""


class ModelError(PettingError, ValueError):
    """A model that is not here, or that cannot be fetched or made."""


class ExperimentError(PettingError):
    """An experiment that was stopped before its end, or that came to no number."""


class SandboxError(PettingError):
    """A machine on which nothing that a model wrote can be run safely, or a sandbox that broke."""


class RecordError(PettingError, ValueError):
    """An episode file that cannot be read."""


class DataError(PettingError, ValueError):
    """A data file that cannot be read as what it should hold; the message names file and row."""


class ImageError(PettingError, ValueError):
    """An image that cannot be shown: cut short, too large, or none at all."""


class GraderError(PettingError):
    """A grader that cannot be started, or that gave no verdict."""


def describe(error: BaseException) -> str:
    """An exception by its name and its words, even if it fails to say them."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - the words of somebody else's exception
        words = "it cannot say why"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def nearest(name: str, known: Iterable[str]) -> str:
    """End of a message about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else "none is known"
