"""No request blocks the event loop: neither the largest accepted ones nor rejected ones.

A watchdog ticks in the gateway's event loop. Between two ticks the process must use less than 50 ms
of CPU time. This includes other threads that hold the GIL, but not other processes on a busy
machine. A late tick repeats the test, because real blocking occurs every time. Where the machine is
slow at the time, the CPU time is divided by its slowness, which a fixed loop measures.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from gateways import Served, served

from pettingllms.gateway.session import Limits
from pettingllms.rollouts.scripted import ByteRenderer

MOST = 0.05
LOOP_SECONDS = 0.1
"""CPU time of the fixed loop on a machine that is not slow; most need half of it."""
TRIES = 5
MESSAGES = 2_000
"""Messages of the longest accepted chat."""
TEXT = 500_000
"""Bytes of the longest prompt."""
BODY = 4_000_000
Status = tuple[int, bytes]


def slowness() -> float:
    """How many times slower this machine is at the moment; at least 1."""
    before = time.process_time()
    sum(number * number for number in range(500_000))
    return max(1.0, (time.process_time() - before) / LOOP_SECONDS)


async def worst_gap(work: Callable[[], Any]) -> tuple[float, Any]:
    """The most CPU time between two ticks of the event loop, and the result of the work."""
    worst, over = 0.0, asyncio.Event()

    async def tick() -> None:
        nonlocal worst
        before, then = time.process_time(), time.perf_counter()
        while not over.is_set():
            await asyncio.sleep(0.003)
            now, here = time.process_time(), time.perf_counter()
            worst = max(worst, min(now - before, here - then))
            before, then = now, here

    ticking = asyncio.create_task(tick())
    result = await work()
    over.set()
    await ticking
    return worst / slowness(), result


async def send(gate: Served, path: str, body: bytes, key: str = "") -> Status:
    """Status and body of the response. Uses a raw socket: a client would use CPU time too."""
    host, port = gate.gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        f"authorization: Bearer {key or gate.agents.keys['worker']}\r\n\r\n"
    )
    writer.write(head.encode())
    for start in range(0, len(body), 65536):
        writer.write(body[start : start + 65536])
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 300)
    writer.close()
    return int(answer[:50].split()[1]), answer.partition(b"\r\n\r\n")[2]


def attacked(path: str, body: bytes, **options: Any) -> tuple[float, Status]:
    """The worst gap of the best try, and the response."""

    async def work(gate: Served) -> tuple[float, Status]:
        await send(gate, path, b"{}")  # threads start, modules are imported
        found = []
        for _ in range(TRIES):
            found.append(await worst_gap(lambda: send(gate, path, body)))
            if found[-1][0] < MOST:
                break
        return min(found)

    return served(work, **options)


def chat(num: int, size: int) -> list[dict[str, Any]]:
    """A chat with that many messages; the last one is from the user."""
    text = "12 + 34 = 46, is it? " * (size // num // 21 + 1)
    said = text[: max(1, size // num - 40)]
    speakers = ("user", "assistant")
    found = [{"role": speakers[at % 2], "content": said} for at in range(num - 1)]
    return [*found, {"role": "user", "content": said}]


def called(num: int) -> list[dict[str, Any]]:
    """A chat of tool calls, their results, and a question."""
    found: list[dict[str, Any]] = []
    for at in range(num // 3):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        found.append({"role": "assistant", "content": "", "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"c{at}", "content": "x" * 100})
    return [*found[:-1], {"role": "user", "content": "and now?"}]


def items(num: int) -> list[dict[str, Any]]:
    """One reply with many tool calls, as input of the Responses API."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    return [{"role": "assistant", "content": "x"}, *[call] * (num - 1)]


def calling(num: int) -> list[dict[str, Any]]:
    """The same in a chat."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [call] * (num - 1)}]


def blocks(num: int) -> list[dict[str, Any]]:
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x" * 50}
    return [{"role": "user", "content": [result] * num}]


CHATS = "/roles/worker/v1/chat/completions"
BARE = "/roles/worker/v1/completions"
RESPONSES = "/roles/worker/v1/responses"
ANTHROPIC = "/roles/worker/v1/messages"
LARGEST: dict[str, tuple[str, Any]] = {
    "chat": (CHATS, {"messages": chat(MESSAGES, TEXT)}),
    "chat of short messages": (CHATS, {"messages": chat(MESSAGES, 1)}),
    "chat with tools": (CHATS, {"messages": called(MESSAGES)}),
    "chat of one message": (CHATS, {"messages": chat(1, TEXT)}),
    "chat of parts": (
        CHATS,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 9_900}]},
    ),
    "chat with many tools": (
        CHATS,
        {"messages": chat(1, 9), "tools": [{"function": {"name": f"f{n}"}} for n in range(2_500)]},
    ),
    "prompt": (BARE, {"prompt": "12 + 34 = 46. " * (TEXT // 14)}),
    "prompt of ids": (BARE, {"prompt": [1] * 199_000}),
    "responses": (RESPONSES, {"input": chat(MESSAGES, TEXT)}),
    "responses with calls": (RESPONSES, {"input": items(MESSAGES)}),
    "messages": (ANTHROPIC, {"max_tokens": 5, "messages": chat(MESSAGES, TEXT)}),
    "messages of results": (ANTHROPIC, {"max_tokens": 5, "messages": blocks(MESSAGES)}),
}


@pytest.mark.parametrize("kind", LARGEST)
def test_the_largest_requests_do_not_block_the_loop(kind: str) -> None:
    path, body = LARGEST[kind]
    gap, (status, answer) = attacked(path, json.dumps(body).encode())
    assert status == 200, answer[:300]
    assert gap < MOST


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from pettingllms.inference.chat import ChatRenderer
    from pettingllms.models import make_tiny

    texts = [f"{n} + {n} = {n + n}, is it?" for n in range(50)]
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return ChatRenderer(make_tiny(folder, texts=texts, hidden_size=64))


class Decoded(ByteRenderer):
    """A real tokenizer and template for prompts; replies are bytes."""

    def __init__(self, real: Any) -> None:
        self.end, self.num_ids = real.end, real.num_ids
        self.chat_text, self.text_ids = real.chat_text, real.text_ids  # type: ignore[method-assign]
        self.prompt_ids = real.prompt_ids  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", ["chat", "prompt", "responses", "messages"])
def test_real_tokenizers_do_not_block_the_loop(kind: str, tokenizer: Path) -> None:
    path, body = LARGEST[kind]
    gap, (status, answer) = attacked(path, json.dumps(body).encode(), renderer=Decoded(tokenizer))
    assert status == 200, answer[:300]
    assert gap < MOST


def listed(name: str, item: str, rest: str = "") -> bytes:
    """A JSON object with a list that fills the body."""
    num = (BODY - 100) // (len(item) + 1)
    return f'{{"max_tokens": 5, "{name}": [{",".join([item] * num)}]{rest}}}'.encode()


MESSAGE = '{"role":"user","content":"x"}'
REJECTED: dict[str, tuple[str, bytes, str]] = {
    "90,000 messages": (CHATS, listed("messages", MESSAGE), "10,000 JSON objects"),
    "one message too many": (
        CHATS,
        json.dumps({"messages": chat(MESSAGES + 1, 1)}).encode(),
        "2,001 messages and tool calls; at most 2,000",
    ),
    "calls of tools": (
        CHATS,
        json.dumps({"messages": calling(4_900)}).encode(),
        "4,900 messages and tool calls; at most 2,000",
    ),
    "one item too many": (
        RESPONSES,
        json.dumps({"input": chat(MESSAGES + 1, 1)}).encode(),
        "2,001 messages and tool calls; at most 2,000",
    ),
    "one result too many": (
        ANTHROPIC,
        json.dumps({"max_tokens": 5, "messages": blocks(MESSAGES + 1)}).encode(),
        "2,001 messages and tool calls; at most 2,000",
    ),
    "empty objects": (ANTHROPIC, listed("messages", "{}"), "10,000 JSON objects"),
    "empty lists": (RESPONSES, listed("input", "[]"), "200,000 JSON values"),
    "empty strings": (CHATS, listed("messages", '""'), "200,000 JSON values"),
    "ids": (BARE, listed("prompt", "1"), "200,000 JSON values"),
    "wrong ids": (BARE, json.dumps({"prompt": ["x"] * 66_000}).encode(), "prompt"),
    "wrong messages": (CHATS, json.dumps({"messages": [1] * 190_000}).encode(), "messages.0"),
    "wrong parts": (
        CHATS,
        json.dumps({"messages": [{"role": "user", "content": [1] * 190_000}]}).encode(),
        "messages.0.content",
    ),
    "stop texts": (
        CHATS,
        json.dumps({"messages": chat(1, 9), "stop": ["x"] * 60_000}).encode(),
        "stop",
    ),
    "biases": (
        CHATS,
        json.dumps(
            {"messages": chat(1, 9), "logit_bias": dict.fromkeys(range(60_000), "x")}
        ).encode(),
        "logit_bias",
    ),
    "a long text": (CHATS, json.dumps({"messages": chat(1, BODY - 200)}).encode(), "500,000"),
    "a long prompt": (BARE, json.dumps({"prompt": "x" * (BODY - 200)}).encode(), "500,000"),
    "escapes": (BARE, b'{"prompt": "' + b"\\u0041" * 660_000 + b'"}', "500,000"),
    "pairs of escapes": (BARE, b'{"prompt": "' + b"\\ud83d\\ude00" * 330_000 + b'"}', "500,000"),
    "quotes": (CHATS, b'"' * (BODY - 1), "200,000 JSON values"),
    "escaped quotes": (CHATS, b'{"messages": "' + b'\\"' * 1_990_000, "not valid JSON"),
    "backslashes": (CHATS, b'{"messages": "' + b"\\" * 3_900_000, "not valid JSON"),
    "depth": (CHATS, b"[" * 190_000, "not valid JSON"),
    "a long number": (CHATS, b'{"messages": ' + b"9" * 3_900_000 + b"}", "not valid JSON"),
}


@pytest.mark.parametrize("kind", REJECTED)
def test_rejected_requests_do_not_block_the_loop(kind: str) -> None:
    path, body, reason = REJECTED[kind]
    assert len(body) <= BODY
    gap, (status, answer) = attacked(path, body)
    assert status == 400
    assert reason in json.dumps(json.loads(answer)).replace("\\n", " ")
    assert gap < MOST


def test_large_rewards_are_rejected() -> None:
    body = json.dumps({"level": "team", "value": 1, **dict.fromkeys(map(str, range(1_500)), 1)})

    async def work(gate: Served) -> int:
        answer = await send(gate, "/v1/rewards", body.encode(), gate.agents.reward_key)
        return answer[0]

    assert served(work) == 413


@pytest.mark.parametrize("stream", [False, True])
def test_long_responses_do_not_block_the_loop(stream: bool) -> None:
    body = {"messages": chat(1, 9), "n": 16, "stream": stream}
    gap, (status, answer) = attacked(
        CHATS,
        json.dumps(body).encode(),
        answer=lambda *_: "so it is " * 500,
        limits=Limits(max_reply_tokens=20_000),
    )
    assert status == 200
    assert len(answer) > 70_000
    assert gap < MOST


def test_a_long_chat_extends_the_recorded_ids() -> None:
    async def work(gate: Served) -> Any:
        messages = chat(MESSAGES - 2, 50_000)
        _, answer = await send(gate, CHATS, json.dumps({"messages": messages}).encode())
        reply = json.loads(answer)["choices"][0]["message"]
        messages += [reply, {"role": "user", "content": "and now?"}]
        await send(gate, CHATS, json.dumps({"messages": messages}).encode())
        return gate.close()

    first, second = served(work).turns
    assert (first.links.extends, second.links.extends) == (None, 0)
    known = [*first.prompt_ids.tolist(), *first.response_ids.tolist()]
    assert second.prompt_ids.tolist()[: len(known)] == known


class Slow(ByteRenderer):
    """Blocks on long texts until it is released."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def text_ids(self, text: str) -> Any:
        if len(text) > 200_000:
            self.free.wait(60)
        return super().text_ids(text)


def test_small_calls_do_not_wait_for_large_ones() -> None:
    renderer = Slow()

    async def work(gate: Served) -> tuple[int, list[int]]:
        large = json.dumps({"messages": chat(1, 300_000)}).encode()
        small = json.dumps({"messages": chat(1, 9)}).encode()
        waiting = [asyncio.create_task(send(gate, CHATS, large)) for _ in range(8)]
        await asyncio.sleep(0.3)
        first = await asyncio.wait_for(send(gate, CHATS, small), 60)
        assert not any(task.done() for task in waiting)
        renderer.free.set()
        return first[0], [status for status, _ in await asyncio.gather(*waiting)]

    assert served(work, renderer=renderer) == (200, [200] * 8)
