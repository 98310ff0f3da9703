"""`openenv:URL` against servers in this process: faithful ones, and hostile ones."""

import copy
import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("websockets")

from remote_play import compare_play
from wire_server import answer_of, faithful, http_server, wire_server

from pettingllms.envs import find_faults, make_env
from pettingllms.envs.openenv.served import Served
from pettingllms.envs.openenv.sessions import PlaySession
from pettingllms.envs.openenv.wire import MAX_ANSWER
from pettingllms.errors import ConfigError, ForkError, NoAnswerError, PettingError
from pettingllms.types import Failed, Submission

Change = Callable[[Any], Any]


@pytest.mark.parametrize(
    "name", ["tic_tac_toe-v1", "kuhn_poker-v1", "iterated_dilemma-v1", "visual_relay-v1"]
)
def test_play_equals_local_play(name: str) -> None:
    local = make_env(name)
    with wire_server(faithful(local)) as url:
        remote = make_env(f"openenv:{url}")
        assert compare_play(local, remote, 4).steps
        remote.close()


@pytest.mark.parametrize("options", [{}, {"role": "player_o"}, {"solo": True}])
def test_a_remote_environment_keeps_the_contract(options: dict[str, Any]) -> None:
    with wire_server(faithful(make_env("tic_tac_toe-v1"))) as url:
        remote = make_env(f"openenv:{url}", **options)
        assert find_faults(remote, 3) == []
        if options:
            assert len(remote.roles) == 1
        del remote


def test_without_forks_each_state_is_stepped_once() -> None:
    env = make_env("tic_tac_toe-v1")
    env.can_fork = False
    with wire_server(faithful(env)) as url:
        remote = make_env(f"openenv:{url}")
        assert not remote.can_fork
        start = remote.reset(remote.tasks("train")[0], 0)
        replies = {"player_x": "<answer>1</answer>"}
        after = remote.step(start, replies).state
        for state in (start, pickle.loads(pickle.dumps(after))):  # noqa: S301
            with pytest.raises(ForkError, match="cannot fork"):
                remote.step(state, {remote.acting(state)[0]: "<answer>2</answer>"})
        after.live.session.connection.close()
        with pytest.raises(NoAnswerError, match="closed"):
            remote.step(after, {"player_o": "<answer>2</answer>"})
        remote.close()


def test_connections_are_used_again() -> None:
    opened = []
    script = faithful(make_env("tic_tac_toe-v1"))

    def connected() -> Any:
        opened.append(1)
        return script()

    with wire_server(connected) as url:
        remote = make_env(f"openenv:{url}")
        for seed in range(20):
            state = remote.reset(remote.tasks("train")[seed], seed)
            del state
        remote.close()
    assert len(opened) == 1


def test_a_replay_that_differs_is_refused() -> None:
    """Another server takes the place of the first, and deals other cards."""
    first = make_env("kuhn_poker-v1")

    class Other(type(first)):  # type: ignore[misc]
        def reset(self, task: Any, seed: int) -> Any:
            return super().reset(task, seed + 1)

    scripts = [faithful(first)]
    with wire_server(lambda: scripts[-1]()) as url:  # noqa: PLW0108
        remote = make_env(f"openenv:{url}")
        states = [remote.reset(remote.tasks("train")[0], seed) for seed in range(8)]
        scripts.append(faithful(Other()))
        refused = 0
        for state in states:
            state.live.session.connection.close()
            try:
                remote.step(state, {remote.acting(state)[0]: "<answer>check</answer>"})
            except ForkError as error:
                refused += "replaying its replies gives another state" in str(error)
        assert 0 < refused < 8  # some deals look the same to the role that acts
        remote.close()


def test_a_role_that_the_server_does_not_have_is_named() -> None:
    with (
        wire_server(faithful(make_env("tic_tac_toe-v1"))) as url,
        pytest.raises(ConfigError, match="has no role 'player_z'; did you mean"),
    ):
        make_env(f"openenv:{url}", role="player_z")


def test_an_unknown_co_player_is_named() -> None:
    with wire_server(faithful(make_env("tic_tac_toe-v1"))) as url:
        remote = make_env(f"openenv:{url}", role="player_x", co_players="nobody")
        with pytest.raises(NoAnswerError, match="no player called 'nobody'"):
            remote.reset(remote.tasks("train")[0], 0)
        remote.close()


# Addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file:///etc/passwd", "is no address"),
        ("localhost", "is no address"),
        ("http://", "is no address"),
        ("http://host:port", "is no address"),
        ("http://[::1", "is no address"),
        ("http://user:word@localhost:1", "has a user"),
        ("http://localhost:1/?a=b", "a query"),
        ("http://localhost:1#a", "a fragment"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_env(f"openenv:{url}")


def test_a_server_that_is_not_there_is_reported_after_its_tries() -> None:
    with pytest.raises(NoAnswerError, match="no OpenEnv server answers at http://127.0.0.1:1:"):
        make_env("openenv:http://127.0.0.1:1", num_tries=2)


def test_a_key_is_never_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_KEY", "s3cret")
    with pytest.raises(ConfigError, match="unencrypted") as caught:
        make_env("openenv:http://example.com", key="OPENENV_KEY")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match="is not set"):
        make_env("openenv:https://example.com", key="NO_SUCH_KEY")


# Hostile servers ----------------------------------------------------------------------------------


def hostile(kind: str, change: Change) -> Callable[[], Any]:
    """A server whose answers to one kind of message are changed."""
    served = Served(make_env("tic_tac_toe-v1"))

    def connected() -> Any:
        session = PlaySession(served)

        def script(message: dict[str, Any], connection: Any) -> Any:
            answer = answer_of(session, message)
            if message["type"] == kind:
                answer = change(copy.deepcopy(answer))
            return answer if isinstance(answer, str | bytes | None) else json.dumps(answer)

        return script

    return connected


def put(path: str, value: Any) -> Change:
    """Replace the value at a path of an answer."""

    def change(answer: Any) -> Any:
        at, *names = answer, *path.split(".")
        for name in names[:-1]:
            at = at[int(name) if isinstance(at, list) else name]
        at[int(names[-1]) if isinstance(at, list) else names[-1]] = value
        return answer

    return change


INFO = "data.pettingllms"
SEEN = "data.observation"
VIEW = f"{SEEN}.observations.player_o"
DESCRIBED: dict[str, tuple[Change, str]] = {
    "other protocol": (put(f"{INFO}.protocol", 1), "this version speaks 2"),
    "no roles": (put(f"{INFO}.roles", []), "at least one role"),
    "roles twice": (put(f"{INFO}.roles", ["a", "a"]), "each once"),
    "roles as text": (put(f"{INFO}.roles", "ab"), "expected a list"),
    "many roles": (put(f"{INFO}.roles", [f"r{n}" for n in range(10**4)]), "at most 64"),
    "role is empty": (put(f"{INFO}.roles", [""]), "a printable name"),
    "role with escapes": (put(f"{INFO}.roles", ["\x1b[2J"]), "a printable name"),
    "role is a number": (put(f"{INFO}.roles", [1]), "expected a string"),
    "image role unknown": (put(f"{INFO}.image_roles", ["x"]), "expected one of"),
    "no tasks": (put(f"{INFO}.num_tasks.train", 0), "expected a whole number"),
    "tasks without end": (put(f"{INFO}.num_tasks.train", 10**30), "expected a whole number"),
    "a task and a half": (put(f"{INFO}.num_tasks.test", 1.5), "expected a whole number"),
    "no test tasks": (put(f"{INFO}.num_tasks", {"train": 1}), "test is missing"),
    "limit reward is text": (put(f"{INFO}.limit_reward", "1"), "expected a number"),
    "limit reward is huge": (put(f"{INFO}.limit_reward", 1e300), "expected a number"),
    "limit level unknown": (put(f"{INFO}.limit_level", "all"), "expected one of agent, team"),
    "can fork maybe": (put(f"{INFO}.can_fork", "yes"), "true or false"),
    "description is a list": (put(INFO, [1]), "expected an object"),
    "other type": (put("type", "observation"), "expected 'state'"),
    "data is a list": (put("data", []), "expected an object"),
}
STEPPED: dict[str, tuple[Change, str]] = {
    "no JSON": (lambda _: "hello", "is not JSON"),
    "pickle": (lambda _: b"\x80\x04\x95.", "is not JSON"),
    "list": (lambda _: "[]", "expected an object"),
    "NaN": (lambda _: '{"data": NaN}', "NaN is no JSON number"),
    "deep": (lambda _: "[" * 100_000, "nested too deeply"),
    "long number": (lambda _: "1" * 9999, "is not JSON"),
    "over the size limit": (lambda _: " " * (MAX_ANSWER + 1), "closed the connection"),
    "unknown type": (put("type", "win"), "expected 'observation'"),
    "no type": (put("type", None), "type is missing"),
    "no data": (lambda answer: {"type": answer["type"]}, "data is missing"),
    "error with a list": (lambda _: {"type": "error", "data": [1]}, "no message"),
    "error that is long": (
        lambda _: {"type": "error", "data": {"message": "x\n\x1b" * 10**6, "code": "y" * 10**6}},
        "refused a step",
    ),
    "done is missing": (put("data.done", None), "done is missing"),
    "done is text": (put("data.done", "false"), "true or false"),
    "done while roles act": (put("data.done", True), "acting"),
    "nobody acts": (put(f"{SEEN}.acting", []), "acting"),
    "acts twice": (put(f"{SEEN}.acting", ["player_o", "player_o"]), "acting"),
    "another role acts": (put(f"{SEEN}.acting", ["root"]), "expected one of player_x"),
    "acting is text": (put(f"{SEEN}.acting", "player_o"), "expected a list"),
    "no observation": (put(f"{SEEN}.observations", {}), "observations.player_o is missing"),
    "observation of others": (put(f"{SEEN}.observations", {"root": []}), "names 'root'"),
    "no messages": (put(VIEW, []), "at least one message"),
    "many messages": (put(VIEW, [{"role": "user", "content": ""}] * 5000), "at most 4096"),
    "speaker unknown": (put(f"{VIEW}.0.role", "tool"), "expected one of system"),
    "content is a number": (put(f"{VIEW}.0.content", 4), "expected a string"),
    "content is too long": (put(f"{VIEW}.0.content", "x" * (2**22 + 1)), "at most 4194304"),
    "image is no PNG": (put(f"{VIEW}.0.parts", [{"image": "R0lGODlh"}]), "a PNG file"),
    "image is no base64": (put(f"{VIEW}.0.parts", [{"image": "%%%"}]), "a PNG file"),
    "image is a URL": (put(f"{VIEW}.0.parts", [{"image": "http://x/y.png"}]), "a PNG file"),
    "table without columns": (put(f"{VIEW}.0.parts", [{"rows": [[1]]}]), "with columns"),
    "uneven table": (
        put(f"{VIEW}.0.parts", [{"columns": ["a", "b"], "rows": [[1]]}]),
        "2 cells in each row",
    ),
    "nested cell": (
        put(f"{VIEW}.0.parts", [{"columns": ["a"], "rows": [[[1]]]}]),
        "expected a string",
    ),
    "reward is text": (put(f"{SEEN}.rewards.agent", {"player_x": "1"}), "expected a number"),
    "reward is true": (put(f"{SEEN}.rewards.agent", {"player_x": True}), "expected a number"),
    "reward is huge": (put(f"{SEEN}.rewards.agent", {"player_x": 1e10}), "expected a number"),
    "reward of a stranger": (put(f"{SEEN}.rewards.agent", {"root": 1}), "names 'root'"),
    "failure without reason": (
        put(f"{SEEN}.rewards.team", {"owner": "judge"}),
        "failed is missing",
    ),
    "failure of a stranger": (
        put(f"{SEEN}.rewards.team", {"failed": "x", "owner": "root"}),
        "expected one of environment",
    ),
    "metric is text": (put(f"{SEEN}.metrics", {"a": "b"}), "expected a number"),
    "many metrics": (put(f"{SEEN}.metrics", {str(n): n for n in range(5000)}), "at most 1024"),
    "submission of a stranger": (put(f"{SEEN}.submissions", {"root": {}}), "names 'root'"),
    "submission is empty": (put(f"{SEEN}.submissions", {"player_x": {}}), "question is missing"),
    "state is text": (put(f"{SEEN}.state", "1"), "expected a whole number"),
    "state is negative": (put(f"{SEEN}.state", -1), "expected a whole number"),
    "silence is a list": (put(f"{SEEN}.silence", []), "expected an object"),
    "success is text": (put(f"{SEEN}.success", {"player_x": "yes"}), "true or false"),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_malformed_description_is_a_clear_error(name: str) -> None:
    change, said = DESCRIBED[name]
    with wire_server(hostile("state", change)) as url, pytest.raises(PettingError) as caught:
        make_env(f"openenv:{url}")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("name", STEPPED)
def test_a_malformed_answer_is_a_clear_error(name: str) -> None:
    change, said = STEPPED[name]
    with wire_server(hostile("step", change)) as url:
        remote = make_env(f"openenv:{url}", num_tries=1)
        state = remote.reset(remote.tasks("train")[0], 0)
        with pytest.raises(PettingError) as caught:
            remote.step(state, {"player_x": "<answer>1</answer>"})
        assert said in str(caught.value)
        assert len(str(caught.value)) < 1500
        assert str(caught.value).isprintable()
        assert remote.acting(remote.reset(remote.tasks("train")[0], 0)) == ("player_x",)
        remote.close()


def test_a_silent_server_meets_a_deadline() -> None:
    with wire_server(hostile("step", lambda _: None)) as url:
        remote = make_env(f"openenv:{url}", seconds=0.5, num_tries=1)
        state = remote.reset(remote.tasks("train")[0], 0)
        start = time.monotonic()
        with pytest.raises(
            NoAnswerError, match=r"did not answer a step within 0.5 s \(env.seconds"
        ):
            remote.step(state, {"player_x": "<answer>1</answer>"})
        assert time.monotonic() - start < 8
        remote.close()


def test_a_late_answer_is_never_taken_for_the_next_one() -> None:
    """The connection is closed at the deadline, and the step is replayed on another one."""
    slow = iter([True])

    def answer_late(answer: Any) -> Any:
        if next(slow, False):
            time.sleep(1.0)
        return answer

    with wire_server(hostile("step", answer_late)) as url:
        remote, local = make_env(f"openenv:{url}", seconds=0.4), make_env("tic_tac_toe-v1")
        state = remote.reset(remote.tasks("train")[0], 0)
        result = remote.step(state, {"player_x": "<answer>1</answer>"})
        start = local.reset(local.tasks("train")[0], 0)
        expected = local.step(start, {"player_x": "<answer>1</answer>"})
        assert remote.observe(result.state, "player_o") == tuple(
            local.observe(expected.state, "player_o")
        )
        remote.close()


def test_a_server_that_hangs_up_is_tried_again() -> None:
    drops = iter([True, True])

    def drop(answer: Any) -> Any:
        if next(drops, False):
            raise OSError
        return answer

    with wire_server(hostile("reset", drop)) as url:
        remote = make_env(f"openenv:{url}")
        assert remote.acting(remote.reset(remote.tasks("train")[0], 0)) == ("player_x",)
        remote.close()


def test_verdicts_come_from_the_server_only() -> None:
    with wire_server(faithful(make_env("story-v1"))) as url:
        remote = make_env(f"openenv:{url}")
        assert remote.judged
        assert isinstance(remote.rule(Submission("q", "a")), Failed)
        remote.close()


@pytest.mark.parametrize(
    ("body", "status", "headers", "said"),
    [
        (b"hello", 200, {}, "no OpenEnv server answers"),
        (b"", 302, {"Location": "http://127.0.0.1:1/"}, "no OpenEnv server answers"),
        (b"x" * 10**7, 200, {}, "no OpenEnv server answers"),
        (b"", 500, {}, "no OpenEnv server answers"),
    ],
)
def test_a_server_of_something_else_is_refused(
    body: bytes, status: int, headers: dict[str, str], said: str
) -> None:
    with http_server(body, status, headers) as url, pytest.raises(NoAnswerError, match=said):
        make_env(f"openenv:{url}", num_tries=1)
