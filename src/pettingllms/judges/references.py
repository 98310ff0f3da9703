"""Whom answers are held to: the same plays, with the reference in the place of all that learn."""

from collections.abc import Mapping, Sequence

from pettingllms.config import RunConfig
from pettingllms.types import Task

Assignments = Mapping[str, Mapping[str, str]]
FIRST_PLAY = 1_000_000
"""Number of a reference's first play of a task, which no other play has. What is said follows from
the number, so under the numbers of those who learn a reference with their weights would say word
for word what they said: the first play of a task would tie with itself, however good it was."""


def reference_assignments(
    config: RunConfig, tasks: Sequence[Task], assignments: Assignments
) -> Assignments:
    """Who plays each task, by its id. `assignments` say who played it where that is not whom
    [roles] names: a reference keeps the same co_players, else it would not be what learners are
    held to."""
    learn, reference = config.trained_policies(), config.judge.reference
    return {
        task.id: {
            role: reference if name in learn else name
            for role, name in assignments.get(task.id, config.roles).items()
        }
        for task in tasks
    }
