"""A verifier's port and those who ask it: a real server on loopback, right and wrong keys, garbage,
requests that are too large or too many, and a model that breaks."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
pytest.importorskip("torch")

from servers import serving

from pettingllms.config import JudgeConfig
from pettingllms.errors import ConfigError
from pettingllms.judges import make_judges
from pettingllms.judges.base import JudgeContext, JudgeModel
from pettingllms.judges.verifier import VerifierClient, VerifierJudge
from pettingllms.runtime import http_client as keyed_client
from pettingllms.types import Failed, Reward, Scored, Submission, user
from pettingllms.verifier.serve import Limits, make_app

KEY = "canary-5f1d9c0e77ab"
ASKED = {"messages": [{"role": "user", "content": "1+1="}], "answer": "2"}


@dataclass
class Model:
    """Scores by the length of an answer, in batches that a test can look at."""

    batches: list[int] = field(default_factory=list)
    seconds: float = 0.0
    broken: int = 0

    def score(self, questions: Sequence[Any]) -> list[Reward]:
        self.batches.append(len(questions))
        time.sleep(self.seconds)
        if self.broken:
            self.broken -= 1
            raise RuntimeError("out of memory")
        return [
            Failed("longer than 9 tokens", "limit") if len(a) > 9 else Scored(len(a) / 10)
            for _, a in questions
        ]


@contextmanager
def served(model: Model, **limits: Any) -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = make_app(model.score, KEY, Limits(**limits))
        config = uvicorn.Config(app, access_log=False, log_level="critical", server_header=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFIER_KEY", KEY)


def ask(url: str, *answers: str, **options: Any) -> list[Reward]:
    async def run() -> list[Reward]:
        client = VerifierClient(url, "VERIFIER_KEY", **options)
        try:
            return list(await asyncio.gather(*(client.score([user("1+1=")], a) for a in answers)))
        finally:
            await client.close()

    return asyncio.run(run())


def post(url: str, body: Any, key: str | None = KEY) -> tuple[int, str]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    content = body if isinstance(body, bytes) else None
    json = None if isinstance(body, bytes) else body
    with httpx.Client(trust_env=False) as client:
        found = client.post(f"{url}/score", content=content, json=json, headers=headers)
    return found.status_code, found.text


def test_answers_that_wait_are_read_together_and_each_gets_its_own_score() -> None:
    model = Model(seconds=0.2)
    with served(model) as url:
        found = ask(url, *("x" * n for n in range(10)))
    assert found == [Scored(n / 10) for n in range(10)]
    assert len(model.batches) < 5
    assert sum(model.batches) == 10


def test_a_client_without_the_key_gets_no_score() -> None:
    model = Model()
    with served(model) as url:
        for key in (None, "wrong", KEY[:-1], KEY + "x", KEY.upper()):
            status, text = post(url, ASKED, key)
            assert status == 401
            assert KEY not in text
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"{url}/health").status_code == 401
            assert client.get(f"{url}/docs").status_code == 404
        assert post(url, ASKED)[0] == 200
    assert model.batches == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b"null",
        b'{"messages": [{"role": "user", "content": "1+1="}], "answer": "\\ud83d"}',
        {},
        {**ASKED, "answer": None},
        {**ASKED, "messages": []},
        {**ASKED, "messages": "1+1="},
        {**ASKED, "messages": [{"role": "root", "content": "x"}]},
        {**ASKED, "messages": [{"role": "user", "content": 3}]},
    ],
    ids=range(12),
)
def test_garbage_is_refused_and_never_repeated(body: Any) -> None:
    model = Model()
    with served(model) as url:
        status, text = post(url, body)
    assert status == 400
    assert "root" not in text
    assert model.batches == []


def test_requests_have_a_size_however_they_are_sent() -> None:
    model = Model()
    with served(model, body_bytes=200) as url:
        assert post(url, {**ASKED, "answer": "x" * 300})[0] == 413

        def parts() -> Iterator[bytes]:
            for _ in range(100):
                yield b" " * 10

        headers = {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(trust_env=False) as client:
            found = client.post(f"{url}/score", content=parts(), headers=headers)
        assert found.status_code == 413
        assert post(url, ASKED)[0] == 200


def test_a_request_that_never_ends_is_ended() -> None:
    with served(Model(), body_seconds=0.2) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            head = f"POST /score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            slow.settimeout(5)
            assert b" 408 " in slow.recv(200)


def test_a_model_that_breaks_is_asked_again_and_no_client_waits_forever() -> None:
    model = Model(broken=1)
    with served(model) as url:
        assert ask(url, "x", "xx") == [Scored(0.1), Scored(0.2)]
        model.broken = 99
        (found,) = ask(url, "x", num_tries=2)
    assert isinstance(found, Failed)
    assert found.owner == "judge"
    assert "out of memory" not in found.reason


def test_more_than_can_wait_are_sent_away_and_come_again() -> None:
    model = Model(seconds=0.1)
    with served(model, waiting=2, batch=1) as url:
        found = ask(url, *("x" * n for n in range(5)))
    assert found == [Scored(n / 10) for n in range(5)]


def test_what_has_no_score_is_a_failure_with_its_reason() -> None:
    with served(Model()) as url:
        (found,) = ask(url, "x" * 10)
    assert isinstance(found, Failed)
    assert "longer than 9 tokens" in found.reason


def test_a_deadline_holds_for_all_tries_together() -> None:
    with served(Model(seconds=1.0)) as url:
        start = time.perf_counter()
        (found,) = ask(url, "x", seconds=0.2)
        assert time.perf_counter() - start < 0.9
    assert isinstance(found, Failed)
    assert "within 0.2 s" in found.reason


@pytest.mark.parametrize(
    "said", ["nonsense", "[]", '{"score": true}', '{"score": 1.5}', '{"score": NaN}', "[" * 99_999]
)
def test_what_is_no_probability_is_a_failure_and_never_a_number(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_client, "FIRST_WAIT", 0.0)
    with serving(lambda _: (200, said)) as server:
        (found,) = ask(server.url, "x")
    assert isinstance(found, Failed)


def test_an_absent_server_and_a_wrong_key_are_failures() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        (found,) = ask(url, "x", num_tries=2)
    assert isinstance(found, Failed)
    with serving(lambda _: (401, f"no: {KEY}")) as server:
        (found,) = ask(server.url, "x")
    assert isinstance(found, Failed)
    assert KEY not in found.reason
    assert "[key]" in found.reason
    assert len(server.asked) == 1, "a wrong key does not become right"


def test_the_key_is_needed_and_goes_nowhere_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unencrypted"):
        VerifierClient("http://example.org", "VERIFIER_KEY")
    monkeypatch.delenv("VERIFIER_KEY")
    with pytest.raises(ConfigError, match="is not set"):
        VerifierClient("http://127.0.0.1:1", "VERIFIER_KEY")


def test_neither_key_nor_prompt_nor_answer_is_in_any_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with served(Model(broken=1)) as url:
        ask(url, "secretion")
        post(url, {**ASKED, "messages": [{"role": "user", "content": "plaintext"}]})
        post(url, b"{", "wrong")
    written = caplog.text + "".join(capfd.readouterr())
    assert not [word for word in (KEY, "secretion", "plaintext") if word in written]


# As a judge


def no_one(policy: str) -> JudgeModel:
    raise AssertionError(policy)


def judged(url: str, *answers: str) -> list[Reward]:
    """What a judge says of each answer, and then of the first two against each other."""

    async def run() -> list[Reward]:
        section = VerifierJudge.Config(kind="verifier", url=url, seconds=5)
        judge = VerifierJudge("v", section, JudgeContext(lambda *_: Scored(0.0), no_one))
        submissions = [Submission("1+1=", answer) for answer in answers]
        scores = [await judge.score(one) for one in submissions]
        found = [*scores, await judge.compare(*submissions[:2])]
        await judge.close()
        return found

    return asyncio.run(run())


def test_a_verifier_judges_by_its_scores() -> None:
    with served(Model()) as url:
        assert judged(url, "ab", "abcd") == [Scored(0.2), Scored(0.4), Scored(0.0)]
        assert judged(url, "ab", "cd")[-1] == Scored(0.5)


@pytest.mark.slow  # retries wait, 40 s in all
def test_a_verifier_that_gives_no_score_fails_the_comparison_too() -> None:
    with served(Model(broken=1000)) as url:
        assert all(isinstance(verdict, Failed) for verdict in judged(url, "ab", "abcd"))


def test_an_answer_that_makes_the_verifier_fail_scores_0() -> None:
    """The verifier fails on it twice, and scores a plain answer to the same question."""
    with served(Model()) as url:
        found = judged(url, "ab", "longer than nine")
    assert found == [Scored(0.2), Scored(0.0), Scored(1.0)]


def test_an_answer_that_is_too_large_to_send_or_no_text_gains_nothing() -> None:
    with served(Model(), body_bytes=500) as url:
        assert judged(url, "x" * 10_000, "ab")[0] == Scored(0.0)
        assert judged(url, "\ud83d", "ab")[0] == Scored(0.1)  # a lone surrogate, sent as "?"


def test_a_verifier_that_failed_once_is_asked_again() -> None:
    with served(Model(broken=6)) as url:  # one request with all its tries
        assert judged(url, "ab", "abcd")[0] == Scored(0.2)


START_IT = "start it with `pettingllms verifier serve`, or correct the address"


def problem(url: str, key: str = "VERIFIER_KEY") -> str:
    return VerifierJudge.Config(kind="verifier", url=url, key=key).start_problem()


def test_a_server_that_is_ready_has_no_problem() -> None:
    with served(Model()) as url:
        assert problem(url) == ""


def test_a_dead_address_a_missing_key_and_a_wrong_one_each_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert problem(dead).startswith(f"url: no verifier answers at {dead} (")
    assert problem(dead).endswith(START_IT)
    assert problem("http://host:1").startswith("key: $VERIFIER_KEY would be sent unencrypted")
    with served(Model()) as url:
        found = problem(url, "NO_SUCH_KEY")
        assert found.startswith("key: the environment variable NO_SUCH_KEY is not set; export ")
        monkeypatch.setenv("VERIFIER_KEY", "wrong")
        found = problem(url)
        assert found.startswith(f"key: the verifier at {url} rejects the key in VERIFIER_KEY; ")
        assert "wrong" not in found.replace("wrong one", "")


def test_a_server_that_is_no_verifier_is_named() -> None:
    with served(Model()) as url:
        found = problem(f"{url}/elsewhere")
    assert "is no verifier (HTTP 404 from /health)" in found


def test_a_run_names_a_verifier_as_its_judge() -> None:
    judges = {"v": {"kind": "verifier", "url": "http://127.0.0.1:1"}}
    made = make_judges(
        JudgeConfig(by="v", judges=judges), JudgeContext(lambda *_: Scored(0.0), no_one)
    )
    assert isinstance(made["v"], VerifierJudge)
