"""Messages that no well-behaved client sends, and what a server should say about them."""

import json
from typing import Any

LARGE = 5 * 2**20


def step(**action: Any) -> dict[str, Any]:
    return {"type": "step", "data": action}


def reset(**data: Any) -> dict[str, Any]:
    return {"type": "reset", "data": data}


HOSTILE: dict[str, tuple[Any, str]] = {
    "text is no JSON": ("hello", "is not JSON"),
    "empty text": ("", "is not JSON"),
    "cut JSON": ('{"type": "step", "data": {', "is not JSON"),
    "list": ([1, 2, 3], "expected an object"),
    "number": (7, "expected an object"),
    "null": ("null", "expected an object"),
    "string": ('"step"', "expected an object"),
    "deep list": ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    "deep object": ('{"a":' * 50_000 + "1" + "}" * 50_000, "nested too deeply"),
    "long number": ('{"type": ' + "9" * 10_000 + "}", "is not JSON"),
    "pickle": (b"\x80\x04\x95\x00", "is not JSON"),
    "empty bytes": (b"", "is not JSON"),
    "bytes of a bad action": (json.dumps(step(text=4)).encode(), "action.text is 4"),
    "NaN": ('{"type": "step", "data": {"text": NaN}}', "NaN is no JSON number"),
    "no type": ({"data": {}}, "Unknown message type"),
    "unknown type": ({"type": "teleport"}, "Unknown message type"),
    "type is a number": ({"type": 7}, "Unknown message type"),
    "type is a list": ({"type": ["step"]}, "Unknown message type"),
    "type is a surrogate": ('{"type": "\\ud800"}', "surrogate"),
    "step without data": ({"type": "step"}, "Invalid message"),
    "step with a list": ({"type": "step", "data": [1]}, "Invalid message"),
    "step with an extra key": ({"type": "step", "data": {"text": "1"}, "x": 1}, "Invalid message"),
    "reset with text": ({"type": "reset", "data": "now"}, "Invalid message"),
    "mcp without a method": ({"type": "mcp", "data": {}}, "error"),
    "mcp of another tool": (
        {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}},
        "does not support MCP",
    ),
    "empty action": (step(), "action.text is missing"),
    "text is null": (step(text=None), "action.text is missing"),
    "text is a number": (step(text=5), "action.text is 5; expected a string"),
    "text is a list": (step(text=["<answer>1</answer>"]), "a list of 1; expected a string"),
    "text is an object": (step(text={"a": 1}), "an object of 1; expected a string"),
    "text is too long": (step(text="x" * (2**18 + 1)), "at most 262144"),
    "unknown key of an action": (step(text="1", reward=100), "unknown key 'reward'"),
    "pickle in an action": (step(text="1", pickle="gASVKAAA"), "unknown key 'pickle'"),
    "role is unknown": (step(text="1", role="admin"), "expected one of player_x"),
    "role is another's": (step(text="1", role="player_o"), "expected one of player_x"),
    "role is a number": (step(text="1", role=0), "expected one of player_x"),
    "role is a path": (step(text="1", role="../../etc/passwd"), "expected one of player_x"),
    "text and replies": (step(text="1", replies={"player_x": "1"}), "send one of them"),
    "replies is a list": (step(replies=["1"]), "expected an object"),
    "replies of nobody": (step(replies={}), "expected replies of player_x"),
    "reply of another role": (step(replies={"player_o": "1"}), "expected roles of this episode"),
    "reply is a number": (step(replies={"player_x": 1}), "expected a string"),
    "replies of many": (step(replies={str(n): "1" for n in range(5000)}), "at most"),
    "state is negative": (step(text="1", state=-1), "expected a whole number"),
    "state is unknown": (step(text="1", state=99), "no state 99"),
    "state is text": (step(text="1", state="0; drop table"), "expected a whole number"),
    "state is huge": (step(text="1", state=10**400), "expected a whole number"),
    "state is true": (step(text="1", state=True), "expected a whole number"),
    "ask is text": (step(ask="minimax"), "expected an object"),
    "ask an unknown player": (step(ask={"player": "x", "role": "player_x"}), "no player called"),
    "ask for another role": (
        step(ask={"player": "random", "role": "player_o"}),
        "expected one of player_x",
    ),
    "ask with a bad seed": (
        step(ask={"player": "random", "role": "player_x", "seed": -4}),
        "expected a whole number",
    ),
    "ask with a bad fraction": (
        step(ask={"player": "random~7", "role": "player_x"}),
        "write a number from 0 to 1",
    ),
    "seed is negative": (reset(seed=-1), "reset.seed is -1"),
    "seed is text": (reset(seed="1"), "reset.seed is '1'"),
    "seed is a float": (reset(seed=1.5), "reset.seed is 1.5"),
    "seed is infinite": (
        '{"type": "reset", "data": {"seed": Infinity}}',
        "Infinity is no JSON number",
    ),
    "seed is too large": (reset(seed=2**64), "expected a whole number"),
    "task is out of range": (reset(task=10**9), "reset.task"),
    "task is text": (reset(task="train-0"), "expected a whole number"),
    "split is unknown": (reset(split="validation"), "expected one of train, test"),
    "role to reset is unknown": (reset(role="admin"), "expected one of player_x, player_o"),
    "roles are twice": (reset(role=["player_x", "player_x"]), "each once"),
    "roles are none": (reset(role=[]), "each once"),
    "roles are nested": (reset(role=[["player_x"]]), "expected one of"),
    "co-player is unknown": (reset(role="player_x", co_players="x"), "no player called 'x'"),
    "co-player is a number": (reset(role="player_x", co_players=1), "expected a string"),
    "co-player of the own role": (
        reset(role="player_x", co_players={"player_x": "random"}),
        "expected roles of this episode",
    ),
    "episode id is long": (reset(episode_id="x" * 300), "at most 255"),
    "episode id is a number": (reset(episode_id=4), "expected a string"),
    "unknown key of a reset": (reset(reward=1), "unknown key 'reward'"),
    "key of Python": (reset(__class__="x"), "unknown key '__class__'"),
    "key is an argument": (reset(self=1), "self"),
    "key is another argument": (reset(func=1), "func"),
}
"""Each with what the error says; the session goes on."""

TOO_LARGE = step(text="x" * LARGE)
"""The server closes the connection with the code 1009."""
