"""OpenEnv's own server, from a virtual environment with `openenv`: every environment is played
through it as it is here, and nothing that a client or a server sends breaks the other."""

import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest

pytest.importorskip("websockets")

from hostile_messages import HOSTILE, TOO_LARGE
from remote_play import Compared, compare_play
from running import cli, config_of, metrics_of, write_config
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import pettingllms
from pettingllms.envs import find_faults, make_env
from pettingllms.envs.openenv.wire import messages_to_json, rewards_to_json
from pettingllms.errors import ForkError, NoAnswerError, PettingError
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed
from pettingllms.types import Scored, Task, read_episodes, total

HERE = Path(__file__).parent
FOLDER = os.environ.get("PETTINGLLMS_OPENENV", "")
PYTHON = Path(FOLDER) / "bin" / "python"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not FOLDER or not PYTHON.exists(),
        reason="PETTINGLLMS_OPENENV is not the folder of an environment of scripts/openenv.sh",
    ),
]
SIMULTANEOUS = ("iterated_dilemma-v1", "debate-v1")
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ENVIRONMENTS.names()},
    **{f"{name}~solo": {"solo": True} for name in ENVIRONMENTS.names()},
}


def options_of(path: str) -> dict[str, Any]:
    return {"id": path.partition("~")[0], **OPTIONS[path]}


def environ() -> dict[str, str]:
    source = str(Path(pettingllms.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, Any]]:
    """One process that serves every environment."""
    wanted = [{"path": path, **options_of(path)} for path in OPTIONS]
    process = subprocess.Popen(
        [PYTHON, HERE / "drive_openenv.py", json.dumps(wanted)],
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            yield json.loads(process.stdout.readline())
            assert process.poll() is None, "the server died"
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def serve_env(*arguments: str) -> Iterator[str]:
    """The command, started with this Python, which continues with that of the other environment."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pettingllms", "serve-env", *arguments, "--openenv", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if found := re.search(r"http://[\d.]+:\d+", line):
                    yield found[0]
                    break
            assert process.poll() is None, "the server died"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


@pytest.mark.parametrize("path", OPTIONS)
def test_served_play_equals_local_play(path: str, served: dict[str, Any]) -> None:
    try:
        local = make_env(**options_of(path))
    except PettingError as error:
        pytest.skip(f"cannot be created here either: {error}")
    assert path not in served["refused"], served["refused"][path]
    remote = make_env(f"openenv:http://127.0.0.1:{served['port']}/{path}")
    slow = local.runs_programs or local.blocking
    found = compare_play(local, remote, 3 if slow else 12)
    print(path, found)
    remote.close()
    assert found.steps
    assert found.rewards or found.submissions
    check_coverage(path, local, found)


def check_coverage(path: str, local: Any, found: Compared) -> None:
    """The comparison saw what makes an environment special."""
    if path in SIMULTANEOUS:
        assert found.simultaneous
        assert found.hidden
    if local.image_roles:
        assert found.images
    if local.judged:
        assert found.submissions


# Roles --------------------------------------------------------------------------------------------


def url_of(served: dict[str, Any], path: str) -> str:
    return f"ws://127.0.0.1:{served['port']}/{path}/ws"


def exchange(socket: Any, kind: str, data: Any = None) -> Any:
    """The data of an answer, which is no error."""
    socket.send(json.dumps({"type": kind} if data is None else {"type": kind, "data": data}))
    answer = json.loads(socket.recv(timeout=30))
    assert answer["type"] != "error", answer
    return answer["data"]


@pytest.mark.parametrize(
    "path",
    [
        "kuhn_poker-v1", "leduc_poker-v1", "hanabi-v1", "werewolf-v1", "negotiation-v1",
        "visual_relay-v1",
    ],
)  # fmt: skip
def test_a_session_of_one_role_sees_nothing_of_the_others(
    path: str, served: dict[str, Any]
) -> None:
    """What a local observation shows to another role only is nowhere in the bytes of an answer."""
    local = make_env(path)
    private = 0
    for seed in range(6):
        state = local.reset(local.tasks("train")[seed], seed)
        acting = local.acting(state)
        role = acting[seed % len(acting)]
        with connect(url_of(served, path), legacy=True, max_size=2**26) as socket:
            request = {"task": seed, "seed": seed, "role": role}
            socket.send(json.dumps({"type": "reset", "data": request}))
            raw = socket.recv(timeout=30)
        assert isinstance(raw, str)
        assert set(json.loads(raw)["data"]["observation"]["observations"]) == {role}
        own = lines_of(local, state, role)
        assert all(json.dumps(line, ensure_ascii=False)[1:-1] in raw for line in own)
        for other in local.roles:
            for line in lines_of(local, state, other) - own:
                assert json.dumps(line, ensure_ascii=False)[1:-1] not in raw, line
                private += 1
    assert private


def lines_of(env: Any, state: Any, role: str) -> set[str]:
    texts = [message.content for message in env.observe(state, role)]
    return {line for text in texts for line in text.splitlines() if len(line) > 5}


@pytest.mark.parametrize("path", ENVIRONMENTS.names())
def test_single_agent_clients_play_against_scripted_co_players(
    path: str, served: dict[str, Any]
) -> None:
    """The moves and rewards are those of a local episode with the same co-players."""
    local = make_env(path)
    for seed in range(1 if local.runs_programs else 4):
        role = local.roles[seed % len(local.roles)]
        with connect(url_of(served, path), legacy=True, max_size=2**26) as socket:
            data = exchange(socket, "reset", {"seed": seed, "task": seed, "role": role})
            play_one_role(local, role, seed, socket, data)


def play_one_role(local: Any, role: str, seed: int, socket: Any, data: Any) -> None:
    state, steps = local.reset(local.tasks("train")[seed], seed), 0

    def co_players(acting: Any) -> dict[str, str]:
        return {
            other: local.player("random")(
                local, state, other, random.Random(derive_seed("co_player", seed, steps, other))
            )
            for other in acting
            if other != role
        }

    while acting := local.acting(state):
        if role not in acting:
            result = local.step(state, co_players(acting))
            state, steps = result.state, steps + 1
            continue
        assert data["observation"]["acting"] == [role]
        assert data["observation"]["messages"] == messages_to_json(local.observe(state, role))
        reply = local.player("random")(local, state, role, random.Random(f"{seed} {steps}"))
        results = [local.step(state, {role: reply, **co_players(acting)})]
        state, steps = results[0].state, steps + 1
        while (later := local.acting(state)) and role not in later:
            results.append(local.step(state, co_players(later)))
            state, steps = results[-1].state, steps + 1
        data = exchange(socket, "step", {"text": reply})
        rewards = [one.rewards for one in results]
        expected = total(
            [rewards[0].process.get(role), *(r.agent.get(role) for r in rewards),
             *(r.team for r in rewards)]
        )  # fmt: skip
        assert data["reward"] == (expected.value if isinstance(expected, Scored) else None)
    assert data["done"]
    assert data["observation"]["success"] == {role: bool(local.success(state, role))}


def test_simultaneous_replies_are_collected(served: dict[str, Any]) -> None:
    local = make_env("iterated_dilemma-v1")
    one, other = local.roles
    with connect(url_of(served, "iterated_dilemma-v1"), legacy=True) as socket:
        data = exchange(socket, "reset", {"seed": 1, "task": 0, "role": "*"})
        state = local.reset(local.tasks("train")[0], 1)
        before = data["observation"]["state"]
        assert data["observation"]["acting"] == [one, other]
        replies = {
            role: local.player("random")(local, state, role, random.Random(4))
            for role in local.roles
        }
        data = exchange(socket, "step", {"text": replies[other], "role": other})
        assert data["observation"]["acting"] == [one]
        assert data["observation"]["state"] == before
        assert data["reward"] is None
        socket.send(json.dumps({"type": "step", "data": {"text": "again", "role": other}}))
        assert json.loads(socket.recv(timeout=30))["type"] == "error"
        data = exchange(socket, "step", {"text": replies[one], "role": one})
    after = local.step(state, replies)
    assert data["observation"]["rewards"] == rewards_to_json(after.rewards)
    assert data["observation"]["acting"] == [*local.acting(after.state)]


CLIENT = """
import json, sys
from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
    found = []
    for seed in range(5):
        result, length = env.reset(seed=seed), 0
        while not result.done:
            assert result.observation["messages"][-1]["role"] == "user"
            result, length = env.step({"text": "<answer>5</answer>"}), length + 1
        found.append([length, result.reward])
    print(json.dumps(found))
"""


def test_the_client_of_openenv_plays_without_knowing_of_roles(served: dict[str, Any]) -> None:
    address = f"http://127.0.0.1:{served['port']}/tic_tac_toe-v1"
    done = subprocess.run(
        [PYTHON, "-c", CLIENT, address],
        capture_output=True,
        text=True,
        env=environ(),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 5
    assert all(length >= 1 and isinstance(reward, float) for length, reward in found)


# Untrusted clients --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def board() -> Iterator[str]:
    """The command itself, with tic-tac-toe."""
    with serve_env("tic_tac_toe-v1", "--max-sessions=8") as address:
        yield address


def started(address: str) -> Any:
    socket = connect(f"{address.replace('http', 'ws')}/ws", legacy=True, max_size=2**26)
    exchange(socket, "reset", {"seed": 3, "task": 3, "role": ["player_x", "player_o"]})
    return socket


def sent(message: Any) -> str | bytes:
    return message if isinstance(message, str | bytes) else json.dumps(message)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_message_gets_a_clear_error_and_the_session_goes_on(
    name: str, board: str
) -> None:
    message, expected = HOSTILE[name]
    with started(board) as socket:
        socket.send(sent(message))
        answer = json.loads(socket.recv(timeout=30))
        assert answer["type"] in ("error", "mcp")
        assert expected in json.dumps(answer, ensure_ascii=False)
        assert len(json.dumps(answer)) < 2**20
        assert "Traceback" not in json.dumps(answer)
        data = exchange(socket, "step", {"text": "<answer>5</answer>"})
        assert data["observation"]["acting"] == ["player_o"]
        assert data["observation"]["state"] == 1


def test_a_message_over_the_size_limit_ends_its_own_session_only(board: str) -> None:
    with started(board) as other, started(board) as socket:
        socket.send(sent(TOO_LARGE))
        with pytest.raises(ConnectionClosed, match="1009"):
            socket.recv(timeout=30)
        assert exchange(other, "step", {"text": "<answer>5</answer>"})["observation"]["state"] == 1
    with started(board):
        pass


def test_requests_over_http_say_where_episodes_are(board: str) -> None:
    host = board.removeprefix("http://")
    for method, path, body, status, said in (
        ("POST", "/step", {"action": {"text": "1"}}, 400, "send a reset first"),
        ("POST", "/reset", {"role": "admin"}, 400, "expected one of player_x"),
        ("POST", "/step", {"action": 5}, 422, "dict"),
        ("POST", "/reset", {"seed": 4}, 200, "player_x"),
        ("GET", "/state", None, 200, "can_fork"),
        ("GET", "/schema", None, 200, "Reply of a role"),
        ("GET", "/metadata", None, 200, "tic_tac_toe-v1"),
        ("GET", "/health", None, 200, "healthy"),
        ("GET", "/../../etc/passwd", None, 404, "Not Found"),
    ):
        client = HTTPConnection(host, timeout=30)
        text = None if body is None else json.dumps(body)
        client.request(method, path, text, {"Content-Type": "application/json"})
        answer = client.getresponse()
        content = answer.read().decode()
        client.close()
        assert answer.status == status, (path, content)
        assert said in content


def test_sessions_are_limited_and_come_back(board: str) -> None:
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(started(board))
        with connect(f"{board.replace('http', 'ws')}/ws", legacy=True) as socket:
            answer = json.loads(socket.recv(timeout=30))
            assert answer["data"]["code"] == "CAPACITY_REACHED"
        with pytest.raises(NoAnswerError, match="CAPACITY_REACHED"):
            make_env(f"openenv:{board}", seconds=1)
    remote = make_env(f"openenv:{board}")
    assert find_faults(remote, 1) == []
    remote.close()


def test_clients_that_vanish_leave_the_server_alive(board: str) -> None:
    host, port = board.removeprefix("http://").split(":")
    for start in (b"", b"GET /ws HTTP/1.1\r\n", b"\x00" * 4096, b"GET / HTTP/9.9\r\n\r\n"):
        with create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(start)
    for _ in range(4):
        started(board).socket.close()
    with started(board):
        pass


# Use ----------------------------------------------------------------------------------------------


def test_a_restarted_server_is_played_on_by_replay() -> None:
    """Forks, a lost connection and a new process: the episode continues where it was."""
    local = make_env("kuhn_poker-v1")
    with serve_env("kuhn_poker-v1") as address:
        remote = make_env(f"openenv:{address}")
        task, far = local.tasks("train")[5], remote.tasks("train")[5]
        here, there = local.reset(task, 9), remote.reset(far, 9)
        role = local.acting(here)[0]
        replies = {role: local.player("random")(local, here, role, random.Random(1))}
        here, there = local.step(here, replies).state, remote.step(there, replies).state
        copied = pickle.loads(pickle.dumps(there))  # noqa: S301 - our own bytes
        assert copied == there
        role = local.acting(here)[0]
        for n in range(3):  # forks, from the session and from a copy
            replies = {role: local.player("random")(local, here, role, random.Random(n))}
            expected = local.step(here, replies)
            for state in (there, copied):
                result = remote.step(state, replies)
                assert result.rewards == expected.rewards
                assert remote.acting(result.state) == local.acting(expected.state)
        there.live.session.connection.close()
        assert remote.step(there, replies).rewards == expected.rewards
    with pytest.raises(NoAnswerError, match="no OpenEnv server answers"):
        remote.step(there, replies)
    remote.close()


PLAIN = """
import socket, sys, uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

class Guess(Action):
    number: int

class Hint(Observation):
    hint: str = ""

class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def reset(self, seed=None, episode_id=None, **kwargs):
        self.secret, self.count = (seed or 0) % 5, 0
        return Hint(hint="guess a number from 0 to 4")
    def step(self, action, timeout_s=None, **kwargs):
        self.count += 1
        right = action.number == self.secret
        return Hint(hint="right" if right else "wrong", reward=float(right),
                    done=right or self.count == 5)
    @property
    def state(self):
        return State(step_count=self.count)

listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
app = create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=16)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])
"""


def test_a_server_without_the_extension_is_an_environment_of_one_role() -> None:
    process = subprocess.Popen(
        [PYTHON, "-c", PLAIN], stdout=subprocess.PIPE, text=True, env=environ()
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            remote = make_env(f"openenv:http://127.0.0.1:{int(process.stdout.readline())}")
        assert (remote.roles, remote.can_fork) == (("agent",), False)
        state = remote.reset(remote.tasks("train")[0], 0)
        assert remote.observe(state, "agent")[-1].text == '{"hint": "guess a number from 0 to 4"}'
        rewards = []
        for guess in range(5):
            before, result = state, remote.step(state, {"agent": str(guess)})
            state = result.state
            rewards.append(result.rewards.agent["agent"])
            if not remote.acting(state):
                break
        assert rewards[-1] == Scored(1.0)
        assert remote.success(state, "agent")
        with pytest.raises(ForkError, match="only the latest state"):
            remote.step(before, {"agent": "1"})
        state = remote.reset(remote.tasks("train")[1], 0)
        for nonsense in ("", "a number", "[1]", "1.5", "9" * 5000):
            lost = remote.step(state, {"agent": nonsense})
            assert lost.rewards.agent["agent"] == Scored(-1.0)
            assert not remote.acting(lost.state)
            state = remote.reset(remote.tasks("train")[1], 0)
        remote.close()
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.engine
def test_a_run_of_two_steps_trains_on_a_served_environment(tmp_path: Path) -> None:
    """Tree rollouts of two policies, so that the server's states are forked."""
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    from pettingllms.models import make_tiny

    texts = [f"You are role{n % 2}. Count on from {n}: role0 says {n}" for n in range(200)]
    model = str(make_tiny(tmp_path / "tiny", texts=texts, hidden_size=64, vocab_size=320))
    policies = {
        "one": {"kind": "full", "model": model, "lr": 1e-3},
        "other": {"kind": "lora", "model": model, "rank": 4, "lr": 1e-3},
    }
    with serve_env(f"{HERE / 'digits.py'}:Digits", "num_roles=2") as address:
        config = config_of(
            policies,
            {"role0": "one", "role1": "other"},
            algo={"type": "at_grpo"},
            inference={"engine": "torch"},
            cluster={"device": "cpu"},
            train={"num_steps": 2},
        )
        config["env"] = {"id": f"openenv:{address}"}
        path = write_config(tmp_path / "config.toml", config)
        cli(tmp_path / "log.txt", "train", path, "--out", tmp_path / "run", seconds=560)
    lines = metrics_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2]
    for name in policies:
        assert [line[f"policies/{name}/version"] for line in lines] == [1, 2]
        assert all(line[f"policies/{name}/grad_norm"] > 0 for line in lines)
    episodes = list(read_episodes(tmp_path / "run"))
    assert {episode.env for episode in episodes} == {config["env"]["id"]}
    assert all(episode.failure is None for episode in episodes)
    local = make_env(f"{HERE / 'digits.py'}:Digits")
    for episode in episodes:  # each step is what the environment gives here
        for step in episode.steps:
            turns = [episode.turns[at] for at in step.turns]
            assert len(turns) == 1
            ((role, given),) = step.rewards.process.items()
            state = local.reset(Task("train-0", {"first": 0}), 0)
            reply = {"role0": turns[0].text}
            assert local.step(state, reply).rewards.process["role0"] == given
            assert role == turns[0].role
