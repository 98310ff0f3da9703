"""Requests that are made at the same time go in one call."""

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.engine_client import Queue
from pettingllms.types import Sample, SampleRequest


def ask(number: int) -> SampleRequest:
    return SampleRequest("p", "r", np.array([number], np.int32), 1, 1, number, "t")


def answer(request: SampleRequest) -> list[Sample]:
    return [Sample(request.prompt_ids, None, 0, "stop")]


def test_each_gets_its_own_answer_and_waves_go_together() -> None:
    sizes: list[int] = []

    async def send(requests: list[SampleRequest]) -> list[Any]:
        sizes.append(len(requests))
        await asyncio.sleep(0.01)
        return [answer(request) for request in requests]

    async def play(queue: Queue, number: int) -> list[int]:
        samples = [await queue.sample(ask(number + 100 * wave)) for wave in range(3)]
        return [int(found[0].ids[0]) for found in samples]

    async def run() -> list[list[int]]:
        queue = Queue(send)
        return await asyncio.gather(*(play(queue, number) for number in range(20)))

    assert asyncio.run(run()) == [[n, n + 100, n + 200] for n in range(20)]
    assert sizes == [20, 20, 20]


def test_a_failure_reaches_all_who_wait_for_it_and_no_others() -> None:
    async def send(requests: list[SampleRequest]) -> list[Any]:
        if requests[0].seed == 0:
            raise RuntimeError("lost")
        return [answer(request) for request in requests]

    async def run() -> None:
        queue = Queue(send)
        lost = await asyncio.gather(*map(queue.sample, map(ask, (0, 1))), return_exceptions=True)
        assert [str(error) for error in lost] == ["lost", "lost"]
        assert (await queue.sample(ask(2)))[0].ids[0] == 2

    asyncio.run(run())


def test_one_who_gives_up_does_not_hold_up_the_others() -> None:
    async def send(requests: list[SampleRequest]) -> list[Any]:
        await asyncio.sleep(0.05)
        return [answer(request) for request in requests]

    async def run() -> None:
        queue = Queue(send)
        hasty = asyncio.create_task(queue.sample(ask(1)))
        patient = asyncio.create_task(queue.sample(ask(2)))
        await asyncio.sleep(0.01)
        hasty.cancel()
        assert (await patient)[0].ids[0] == 2

    asyncio.run(run())


def test_abandoned_requests_are_not_sent() -> None:
    sent: list[list[int]] = []

    async def send(requests: list[SampleRequest]) -> list[Any]:
        sent.append([request.seed for request in requests])
        await asyncio.sleep(0.02)
        return [answer(request) for request in requests]

    async def run() -> None:
        queue = Queue(send)
        first = asyncio.create_task(queue.sample(ask(1)))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(queue.sample(ask(number))) for number in (2, 3)]
        await asyncio.sleep(0)
        others[0].cancel()
        await asyncio.gather(first, others[1])
        alone = asyncio.create_task(queue.sample(ask(4)))
        await asyncio.sleep(0)
        alone.cancel()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert sent == [[1], [3]]


def test_a_closed_queue_sends_no_more_requests() -> None:
    """Else a batch that its engine takes along when it is stopped would start the engine again."""
    ended: list[str] = []

    async def send(requests: list[SampleRequest]) -> list[Any]:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise AssertionError

    async def run() -> None:
        queue = Queue(send)
        waiting = asyncio.create_task(queue.sample(ask(1)))
        await asyncio.sleep(0.01)
        await queue.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == ["cancelled"]
        await Queue(send).close()

    asyncio.run(run())
