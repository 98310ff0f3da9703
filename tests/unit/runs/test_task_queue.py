from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import TaskError
from pettingllms.runs.task_queue import TaskQueue
from pettingllms.types import Task


def queue_of(num_tasks: int, num_done: int = 0, open_numbers: Sequence[int] = ()) -> TaskQueue:
    return TaskQueue([Task(str(at)) for at in range(num_tasks)], 3, num_done, open_numbers)


def test_a_task_is_never_in_progress_twice() -> None:
    queue = queue_of(3)
    first = [queue.take() for _ in range(3)]
    assert queue.num_available == 0
    queue.done([number for number, task in first if task.id != "1"])
    later = [queue.take() for _ in range(2)]
    assert {task.id for _, task in later} == {"0", "2"}, "task 1 still runs for the first pass"
    (late,) = (number for number, task in first if task.id == "1")
    assert late in queue.open_numbers
    queue.done([late])
    assert queue.take()[1].id == "1", "its number of the second pass comes next"


def test_a_task_that_was_given_back_comes_first() -> None:
    queue = queue_of(10)
    numbers = [queue.take()[0] for _ in range(4)]
    queue.give_back(numbers[1])
    assert queue.take()[0] == numbers[1]
    assert queue.take()[0] == 4


@given(st.integers(1, 9), st.lists(st.booleans(), max_size=60), st.integers(0, 60))
def test_a_resumed_queue_loses_and_repeats_nothing(
    num_tasks: int, ends: list[bool], cut: int
) -> None:
    """Tasks are taken, or the oldest in progress ends; at `cut` the run is killed and resumed."""
    queue, in_progress = queue_of(num_tasks), []
    trained: list[int] = []
    for at, end in enumerate(ends):
        if at == cut:
            queue = queue_of(num_tasks, queue.num_done, queue.open_numbers)
            in_progress = []
        if end and in_progress:
            queue.done([in_progress[0]])
            trained.append(in_progress.pop(0))
        elif queue.num_available:
            in_progress.append(queue.take()[0])
    assert len(set(trained)) == len(trained) == queue.num_done
    everything = sorted([*trained, *queue.open_numbers])
    assert everything == list(range(len(everything))), "no number is lost"


def test_tasks_with_one_id_are_rejected() -> None:
    with pytest.raises(TaskError, match="'a' occurs twice"):
        TaskQueue([Task("a"), Task("a")], 0)
