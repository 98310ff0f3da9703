"""Clocks that stand still while a request waits, and the queue that stops them."""

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from toys import Duel, play_with
from virtual_time import virtual_time  # noqa: F401 - a fixture

from pettingllms.errors import NoAnswerError
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.judges.base import JudgeModel
from pettingllms.judges.rate_limits import Limits
from pettingllms.judges.requests import JudgeRequests
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import ByteRenderer
from pettingllms.runtime.in_flight import InFlight, pause_deadline, service_timeout
from pettingllms.types import Sample, Scored, user


@pytest.mark.usefixtures("virtual_time")
def test_a_clock_counts_service_and_not_waiting() -> None:
    async def work(seconds: float) -> None:
        async with service_timeout(0.5):
            for _ in range(3):
                with pause_deadline():
                    await asyncio.sleep(0.3)
            await asyncio.sleep(seconds)

    asyncio.run(work(0))
    with pytest.raises(TimeoutError):
        asyncio.run(work(5))


@pytest.mark.usefixtures("virtual_time")
def test_a_clock_restarts_when_what_was_done_is_lost() -> None:
    async def run() -> None:
        async with service_timeout(1.0):
            await asyncio.sleep(0.6)
            with pause_deadline(restart=True):
                await asyncio.sleep(0)
            await asyncio.sleep(0.6)

    asyncio.run(run())


@pytest.mark.usefixtures("virtual_time")
def test_an_outer_clock_stands_still_with_its_parts() -> None:
    async def call(outer) -> None:
        async with service_timeout(5, outer):
            with pause_deadline():
                await asyncio.sleep(0.3)

    async def run() -> None:
        async with service_timeout(0.5) as outer:
            await asyncio.create_task(call(outer))
            await asyncio.create_task(call(outer))
        assert not outer.expired()

    asyncio.run(run())


@pytest.mark.usefixtures("virtual_time")
def test_a_place_given_to_one_who_left_goes_to_the_next() -> None:
    async def run() -> None:
        places = InFlight(1)
        let_go = asyncio.Event()

        async def hold() -> None:
            async with places.place():
                await let_go.wait()

        first, second, third = (asyncio.create_task(hold()) for _ in range(3))
        await asyncio.sleep(0)
        let_go.set()
        await first
        second.cancel()  # in the very turn of the loop in which it was let in
        async with asyncio.timeout(1):
            await third
        async with asyncio.timeout(1), places.place():
            pass

    asyncio.run(run())


@pytest.mark.usefixtures("virtual_time")
def test_one_slow_request_does_not_fail_those_that_wait_if_others_are_answered() -> None:
    async def run() -> list[str]:
        places = InFlight(2)

        async def request(seconds: float) -> str:
            try:
                async with service_timeout(1.0), places.place():
                    await asyncio.sleep(seconds)
                    return "answered"
            except TimeoutError:
                return "late"
            except NoAnswerError as error:
                return str(error)

        return await asyncio.gather(request(9), *(request(0.05) for _ in range(30)))

    assert asyncio.run(run()) == ["late"] + ["answered"] * 30


class Server:
    """Serves a few chats at once, each for a while, and queues the rest."""

    def __init__(self, at_once: int, seconds: float) -> None:
        free = threading.Semaphore(at_once)
        self.in_flight = self.most = 0
        counted = threading.Lock()
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with counted:
                    outside.in_flight += 1
                    outside.most = max(outside.most, outside.in_flight)
                self.rfile.read(int(self.headers["Content-Length"]))
                with free:
                    time.sleep(seconds)
                with counted:
                    outside.in_flight -= 1
                choice = {"message": {"content": "4"}, "finish_reason": "stop"}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"choices": [choice]}).encode())

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_server_is_given_as_many_requests_as_it_serves() -> None:
    pytest.importorskip("httpx")  # and import it, which takes time
    from pettingllms.config.policies import ApiPolicy

    server = Server(4, 0.1)
    try:
        sampler = HttpSampler(ApiPolicy(url=server.url, model="m", max_concurrent=4))
        players = {r: Player("p", sampler, JsonRenderer(), in_bytes=True) for r in ("a", "b")}
        episodes = play_with(Duel(), players, num_tasks=20, num_samples=5, sampler_timeout=4.0)
    finally:
        server.close()
    assert len(episodes) == 100
    assert [e.failure for e in episodes if e.failure is not None] == []
    assert server.most <= 4


@pytest.mark.usefixtures("virtual_time")
def test_a_judges_clock_stands_while_its_engine_is_busy() -> None:
    class Busy:
        def __init__(self) -> None:
            self.places = InFlight(1)

        async def sample(self, request):
            async with self.places.place(request.num_samples):
                await asyncio.sleep(0.05)
                return [Sample(np.array([52], np.int32), None, 0, "stop")]

    async def run():
        judge_model = JudgeModel("j", Busy(), ByteRenderer(), 1.0)
        asker = JudgeRequests(judge_model, Limits(100, 0), num_tries=1, seconds=1.0, max_tokens=5)
        ask = (asker.ask([user("?")], lambda said: Scored(float(said)), n) for n in range(40))
        return await asyncio.gather(*ask)

    assert set(asyncio.run(run())) == {Scored(4.0)}
