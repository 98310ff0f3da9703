"""Reference rollouts: the same tasks, with the reference policy in place of trained policies."""

from collections.abc import Mapping, Sequence

from pettingllms.config import RunConfig
from pettingllms.types import Task

Assignments = Mapping[str, Mapping[str, str]]
FIRST_REFERENCE = 1_000_000
"""Episode number of the first reference rollout per task; no other episode has it. Sampling seeds
derive from the number, so with shared numbers a reference with equal weights would repeat the
learner's reply word for word and always tie."""


def reference_assignments(
    config: RunConfig, reference: str, tasks: Sequence[Task], assignments: Assignments
) -> Assignments:
    """The assignment of each task, by task id. `assignments` override [roles]: the reference meets
    the same co-players as the learners, so that the comparison is fair."""
    learn = config.trained_policies()
    return {
        task.id: {
            role: reference if name in learn else name
            for role, name in assignments.get(task.id, config.roles).items()
        }
        for task in tasks
    }
