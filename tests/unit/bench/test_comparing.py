"""Two sides measured by turns, and what their rates come to."""

import asyncio
import json
from pathlib import Path

import pytest

from pettingllms.bench.engine_bench import Comparison, _items, compare
from pettingllms.bench.process import Process
from pettingllms.errors import ClusterError
from pettingllms.types import Episode, Task, Turn

ECHO = """
print("a library says hello")

def load(word):
    print("and once more")
    def answer(number):
        print("while it works")
        if number < 0:
            raise ValueError("no such number")
        return {"words": [word] * number}
    return answer
"""


def test_the_ratio_is_the_median_of_the_rounds_own() -> None:
    """A machine that is twice as fast in one round changes both sides, and not their ratio."""
    found = Comparison.from_rounds([(90.0, 100.0), (190.0, 200.0), (10.0, 100.0)])
    assert found == Comparison(ours=90.0, plain=100.0, ratio=0.9, ratios=(0.9, 0.95, 0.1))


def test_sides_take_turns_in_being_first_and_the_first_round_does_not_count() -> None:
    called: list[tuple[str, int]] = []

    def side(name: str, rates: list[float]):
        async def rate(number: int) -> float:
            called.append((name, number))
            return rates[number]

        return rate

    ours, bare = side("ours", [1, 20, 30, 40]), side("bare", [1000, 10, 10, 10])
    found = asyncio.run(compare(ours, bare, repeats=3))
    assert found.ratios == (2.0, 3.0, 4.0)
    for number in range(4):
        names = [name for name, at in called if at == number]
        assert names == (["ours", "bare"] if number % 2 else ["bare", "ours"])


def replies(count: int) -> list[Episode]:
    ids = pytest.importorskip("numpy").arange
    turns = [
        Turn("solver", "shared", (), ids(50), ids(10), ids(10).astype("float32"), "", 0)
        for _ in range(count)
    ]
    return [Episode(str(n), "e", Task(str(n)), 0, turns=[t]) for n, t in enumerate(turns)]


def test_a_step_learns_from_replies_that_fit_and_from_one_at_least(monkeypatch) -> None:
    from pettingllms.bench import engine_bench as engine

    episodes = replies(5)
    monkeypatch.setattr(engine, "LEARN_TOKENS", 180)
    assert [item.advantage for item in _items(episodes)] == [-1.0, 1.0, -1.0]
    monkeypatch.setattr(engine, "LEARN_TOKENS", 10)
    assert len(_items(episodes)) == 1


def test_learners_are_sent_replies_in_the_form_that_runs_send(monkeypatch, tmp_path: Path) -> None:
    """Thousands of short arrays one by one would be timed as a cost that no run has."""
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    from pettingllms.bench import engine_bench as engine
    from pettingllms.cluster import learners
    from pettingllms.learners.serialization import Units

    sent = []

    class Deaf:
        def __init__(self, *_: object) -> None: ...

        async def start(self, loopback: bool) -> None: ...

    class DeafLearners(Deaf):
        async def call(self, method: str, *args: object) -> None:
            sent.append((method, *args))

        async def stop(self) -> None: ...

    class DeafProcess(Deaf):
        async def call(self, **_: object) -> dict[str, float]:
            return {"seconds": 1.0}

        def stop(self) -> None: ...

    monkeypatch.setattr(learners, "Learners", DeafLearners)
    monkeypatch.setattr(engine, "Process", DeafProcess)
    found = _items(replies(3))
    asyncio.run(engine._bench_learner(tmp_path, "cpu", found, repeats=1))
    assert [method for method, *_ in sent] == ["train", "train"]
    for _, policy, items, _ in sent:
        assert (policy, list(items)) == ("shared", found)
        assert isinstance(items, Units)


@pytest.fixture
def echo(tmp_path: Path):
    (tmp_path / "echo_module.py").write_text(ECHO)
    process = Process("echo_module", {"PYTHONPATH": str(tmp_path)})
    yield process
    process.stop()


def test_a_process_answers_line_by_line_whatever_libraries_print(echo: Process) -> None:
    async def talk() -> list[dict]:
        return [await echo.call(word="tick"), await echo.call(number=2), await echo.call(number=0)]

    assert asyncio.run(talk()) == [{}, {"words": ["tick", "tick"]}, {"words": []}]


def test_a_process_that_fails_says_why(echo: Process) -> None:
    async def talk() -> None:
        await echo.call(word="tick")
        await echo.call(number=-1)

    with pytest.raises(
        ClusterError, match="echo_module exited without a response(.|\n)*no such num"
    ):
        asyncio.run(talk())
    with pytest.raises(ClusterError, match="no such num"):
        asyncio.run(echo.call(number=1))


def test_both_sides_get_the_same_requests_and_rounds_differ(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from pettingllms.bench.engine_bench import REPLY_TOKENS, RequestRecorder, Rollouts
    from pettingllms.models import make_tiny

    rollouts = Rollouts(make_tiny(tmp_path / "tiny"), num_requests=4, num_rounds=3)
    seen = set()
    for number in range(3):
        requests = asyncio.run(rollouts.vllm_requests(number))
        recorder = RequestRecorder()
        asyncio.run(rollouts.run(recorder, number))
        assert [r.prompt_ids.tolist() for r in recorder.requests] == requests["prompts"]
        assert [r.seed for r in recorder.requests] == [each["seed"] for each in requests["params"]]
        assert {each["max_tokens"] for each in requests["params"]} == {REPLY_TOKENS}
        assert all(each["stop_token_ids"] for each in requests["params"])
        json.dumps(requests)
        seen |= {tuple(prompt) for prompt in requests["prompts"]}
    assert len(seen) == 12
