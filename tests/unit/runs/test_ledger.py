from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pettingllms.runs.ledger import Ledger
from pettingllms.types import Task


def tasks(count: int) -> list[Task]:
    return [Task(str(n)) for n in range(count)]


@given(st.integers(1, 12), st.integers(1, 20), st.integers(1, 15), st.integers(0, 3))
def test_every_pass_hands_out_every_task_once(
    num_tasks: int, count: int, num_batches: int, seed: int
) -> None:
    ledger = Ledger(tasks(num_tasks), seed)
    order = []
    for _ in range(num_batches):
        batch = [task.id for task in ledger.take(count)]
        assert len(set(batch)) == len(batch) == min(count, num_tasks)
        order += batch
        ledger.done()
    for at in range(0, len(order) - num_tasks + 1, num_tasks):
        assert Counter(order[at : at + num_tasks]) == Counter(map(str, range(num_tasks)))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 8))
def test_a_ledger_taken_up_goes_on_as_if_never_left(num_tasks: int, count: int, cut: int) -> None:
    whole, order = Ledger(tasks(num_tasks), 5), []
    for _ in range(10):
        order.append([task.id for task in whole.take(count)])
        whole.done()
    first = Ledger(tasks(num_tasks), 5)
    for _ in range(cut):
        first.take(count)
        first.done()
    first.take(count)  # under way when the run was killed
    second = Ledger(tasks(num_tasks), 5, first.num_done)
    for at in range(cut, 10):
        assert [task.id for task in second.take(count)] == order[at]
        second.done()


def test_tasks_in_progress_are_not_done() -> None:
    ledger = Ledger(tasks(4), 0)
    taken = [task.id for task in ledger.take(2)]
    assert (ledger.num_done, ledger.in_progress) == (0, taken)
    ledger.done()
    assert (ledger.num_done, ledger.in_progress) == (2, [])


def test_passes_differ_in_order() -> None:
    ledger = Ledger(tasks(30), 0)
    passes = []
    for _ in range(2):
        passes.append([task.id for task in ledger.take(30)])
        ledger.done()
    assert passes[0] != passes[1]


@given(st.integers(1, 9), st.integers(1, 9), st.sets(st.integers(0, 9)))
def test_a_new_level_with_as_many_tasks_does_not_disturb_a_pass(
    num_tasks: int, count: int, changes: set[int]
) -> None:
    plain, levelled = Ledger(tasks(num_tasks), 5), Ledger(tasks(num_tasks), 5)
    for at in range(10):
        if at in changes:
            levelled.change([Task(task.id, seed=at) for task in tasks(num_tasks)])
        batches = [[task.id for task in ledger.take(count)] for ledger in (plain, levelled)]
        assert batches[0] == batches[1]
        plain.done()
        levelled.done()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 7), st.integers(0, 6))
def test_after_a_change_every_whole_pass_hands_out_every_new_task_once(
    before: int, after: int, count: int, cut: int
) -> None:
    ledger = Ledger(tasks(before), 5)
    for _ in range(cut):
        ledger.take(count)
        ledger.done()
    ledger.change([Task(f"new {n}") for n in range(after)])
    left, order = -ledger.num_done % after, []
    while len(order) < left + 2 * after:
        order += [task.id for task in ledger.take(count)]
        ledger.done()
    assert len(set(order[:left])) == left, "what is left of the pass hands out nothing twice"
    for at in (left, left + after):
        assert Counter(order[at : at + after]) == Counter(f"new {n}" for n in range(after))


@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 60))
def test_batches_are_whole_wherever_passes_end(num_tasks: int, count: int, num_done: int) -> None:
    ledger = Ledger(tasks(num_tasks), 5, num_done)
    for _ in range(8):
        assert len(ledger.take(count)) == min(count, num_tasks)
        ledger.done()


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(0, 11),
)
def test_batches_that_grow_have_no_task_twice_and_go_on_after_a_stop(
    num_tasks: int, sizes: list[tuple[int, int]], cut: int
) -> None:
    def batch(ledger: Ledger, count: int, more: int) -> list[str]:
        taken = [task.id for task in [*ledger.take(count), *ledger.take_more(more)]]
        assert ledger.in_progress == taken
        ledger.done()
        return taken

    whole = Ledger(tasks(num_tasks), 5, varies=True)
    found = [batch(whole, *size) for size in sizes]
    for taken, (count, more) in zip(found, sizes, strict=True):
        assert len(set(taken)) == len(taken) == min(num_tasks, count + more)
    assert set().union(*found) == set(map(str, range(num_tasks))) or whole.num_done < num_tasks
    first = Ledger(tasks(num_tasks), 5, varies=True)
    for size in sizes[:cut]:
        batch(first, *size)
    second = Ledger(tasks(num_tasks), 5, first.num_done, varies=True)
    assert [batch(second, *size) for size in sizes[cut:]] == found[cut:]
