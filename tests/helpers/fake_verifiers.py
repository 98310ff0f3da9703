"""A fake of the verifiers process: two roles talk, and the length of a reply is the reward.

The name of the taskset chooses what it does instead, such as `answers-3`: the third wrong answer.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

ROLES = ["asker", "solver"]
OPENED = {
    "version": "0",
    "roles": ROLES,
    "agents": [*ROLES, "pinned"],
    "tasks": {
        "train": [
            {"index": at, "key": f"k{at}", "name": f"n{at}", "prompt": f"task {at}"}
            for at in range(20)
        ]
    },
}
TRACE = {"agent": "solver", "reward": 1.0, "rewards": {"r": 1.0}, "metrics": {}, "num_turns": 1}
PLAYED = {"ok": True, "error": "", "traces": [TRACE]}


def wrong_traces() -> list[object]:
    """Results of `play` that are JSON, but not those of an episode."""
    traces = [
        {**TRACE, "reward": 1e300},
        {**TRACE, "reward": "1"},
        {**TRACE, "reward": None},
        {**TRACE, "reward": True},
        {**TRACE, "agent": "stranger"},
        {**TRACE, "agent": 3},
        {**TRACE, "more": 1},
        {"agent": "solver"},
        {**TRACE, "metrics": []},
        {**TRACE, "num_turns": "many"},
        [],
        None,
        7,
    ]
    results: list[object] = [{**PLAYED, "traces": [one]} for one in traces]
    return [
        *results,
        None,
        [],
        "done",
        7,
        {},
        {**PLAYED, "traces": []},
        {**PLAYED, "traces": {}},
        {**PLAYED, "ok": "yes"},
        {**PLAYED, "ok": False, "error": "out\nof\nluck"},
        {**PLAYED, "error": None},
        {**PLAYED, "extra": 1},
        {**PLAYED, "traces": [TRACE] * 10_001},
    ]


def wrong_lines(number: int) -> list[bytes]:
    """Lines that break the protocol."""
    return [
        b"\n",
        b"hello\n",
        b"\xff\xfe\n",
        b"null\n",
        b"[]\n",
        b"7\n",
        b"{}\n",
        b'{"id": 1}\n',
        b'{"id": %d}\n' % number,
        b'{"id": "%d", "result": 1}\n' % number,
        b'{"id": true, "result": 1}\n',
        b'{"id": %d.0, "result": 1}\n' % number,
        b'{"id": %d, "result": 1, "error": "x"}\n' % number,
        b'{"id": %d, "result": NaN}\n' % number,
        b'{"id": %d, "result": 1e999}\n' % number,
        b'{"id": %d, "result": %s}\n' % (number, b"[" * 100_000 + b"]" * 100_000),
        b'{"id": 999999, "result": 1}\n',
        b'{"id": %d, "result": "%s"}\n' % (number, b"x" * 2**21),
        b'{"id": %d, "result"' % number,
        b"\x80\x04K\x01.\n",
        b'{"id": %d, "error": {"deep": ["x"]}}\n' % number,
        b"",
    ]


def say(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def answer(number: int, result: object) -> None:
    say(json.dumps({"id": number, "result": result}).encode() + b"\n")


def ask(access: dict[str, str], content: str) -> str:
    request = urllib.request.Request(  # noqa: S310 - the gateway of the test
        f"{access['base_url']}/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode(),
        {"authorization": f"Bearer {access['api_key']}"},
    )
    with urllib.request.urlopen(request) as reply:  # noqa: S310 - the same
        return json.load(reply)["choices"][0]["message"]["content"]


def play(request: dict[str, object], kind: str, which: int) -> None:
    number, access = request["id"], request["access"]
    said = ask(access["asker"], f"task {request['index']}")
    reply = ask(access["solver"], said)
    if kind == "results":
        answer(number, wrong_traces()[which])
    elif kind == "lines":
        say(wrong_lines(number)[which])
        if not wrong_lines(number)[which].endswith(b"\n"):
            sys.stderr.write("last words\n")
            sys.exit(3)
        time.sleep(60)
    elif kind == "silent":
        time.sleep(600)
    else:
        reward = float(len(reply))
        traces = [{**TRACE, "agent": role, "reward": reward} for role in ROLES]
        traces.append({**TRACE, "agent": "pinned", "reward": -1.0})
        answer(number, {**PLAYED, "traces": traces})


def main() -> None:
    name = ""
    for line in sys.stdin:
        request = json.loads(line)
        if request["call"] == "cancel":
            Path(os.environ["FAKE_LOG"]).write_text("cancelled")
            sys.exit(0)
        if request["call"] == "open":
            name = request["name"]
            kind, _, which = name.partition("-")
            if kind == "opens":
                wrong = [
                    {}, [], None, {**OPENED, "roles": []}, {**OPENED, "roles": "ab"},
                    {**OPENED, "tasks": {}}, {**OPENED, "tasks": {"test": []}},
                    {**OPENED, "tasks": {"train": []}},
                    {**OPENED, "tasks": {"train": [{"index": -1}]}},
                ]  # fmt: skip
                answer(request["id"], wrong[int(which)])
            elif kind == "dies":
                sys.stderr.write("no module named\nnothing\n")
                sys.exit(9)
            elif kind == "never":
                time.sleep(600)
            else:
                answer(request["id"], OPENED)
        else:
            kind, _, which = name.partition("-")
            play(request, kind, int(which or 0))


if __name__ == "__main__":
    main()
