"""Those who ask a server with a key: a policy's sampler and a verifier's client, alike."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("httpx")

from pettingllms.config.policies import ApiPolicy
from pettingllms.errors import ConfigError, SamplerError
from pettingllms.evaluation.players import PlayerSpec, ServerOptions, with_model
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.judges.verifier import VerifierClient
from pettingllms.types import Failed, Sample, SampleRequest, Scored, user

KEY, CANARY = "PETTINGLLMS_TEST_KEY", "sk-canary-19d2c4"
RIGHT = {
    "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}],
    "score": 0.5,
    "data": [{"id": "tiny"}],
}


@dataclass
class Server:
    url: str = ""
    times: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def serving(*answers: tuple[int, object, Mapping[str, str]]) -> Iterator[Server]:
    """Gives these answers in turn, and then `RIGHT` for ever."""
    found, left = Server(), list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.times.append(time.perf_counter())
            found.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            status, answer, headers = left.pop(0) if left else (200, RIGHT, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        found.url = f"http://127.0.0.1:{server.server_port}"
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def by_sampler(url: str, text: str) -> object:
    sampler = HttpSampler(ApiPolicy(url=url, model="m", key=KEY))
    request = SampleRequest("p", "r", JsonRenderer().render([user(text)]), 1, 5, 1, "t")
    try:
        (found,) = await sampler.sample(request)
    except SamplerError as error:
        return Failed(str(error), "sampler")
    finally:
        await sampler.close()
    return found


async def by_verifier(url: str, text: str) -> object:
    client = VerifierClient(url, KEY)
    try:
        return await client.score([user("1+1=")], text)
    finally:
        await client.close()


Way = Callable[[str, str], Awaitable[object]]


@pytest.fixture(params=[by_sampler, by_verifier])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    monkeypatch.setenv(KEY, CANARY)
    way: Way = request.param
    return lambda url, text="hi": asyncio.run(way(url, text))


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_no_proxy_is_told_a_key_that_is_for_this_machine(
    ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving() as proxy, serving() as server:
        monkeypatch.setenv(variable, proxy.url)
        assert isinstance(ask(server.url), Sample | Scored)
        player_spec = PlayerSpec("server", "", server.url)
        assert with_model(player_spec, ServerOptions(keys={server.url: KEY})).name == "tiny"
    assert not proxy.times
    assert len(server.times) == 2


def test_a_key_that_no_header_may_hold_is_refused_without_being_shown(
    ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (f"{CANARY}\nx", f"{CANARY}\x7f", f"{CANARY}ü"):
        monkeypatch.setenv(KEY, key)
        with pytest.raises(ConfigError, match="not allowed in an HTTP header") as caught:
            ask("https://example.org")
        assert CANARY not in str(caught.value)


def test_a_line_break_at_the_end_of_a_key_is_none_of_it(
    ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, f"{CANARY}\n")
    with serving((401, f"who is {CANARY}?", {})) as server:
        found = ask(server.url)
    assert isinstance(found, Failed)
    assert "who is [key]?" in found.reason


def test_a_server_that_asks_to_be_left_alone_is(ask: Callable[..., object]) -> None:
    with serving((429, {}, {"Retry-After": "1"})) as server:
        assert isinstance(ask(server.url), Sample | Scored)
    first, second = server.times
    assert second - first > 0.95


def test_what_is_no_json_is_asked_for_again(ask: Callable[..., object]) -> None:
    with serving((200, "<html>", {}), (200, "[" * 99_999, {})) as server:
        assert isinstance(ask(server.url), Sample | Scored)
    assert len(server.times) == 3


def test_half_a_sign_reaches_the_server_and_breaks_nothing(ask: Callable[..., object]) -> None:
    with serving() as server:
        assert isinstance(ask(server.url, "half: \ud83d"), Sample | Scored)
    assert b"half: \\ud83d" in server.bodies[0]
