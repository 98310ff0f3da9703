"""Calls need a key, and no key gives access to another episode."""

import asyncio
import json
import logging
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from gateways import Served, served

from pettingllms.gateway.calls import CalledTool
from pettingllms.gateway.keys import Keyring
from pettingllms.gateway.rate_limits import Bounds

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ROUTES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {**CHAT, "max_tokens": 5},
    "/v1/rewards": {"level": "team", "value": 1.0},
}


def asked(
    path: str = "/roles/planner/v1/chat/completions",
    headers: Any = None,
    body: Any = CHAT,
    method: str = "POST",
    **options: Any,
) -> Any:
    """The response to one request, and the episode of its key."""

    async def work(gate: Served) -> Any:
        given = headers(gate) if callable(headers) else headers
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient() as http:
            answer = await http.request(
                method, gate.gateway.url + path, content=content, headers=given or {}
            )
        return answer, gate.close()

    return served(work, **options)


def bearer(gate: Served) -> dict[str, str]:
    return {"authorization": f"Bearer {gate.agents.key}"}


def test_the_right_key_is_accepted() -> None:
    answer, episode = asked(headers=bearer)
    assert answer.status_code == 200
    assert len(episode.turns) == 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("prefix", ["", "/roles/planner"])
def test_no_route_answers_without_a_key(route: str, prefix: str) -> None:
    answer, episode = asked(prefix + route, None, ROUTES[route])
    assert answer.status_code == 401
    assert episode.turns == []


WRONG = {
    "empty": lambda gate: {"authorization": "Bearer"},
    "no scheme": lambda gate: {"authorization": gate.agents.key},
    "basic": lambda gate: {"authorization": f"Basic {gate.agents.key}"},
    "unknown": lambda gate: {"authorization": "Bearer pl-" + "a" * 43},
    "cut": lambda gate: {"authorization": f"Bearer {gate.agents.key[:-1]}"},
    "longer": lambda gate: {"authorization": f"Bearer {gate.agents.key}x"},
    "other case": lambda gate: {"authorization": f"Bearer {gate.agents.key.swapcase()}"},
    "padded": lambda gate: {"authorization": f"Bearer  {gate.agents.key}"},
    "huge": lambda gate: {"authorization": "Bearer " + "x" * 5000},
    "in a cookie": lambda gate: {"cookie": f"authorization=Bearer {gate.agents.key}"},
    "two that differ": lambda gate: [
        ("authorization", f"Bearer {gate.agents.key}"), ("authorization", "Bearer pl-x"),
    ],
    "one right and one wrong": lambda gate: {
        "authorization": f"Bearer {gate.agents.key}", "x-api-key": "pl-x",
    },
    "one wrong and one right": lambda gate: {
        "authorization": "Bearer pl-x", "x-api-key": gate.agents.key,
    },
    "of two episodes": lambda gate: {
        "authorization": f"Bearer {gate.agents.key}", "x-api-key": gate.another().agents.key,
    },
    "forwarded": lambda gate: {"x-forwarded-authorization": f"Bearer {gate.agents.key}"},
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_key_is_rejected(kind: str) -> None:
    answer, episode = asked(headers=WRONG[kind])
    assert answer.status_code == 401
    assert episode.turns == []
    assert "pl-" not in answer.text


def test_a_key_in_the_url_is_rejected() -> None:
    async def work(gate: Served) -> int:
        async with httpx.AsyncClient() as http:
            url = f"{gate.gateway.url}/v1/chat/completions?api_key={gate.agents.key}"
            return (await http.post(url, json=CHAT)).status_code

    assert served(work) == 401


def test_keys_expire_with_their_episode() -> None:
    async def work(gate: Served) -> list[int]:
        url = f"{gate.gateway.url}/roles/planner/v1/chat/completions"
        async with httpx.AsyncClient() as http:
            before = await http.post(url, json=CHAT, headers=bearer(gate))
            gate.close()
            keys = [gate.agents.key, *gate.agents.keys.values(), gate.agents.reward_key]
            after = [
                await http.post(url, json=CHAT, headers={"authorization": f"Bearer {key}"})
                for key in keys
            ]
        assert len(gate.session.episode.turns) == 1
        return [before.status_code, *(answer.status_code for answer in after)]

    assert served(work) == [200, 401, 401, 401, 401]


def test_a_key_only_writes_to_the_record_of_its_episode() -> None:
    async def work(gate: Served) -> Any:
        other = gate.another()
        async with httpx.AsyncClient() as http:
            for one in (gate, other, other):
                url = f"{gate.gateway.url}/roles/planner/v1/chat/completions"
                await http.post(url, json=CHAT, headers=bearer(one))
            rewarded = await http.post(
                f"{gate.gateway.url}/v1/rewards",
                json={
                    "level": "team",
                    "value": 1,
                    "reply": f"msg_{next(iter(other.session._numbers))}",
                },
                headers={"authorization": f"Bearer {gate.agents.reward_key}"},
            )
        return len(gate.close().turns), len(other.close().turns), rewarded.status_code

    assert served(work) == (1, 2, 404)


def test_a_roles_key_only_calls_its_role() -> None:
    async def work(gate: Served) -> dict[str, int]:
        url, found = gate.gateway.url, {}
        own = {"authorization": f"Bearer {gate.agents.keys['planner']}"}
        async with httpx.AsyncClient() as http:
            for path in ("/v1", "/roles/planner/v1", "/roles/worker/v1"):
                answer = await http.post(f"{url}{path}/chat/completions", json=CHAT, headers=own)
                found[path] = answer.status_code
            named = await http.post(
                f"{url}/v1/chat/completions",
                json={**CHAT, "model": "worker"},
                headers={**own, "x-pettingllms-role": "worker"},
            )
            found["named"] = named.status_code
        assert {turn.role for turn in gate.close().turns} == {"planner"}
        return found

    assert served(work) == {
        "/v1": 200, "/roles/planner/v1": 200, "/roles/worker/v1": 403, "named": 200,
    }  # fmt: skip


def test_a_call_without_a_role_lists_the_roles() -> None:
    answer, episode = asked("/v1/chat/completions", bearer)
    assert answer.status_code == 400
    assert "planner, worker" in answer.json()["error"]["message"]
    assert episode.turns == []


TRICKS = [
    "/roles/worker/../planner/v1/chat/completions", "/roles/%2e%2e/v1/chat/completions",
    "/roles/planner%2fv1/chat/completions", "/roles//v1/chat/completions",
    "//v1/chat/completions", "/v1/chat/completions/", "/v1/chat/completions%00",
    "/V1/chat/completions", "/roles/PLANNER/v1/chat/completions", "/roles/a%0d%0ab/v1/models",
    "/v1/chat/completions/../rewards", "/roles/{role}/v1/chat/completions",
]  # fmt: skip


@pytest.mark.parametrize("path", TRICKS)
def test_manipulated_paths_are_rejected(path: str) -> None:
    async def work(gate: Served) -> Any:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gate.agents.key}\r\n"
        status = await raw(gate, head.encode(), json.dumps(CHAT).encode())
        return status, gate.close()

    status, episode = served(work)
    assert status in (400, 404, 405, 307), status
    assert episode.turns == []


CONTROL = [
    "/pause", "/resume", "/update_weights", "/sleep", "/wake_up", "/load_lora_adapter",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/collective_rpc", "/reset_prefix_cache",
    "/inference/v1/generate", "/weight_info", "/metrics", "/server_info", "/tokenize", "/docs",
    "/openapi.json", "/shutdown", "/",
]  # fmt: skip


@pytest.mark.parametrize("path", CONTROL)
def test_no_route_of_an_engine_exists(path: str) -> None:
    answer, _ = asked(path, bearer)
    assert answer.status_code == 404
    assert asked(path, bearer, method="GET")[0].status_code == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"{}" * 2, b'{"messages": NaN}', b"[" * 9999],
)
def test_malformed_bodies_are_rejected(body: bytes) -> None:
    answer, episode = asked(headers=bearer, body=body)
    assert answer.status_code == 400
    assert episode.turns == []


HALF = '{"model": "m", "messages": [{"role": "user", "content": "\ud800"}]}'


@pytest.mark.parametrize(
    "body",
    [
        HALF.encode("ascii", "backslashreplace"),
        HALF.encode("utf-8", "surrogatepass"),
        HALF.encode("utf-16", "surrogatepass"),
        json.dumps(CHAT).encode("utf-16"),
    ],
    ids=["escaped", "raw", "utf-16", "sound utf-16"],
)
def test_lone_surrogates_are_rejected(body: bytes) -> None:
    answer, episode = asked(headers=bearer, body=body)
    assert answer.status_code == 400
    assert "not valid JSON" in answer.json()["error"]["message"]
    assert "served" not in episode.failure.reason


@pytest.mark.parametrize(
    "arguments",
    ["[" * 5000, "[" * 900 + "]" * 900, '{"a": "\\ud800"}', "9" * 5000],
    ids=["unclosed", "deep", "lone surrogate", "long number"],
)
def test_unusual_tool_arguments_cause_no_internal_error(arguments: str) -> None:
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    chat = [{"role": "assistant", "tool_calls": [called]}, *CHAT["messages"]]
    answer, episode = asked(headers=bearer, body={"model": "m", "messages": chat})
    assert answer.status_code in (200, 400)
    assert (episode.failure is None) == (answer.status_code == 200)
    if episode.failure is not None:
        assert "served" not in episode.failure.reason


def test_arguments_that_are_invalid_json_stay_text() -> None:
    assert CalledTool("c", "f", '{"a": "\\ud83d\\ude00"}').values == {"a": "\N{GRINNING FACE}"}
    for arguments in ("{", "[" * 5000, '{"a": "\\ud800"}'):
        assert CalledTool("c", "f", arguments).values == arguments


def test_large_bodies_are_rejected_with_and_without_content_length() -> None:
    small = Bounds(max_body_bytes=1000)
    answer, _ = asked(headers=bearer, body=b"x" * 1001, bounds=small)
    assert answer.status_code == 413

    async def unsaid(gate: Served) -> int:
        async def parts() -> Any:
            for _ in range(50):
                yield b" " * 100

        async with httpx.AsyncClient() as http:
            url = f"{gate.gateway.url}/roles/planner/v1/chat/completions"
            return (await http.post(url, content=parts(), headers=bearer(gate))).status_code

    assert served(unsaid, bounds=small) == 413


def test_slow_bodies_time_out() -> None:
    async def work(gate: Served) -> int:
        head = (
            "POST /roles/planner/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            f"authorization: Bearer {gate.agents.key}\r\ncontent-length: 500\r\n"
        )
        return await raw(gate, head.encode(), b"{", chunked=True)

    assert served(work, bounds=Bounds(body_seconds=0.3)) == 408


SMUGGLED = {
    "two lengths": b"content-length: 5\r\ncontent-length: 6\r\n",
    "length and chunks": b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
    "a bad length": b"content-length: -1\r\n",
    "a length with a plus": b"content-length: +5\r\n",
    "strange chunks": b"transfer-encoding: xchunked\r\n",
    "a folded header": b"x-a: 1\r\n authorization: Bearer x\r\ncontent-length: 2\r\n",
    "a space before the colon": b"authorization : Bearer x\r\ncontent-length: 2\r\n",
    "a nul": b"x-a: a\x00b\r\ncontent-length: 2\r\n",
}


@pytest.mark.parametrize("kind", SMUGGLED)
def test_smuggled_headers_reach_no_record(kind: str) -> None:
    async def work(gate: Served) -> Any:
        head = (
            b"POST /roles/planner/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            + f"authorization: Bearer {gate.agents.key}\r\n".encode()
            + SMUGGLED[kind]
        )
        inner = b"POST /roles/planner/v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n"
        status = await raw(gate, head, b"0\r\n\r\n" + inner, chunked=True)
        return status, gate.close()

    status, episode = served(work, bounds=Bounds(body_seconds=0.5))
    assert status in (400, 401, 408), status
    assert episode.turns == []


def test_one_episode_cannot_use_all_call_slots() -> None:
    async def work(gate: Served) -> tuple[list[int], int]:
        hold = asyncio.Event()
        answer = gate.sampler.sample

        async def slow(request: Any) -> Any:
            await hold.wait()
            return await answer(request)

        gate.sampler.sample = slow  # type: ignore[method-assign]
        other = gate.another()
        url = f"{gate.gateway.url}/roles/planner/v1/chat/completions"
        async with httpx.AsyncClient() as http:
            calls = [
                asyncio.create_task(http.post(url, json=CHAT, headers=bearer(gate)))
                for _ in range(4)
            ]
            while gate.session.num_served < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            free = asyncio.create_task(http.post(url, json=CHAT, headers=bearer(other)))
            while not other.session.num_served:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            hold.set()
            answers = await asyncio.gather(*calls)
            return sorted(a.status_code for a in answers), (await free).status_code

    statuses, other = served(work, bounds=Bounds(max_calls_at_once=2))
    assert statuses == [200, 200, 429, 429]
    assert other == 200


def test_the_call_rate_is_limited() -> None:
    async def work(gate: Served) -> list[int]:
        url = f"{gate.gateway.url}/roles/planner/v1/chat/completions"
        async with httpx.AsyncClient() as http:
            answers = [await http.post(url, json=CHAT, headers=bearer(gate)) for _ in range(7)]
        assert answers[-1].headers["retry-after"] == "1"
        return [answer.status_code for answer in answers]

    assert served(work, bounds=Bounds(calls_per_second=1)) == [200] * 5 + [429] * 2


def test_it_only_listens_on_loopback() -> None:
    async def work(gate: Served) -> tuple[str, Any]:
        sockets = [s for server in gate.gateway._server.servers for s in server.sockets]
        return gate.gateway.url, [s.getsockname()[0] for s in sockets]

    url, addresses = served(work)
    assert url.startswith("http://127.0.0.1:")
    assert addresses == ["127.0.0.1"]


def test_keys_are_random_and_stored_as_digests() -> None:
    async def work(gate: Served) -> Any:
        keys = {gate.agents.key, *gate.agents.keys.values(), gate.agents.reward_key}
        assert len(keys) == 4
        assert min(map(len, keys)) >= 40
        held = repr(vars(gate.gateway.keys)["_grants"].keys())
        assert not any(key in held for key in keys)

    served(work)
    assert len(Keyring()) == 0


def test_logs_contain_no_key(caplog: pytest.LogCaptureFixture) -> None:
    async def work(gate: Served) -> list[str]:
        async with httpx.AsyncClient() as http:
            for path in ("/roles/planner/v1/chat/completions", "/v1/nothing", "/v1/models"):
                await http.post(gate.gateway.url + path, json=CHAT, headers=bearer(gate))
        return [gate.agents.key, *gate.agents.keys.values()]

    with caplog.at_level(logging.DEBUG):
        keys = served(work)
    assert not any(key in caplog.text for key in keys)


async def raw(gate: Served, head: bytes, body: bytes, chunked: bool = False) -> int:
    """Send bytes on a socket and return the status of the response."""
    host, port = gate.gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    length = b"" if chunked else f"content-length: {len(body)}\r\n".encode()
    writer.write(head + length + b"\r\n" + body)
    await writer.drain()
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    with_status = line.split()
    return int(with_status[1]) if len(with_status) > 1 else 400
