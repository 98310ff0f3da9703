"""Whom answers are held to: the same plays, with the reference in the place of all that learn."""

from collections.abc import Mapping, Sequence

from pettingllms.config import RunConfig
from pettingllms.types import Task

Lineups = Mapping[str, Mapping[str, str]]


def reference_lineups(config: RunConfig, tasks: Sequence[Task], lineups: Lineups) -> Lineups:
    """Who plays each task, by its id. `lineups` say who played it where that is not whom [roles]
    names: a reference keeps the same company, else it would not be what learners are held to."""
    learn, reference = config.trained_policies(), config.judge.reference
    return {
        task.id: {
            role: reference if name in learn else name
            for role, name in lineups.get(task.id, config.roles).items()
        }
        for task in tasks
    }
