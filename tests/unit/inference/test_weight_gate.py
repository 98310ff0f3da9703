"""No request runs while an engine's weights are replaced, or after that failed."""

import asyncio

import pytest

from pettingllms.errors import EngineDiedError
from pettingllms.inference.weight_gate import WeightGate


def test_an_update_waits_for_requests_and_holds_new_ones() -> None:
    gate, events = WeightGate(), []

    async def request(name: str, end: asyncio.Event) -> None:
        async with gate.request():
            events.append(f"{name} starts")
            await end.wait()
            events.append(f"{name} ends")

    async def update(end: asyncio.Event) -> None:
        async with gate.update("an update"):
            events.append("update starts")
            await end.wait()
            events.append("update ends")

    async def settle() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def main() -> None:
        first, change, second = (asyncio.Event() for _ in range(3))
        tasks = [asyncio.create_task(request("first", first))]
        await settle()
        tasks.append(asyncio.create_task(update(change)))
        await settle()
        tasks.append(asyncio.create_task(request("second", second)))
        await settle()
        assert events == ["first starts"]
        first.set()
        await settle()
        assert events == ["first starts", "first ends", "update starts"]
        change.set()
        await settle()
        assert events[3:] == ["update ends", "second starts"]
        second.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_an_interrupted_update_refuses_requests_until_another_succeeds() -> None:
    gate = WeightGate()

    async def answer() -> str:
        async with gate.request():
            return "answer"

    async def update(error: BaseException | None) -> None:
        async with gate.update("the update to version 3"):
            if error is not None:
                raise error

    async def main() -> None:
        for error in (RuntimeError("a worker failed"), asyncio.CancelledError()):
            with pytest.raises(type(error)):
                await update(error)
            with pytest.raises(EngineDiedError, match="version 3 was interrupted"):
                await answer()
            await update(None)
            assert await answer() == "answer"

    asyncio.run(main())


def test_an_update_that_was_cancelled_while_it_waited_changed_nothing() -> None:
    gate = WeightGate()

    async def main() -> None:
        async with gate.request():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), gate.update("an update"):
                    pass
        async with gate.request():
            pass

    asyncio.run(main())


def test_an_update_does_not_wait_for_requests_in_flight() -> None:
    gate, events = WeightGate(), []

    async def request(name: str, end: asyncio.Event, in_flight: bool) -> None:
        async with gate.request(in_flight):
            await end.wait()
        events.append(name)

    async def update() -> None:
        async with gate.update("an update"):
            events.append("update")

    async def main() -> None:
        ends = [asyncio.Event(), asyncio.Event()]
        running = [
            asyncio.create_task(request("score", ends[0], in_flight=False)),
            asyncio.create_task(request("reply", ends[1], in_flight=True)),
        ]
        await asyncio.sleep(0)
        changing = asyncio.create_task(update())
        await asyncio.sleep(0.01)
        assert events == [], "the score has weights of one version"
        ends[0].set()
        await changing
        assert events == ["score", "update"]
        ends[1].set()
        await asyncio.gather(*running)

    asyncio.run(main())
