"""An invented world, an index of it, and answers that are compared with the truth."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from plays import play

from pettingllms.envs import make_env
from pettingllms.envs.tasks.search import index
from pettingllms.envs.tasks.search.grading import f1, is_exact, normal
from pettingllms.envs.tasks.search.questions import make_question
from pettingllms.envs.tasks.search.world import make_world
from pettingllms.envs.toolkit.tool_calls import ToolCall
from pettingllms.envs.toolkit.tool_texts import as_call
from pettingllms.errors import ConfigError, DataError

pytest.importorskip("bm25s", reason="needs bm25s: pip install 'pettingllms[search]'")


@pytest.mark.parametrize(
    ("answer", "exact", "overlap"),
    [
        ("Alan River", True, 1.0),
        ("the alan river.", True, 1.0),
        ("Alan", False, 2 / 3),
        ("Alan River or Bela River", False, 4 / 7),
        ("Bela", False, 0.0),
        ("The", False, 0.0),
    ],
)
def test_answers_are_compared_by_words(answer: str, exact: bool, overlap: float) -> None:
    truths = ("Alan River", "Old Alan Stream")
    assert is_exact(answer, truths) is exact
    assert f1(answer, truths) == pytest.approx(overlap)


def test_the_worlds_of_the_splits_share_no_article() -> None:
    env = make_env("search-v1")
    worlds = {s: env.reset(env.tasks(s)[0], 0).question.world for s in ("train", "test")}
    titles = {s: {a.title for a in make_world(world).articles} for s, world in worlds.items()}
    assert len(titles["train"]) == len(make_world(worlds["train"]).articles) >= 200
    both = titles["train"] & titles["test"]
    texts = {s: {a.text for a in make_world(world).articles} for s, world in worlds.items()}
    assert not texts["train"] & texts["test"]
    assert len(both) < 20
    asked = {
        s: {env.reset(task, 0).question.text for task in env.tasks(s)[:200]}
        for s in ("train", "test")
    }
    assert not asked["train"] & asked["test"]


def test_every_hop_is_told_by_its_article_and_the_last_has_the_answer() -> None:
    world = make_world(3)
    texts = {article.title: article.text for article in world.articles}
    for seed in range(60):
        question = make_question(3, seed, 3)
        things = [thing for thing, _ in question.hops]
        assert 2 <= len(things) == len(question.gold) <= 3
        assert things[0] in question.text
        for thing, after in zip(things, [*things[1:], question.answers[0]], strict=True):
            assert after in texts[thing]


def test_an_article_is_found_by_its_name() -> None:
    found = 0
    for article in make_world(3).articles[::7]:
        titles = [one.title for one in index.search_world(3, f"What is {article.title}?", 2)]
        found += article.title in titles
    assert found == len(make_world(3).articles[::7])


def test_a_query_without_a_known_word_finds_nothing() -> None:
    assert index.search_world(3, "zzzz \x00 qqqq", 2) == ()
    assert index.search_world(3, "", 2) == ()


@pytest.mark.parametrize("solo", [False, True])
def test_the_librarian_succeeds_and_the_hasty_one_fails(solo: bool) -> None:
    env = make_env("search-v1", solo=solo)
    for task in range(10):
        state, earned = play(env, "librarian", task)
        assert env.success(state, env.roles[-1])
        assert earned[-1][1].team.value == 1.0
        looked = sum(p.process[role].value for role, p in earned[:-1] if role != "decomposer")
        assert looked == pytest.approx(env.config.look_reward)
        state, earned = play(env, "hasty", task)
        assert not env.success(state, env.roles[-1])


def test_the_searcher_sees_the_parts_and_the_decomposer_no_article() -> None:
    env = make_env("search-v1")
    state = env.reset(env.tasks("train")[0], 0)
    state = env.step(state, {"decomposer": "<answer>Who is it?\nWhere is that?</answer>"}).state
    assert "- Who is it?\n- Where is that?" in env.observe(state, "searcher")[-1].content
    thing = state.question.hops[0][0]
    call = as_call(ToolCall("search", (("query", thing),)))
    state = env.step(state, {"searcher": call}).state
    assert f"{thing} is a " in env.observe(state, "searcher")[-1].content
    assert f"{thing} is a " not in env.observe(state, "decomposer")[-1].content


def test_searches_run_out() -> None:
    env = make_env("search-v1", solo=True, max_calls=1, max_tries=1)
    state = env.reset(env.tasks("train")[0], 0)
    call = as_call(ToolCall("search", (("query", "x"),)))
    state = env.step(state, {"solver": call}).state
    result = env.step(state, {"solver": call})
    assert result.metrics["illegal"] == 1
    assert result.state.over
    assert result.rewards.team.value == 0.0


REPLIES = {
    "/good": {"results": [{"title": "Ada", "text": "Ada <|im_start|> is here."}] * 9},
    "/list": [],
    "/none": {"result": []},
    "/number": {"results": 7},
    "/texts": {"results": ["Ada"]},
    "/numbers": {"results": [{"title": 1, "text": 2}]},
}


class Service(BaseHTTPRequestHandler):
    asked: list[Any] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(json.loads(body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(REPLIES[self.path]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_asked_where_one_is_configured(service: str) -> None:
    env = make_env("search-v1", solo=True, service=f"{service}/good", top_k=2)
    state = env.reset(env.tasks("train")[0], 0)
    call = as_call(ToolCall("search", (("query", "ada"),)))
    state = env.step(state, {"solver": call}).state
    assert Service.asked[-1] == {"query": "ada", "top_k": 2}
    assert state.looks[0].result == "Ada: Ada ? is here.\nAda: Ada ? is here."


@pytest.mark.parametrize("path", ["/list", "/none", "/number", "/texts", "/numbers"])
def test_a_service_that_answers_otherwise_is_named(service: str, path: str) -> None:
    with pytest.raises(DataError, match=f"{path} gave .* expected"):
        index.search_service(service + path, "ada", 2)


def test_nothing_comes_from_a_network_unless_it_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(index.urllib.request, "urlopen", refuse)
    play(make_env("search-v1"), "librarian", 0)
    with pytest.raises(ConfigError, match="give an http address"):
        index.search_service("file:///etc/passwd", "ada", 2)


def test_a_machine_without_bm25s_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'pettingllms\[search\]'"):
        make_env("search-v1").tasks("train")


def test_a_file_of_questions_is_played(tmp_path: Any) -> None:
    rows = [{"question": f"Who is number {at}?", "golden_answers": ["Ada"]} for at in range(30)]
    path = tmp_path / "qa.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    env = make_env("search-v1", data=str(path))
    assert len(env.tasks("train")) + len(env.tasks("test")) == 30
    state, _ = play(env, "librarian", 0)
    assert env.success(state, "searcher")


def test_no_question_names_its_answer() -> None:
    for seed in range(300):
        question = make_question(seed % 3, seed, 4)
        assert not any(name in question.text for name in question.answers), question.text


def test_no_word_is_in_the_names_of_many() -> None:
    """A word that many names share would earn half of the reward without any search."""
    for seed in range(3):
        names = [name for some in make_world(seed).names.values() for name in some]
        words = Counter(word for name in names for word in normal(name).split())
        assert words.most_common(1)[0][1] == 1
