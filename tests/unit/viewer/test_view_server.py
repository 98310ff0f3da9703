"""The view server: loopback only, protected by a key, read-only."""

import http.client
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from viewed import rolled, write_run

from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.page import SCRIPTS, STATIC, STYLES, page, standalone_page
from pettingllms.viewer.server import ViewServer
from pettingllms.viewer.sources import open_run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("served")
    write_run(folder / "run", rolled(folder / "r", 6), 2)
    index = open_index(open_run(folder / "run"))
    index.update()
    made = ViewServer([index])
    with made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: ViewServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.headers


def test_it_listens_on_loopback_alone(server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_page_and_data_come_with_the_key_and_a_strict_policy(server: ViewServer) -> None:
    for what in ("", "app.js", "data/overview", "data/episodes?count=3", "data/episode?n=1"):
        status, body, headers = ask(server, f"/{server.key}/{what}")
        assert status == 200, body
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
    assert json.loads(ask(server, f"/{server.key}/data/episodes")[1])["total"] == 6


@pytest.mark.parametrize("path", ["/", "/data/overview", "/wrong/data/overview", "/{key}x/"])
def test_without_the_key_there_is_nothing(server: ViewServer, path: str) -> None:
    status, body, _ = ask(server, path.format(key=server.key))
    assert status == 403
    assert "run" not in body


def test_a_page_of_another_site_gets_nothing(server: ViewServer) -> None:
    """DNS rebinding: the browser sends the attacker's name as Host."""
    assert ask(server, f"/{server.key}/", host="evil.example:80")[0] == 403


def test_files_outside_the_page_are_not_served(server: ViewServer) -> None:
    for path in ("../server.py", "vendor/../../server.py", "%2e%2e/server.py", "vendor/README.md"):
        assert ask(server, f"/{server.key}/{path}")[0] == 404


def test_it_only_reads(server: ViewServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, f"/{server.key}/data/overview", method=method)[0] == 501


@pytest.mark.parametrize(
    "asked",
    [
        "episodes?sort=path",
        "episodes?outcome=x",
        "episodes?start=x",
        "episodes?start=99999999999999999999",
        "episodes?last_step=-99999999999999999999",
        "episodes?run=7",
        "episode?n=99",
    ],
)
def test_bad_query_gets_an_error_message(server: ViewServer, asked: str) -> None:
    status, body, _ = ask(server, f"/{server.key}/data/{asked}")
    assert status == 400
    assert json.loads(body)["error"]


@pytest.mark.parametrize("text", ["%00", "a%00b", "%22", "*", "NEAR(", "%ED%A0%80"])
def test_any_text_can_be_searched_for(server: ViewServer, text: str) -> None:
    status, body, _ = ask(server, f"/{server.key}/data/episodes?text={text}")
    assert status == 200, body


def test_what_is_damaged_is_an_answer_and_no_dropped_connection(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/{server.key}/data/metrics"
    for error in (OverflowError("a"), ValueError("a"), sqlite3.OperationalError("a")):
        monkeypatch.setattr(server.endpoints, "metrics", Mock(side_effect=error))
        status, body, _ = ask(server, path)
        assert status == 500
        assert json.loads(body)["error"] == f"{type(error).__name__}: a"
    monkeypatch.setattr(server.endpoints, "metrics", lambda _: {"a": float("nan")})
    assert ask(server, path)[0] == 500


def test_the_problem_of_one_run_is_shown_beside_the_other_run(tmp_path: Path) -> None:
    episodes = rolled(tmp_path / "r", 2)
    indices = []
    for name in ("bad", "good"):
        write_run(tmp_path / name, episodes, 1)
        indices.append(open_index(open_run(tmp_path / name)))
    file = tmp_path / "bad" / "episodes" / "step-000001-000.zip"
    whole = file.read_bytes()
    file.write_bytes(b"{}")
    num_looks = 0

    def look(stop: threading.Event) -> bool:
        nonlocal num_looks
        num_looks += 1
        raise sqlite3.OperationalError("strange") if num_looks == 1 else OSError("full")

    with ViewServer(indices) as made:
        until(lambda: indices[1].num_episodes() == 2 and made.problem)
        time.sleep(0.2)
        assert "bad" in made.problem
        indices[1].update = look  # type: ignore[assignment,method-assign]
        until(lambda: "strange" in made.problem)
        until(lambda: "full" in made.problem)
        assert made.problem.endswith("; full")
        file.write_bytes(whole)
        until(lambda: made.problem == "full")


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_page_names_its_own_files_alone() -> None:
    text = page() + standalone_page({})
    assert "http:" not in text.split("<script>")[0]
    assert "https:" not in text.split("<script>")[0]
    for name in (*SCRIPTS, *STYLES):
        content = (STATIC / name).read_text().lower()
        assert "</script" not in content
        assert "</style" not in content
        assert "<!--" not in content


def test_no_script_of_ours_makes_markup_of_text() -> None:
    functions = (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "dangerously",
    )
    for name in SCRIPTS:
        if not name.startswith("vendor/"):
            assert not [one for one in functions if one in (STATIC / name).read_text()]


def test_data_in_a_file_cannot_end_its_block() -> None:
    hostile = "</script><script>alert(1)</script><!-- & \u2028"
    text = standalone_page({"x": hostile})
    block = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(block) == {"x": hostile}
