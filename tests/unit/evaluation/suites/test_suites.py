"""Suites played whole: by scripts, by servers on loopback, and by a real small model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("httpx")
pytest.importorskip("ray")

from servers import first_free_cell, serving

from pettingllms.cli.main import app
from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites import evaluate as module

KEY = "PETTINGLLMS_TEST_KEY"
PUZZLE = """
title = "Mine"
[[benches]]
env = "plan_path-v1"
options = { width = 4, height = 4, min_distance = 2 }
num_tasks = 4
num_samples = 2
against_solo = true
"""
TWO = """
title = "Two"
[[benches]]
name = "maze"
env = "plan_path-v1"
num_tasks = 2
num_samples = 1
[[benches]]
name = "grid"
env = "sudoku-v1"
num_tasks = 2
num_samples = 1
"""
CELLS = """
title = "Cells"
[[benches]]
env = "tic_tac_toe-v1"
roles = ["player_x"]
num_tasks = 4
num_samples = 2
"""
BREAKS = '''
from pettingllms.envs.puzzles.plan_path import PlanPath


class Breaks(PlanPath):
    """Breaks in one task of two, once the trial play is over."""

    id = "breaks-v1"
    num_steps = 0

    def step(self, state, replies):
        Breaks.num_steps += 1
        if Breaks.num_steps > 6 and self.show(state.puzzle).count("#") % 2:
            raise RuntimeError("it broke")
        return super().step(state, replies)


class Lacks(PlanPath):
    """Needs a program that nobody has."""

    id = "lacks-v1"

    def tasks(self, split):
        raise RuntimeError("frobnicator is not installed; apt install frobnicator")


class LacksLater(PlanPath):
    """As above, and says so in the middle of a play."""

    id = "lacks_later-v1"

    def step(self, state, replies):
        raise RuntimeError("no sandbox on this machine")
'''


def suite(folder: Path, text: str) -> str:
    path = folder / "suite.toml"
    path.write_text(text)
    return str(path)


def run(folder: Path, text: str, *args: str, code: int = 0) -> tuple[str, dict[str, Any]]:
    """What was printed, and the results."""
    words = ["eval", *args, "--suite", suite(folder, text), "--out", str(folder / "out")]
    result = CliRunner().invoke(app, words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output, json.loads((folder / "out" / "results.json").read_text())


def test_a_player_that_is_perfect_is_measured_so(tmp_path: Path) -> None:
    said, found = run(tmp_path, PUZZLE, "--player", "bfs")
    (bench,) = found["benches"]
    assert set(bench["forms"]) == {"team", "solo"}
    for form in bench["forms"].values():
        assert form["avg"]["value"] == 1.0
        assert form["avg"]["low"] < 1.0
        assert form["majority_at"]["2"]["value"] == 1.0
        assert (form["num_tasks"], form["failed"]) == (4, {})
        assert form["unit"] == "bytes"
    assert bench["equal"]["pairs"]["pass"]["difference"]["value"] == 0
    assert found["seed"] == 0
    assert found["machine"]["cores"] > 0
    assert "pettingllms" in found["versions"]
    assert found["command"].startswith("pettingllms eval --suite")
    assert "plan path" in said
    assert "100%" in said
    assert "| plan path | team | 4 | 2 | 100.0%" in (tmp_path / "out" / "table.md").read_text()
    assert len((tmp_path / "out/episodes/plan-path-team.jsonl").read_text().splitlines()) == 8


def test_a_player_that_guesses_is_measured_so_and_the_seed_decides(tmp_path: Path) -> None:
    _, first = run(tmp_path, PUZZLE, "--player", "random")
    numbers = [first["benches"][0]["forms"][form]["avg"]["value"] for form in ("team", "solo")]
    assert max(numbers) < 0.8
    again = tmp_path / "again"
    again.mkdir()
    _, second = run(again, PUZZLE, "--player", "random")
    _, other = run(again, PUZZLE, "--player", "random", "--seed", "1")
    costs = [found["benches"][0]["forms"]["team"]["tokens"] for found in (first, second, other)]
    assert costs[0] == costs[1] != costs[2]


def test_the_cheaper_form_has_played_on_to_equal_tokens(tmp_path: Path) -> None:
    _, found = run(tmp_path, PUZZLE, "--player", "random", "--samples", "4")
    forms = found["benches"][0]["forms"]
    used = {name: form["tokens"] * form["num_samples"] for name, form in forms.items()}
    cheap = min(forms, key=lambda name: forms[name]["tokens"])
    assert forms[cheap]["num_samples"] > 4 or forms["team"]["tokens"] == forms["solo"]["tokens"]
    assert used["team"] == pytest.approx(used["solo"], rel=0.3)
    scores = found["benches"][0]["equal"]["num_samples"]
    assert min(scores.values()) == 1.0
    lines = (tmp_path / f"out/episodes/plan-path-{cheap}.jsonl").read_text().splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    assert len(set(ids)) == len(ids) == 4 * forms[cheap]["num_samples"], "no episode is repeated"


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    real = module.run_bench

    async def stopped(forms: Any, *rest: Any) -> Any:
        name = next(iter(forms.values())).bench.title
        played.append(name)
        if name == "grid" and played.count("grid") == 1:
            raise KeyboardInterrupt
        return await real(forms, *rest)

    monkeypatch.setattr(module, "run_bench", stopped)
    said, found = run(tmp_path, TWO, "--player", "random", code=130)
    assert "to continue" in " ".join(said.split())
    assert [bench["name"] for bench in found["benches"]] == ["maze"]
    said, found = run(tmp_path, TWO, "--player", "random")
    assert played == ["maze", "grid", "grid"]
    assert "already done: maze" in said
    assert [bench["name"] for bench in found["benches"]] == ["maze", "grid"]
    run(tmp_path, TWO, "--player", "random")
    assert len(played) == 3
    run(tmp_path, TWO, "--player", "noisy")
    assert played[3:] == ["maze", "grid"], "another subject is another question"


def test_failures_are_counted_apart_and_said(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    text = TWO.replace('"plan_path-v1"\nnum_tasks = 2', '"breaks.py:Breaks"\nnum_tasks = 16')
    said, found = run(tmp_path, text.partition('[[benches]]\nname = "grid"')[0], "--player", "bfs")
    form = found["benches"][0]["forms"]["team"]
    failed = form["failed"]["environment"]
    assert 0 < failed < 16
    assert form["avg"]["value"] == (16 - failed) / 16
    assert form["avg_completed"] == 1.0
    assert "≥" in said
    assert f"{failed} of 16 episodes failed" in " ".join(said.split())
    assert "it broke" in said


def test_what_is_missing_is_refused_with_every_problem_or_passed_over(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    text = TWO + '[[benches]]\nname = "lacks"\nenv = "breaks.py:Lacks"\n'
    text += '[[benches]]\nname = "later"\nenv = "breaks.py:LacksLater"\n'
    also = text + '[[benches]]\nname = "typo"\nenv = "sudoku-v2"\n'
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, also, "--player", "random")
    assert "lacks: RuntimeError: frobnicator is not" in str(caught.value)
    assert "later: step raised RuntimeError: no sandbox" in str(caught.value)
    assert "no environment is called 'sudoku-v2'" in str(caught.value)
    assert "--skip-missing" in str(caught.value)
    assert not (tmp_path / "out").exists(), "nothing was played"
    with pytest.raises(ConfigError, match="sudoku-v2"):
        run(tmp_path, also, "--player", "random", "--skip-missing")
    said, found = run(tmp_path, text, "--player", "random", "--skip-missing")
    assert [bench["name"] for bench in found["benches"]] == ["maze", "grid"]
    assert "frobnicator" in found["skipped"]["lacks"][0]
    assert "lacks: skipped" in said


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("options = { widht = 3 }", "did you mean 'width'"),
        ('roles = ["player"]', "did you mean 'planner'"),
        ('role = "nobody"', "'nobody' is not played by the evaluated player"),
        ('roles = ["planner"]\nothers = "bsf"', "did you mean 'bfs'"),
        ("first_task = 5000", "past the end"),
    ],
)
def test_a_bench_that_is_wrong_is_refused(tmp_path: Path, change: str, problem: str) -> None:
    text = f'title = "T"\n[[benches]]\nenv = "plan_path-v1"\n{change}\n'
    with pytest.raises(ConfigError, match=re.escape(problem)):
        run(tmp_path, text, "--player", "random", "--skip-missing")


def test_a_player_that_a_bench_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="grid: 'sudoku-v1' has no player called 'bfs'"):
        run(tmp_path, TWO, "--player", "bfs")


def test_a_model_that_only_reads_is_refused_for_a_bench_of_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an engine is started, and whether it is given by its folder or, in a run, by name."""
    pytest.importorskip("PIL")
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path))
    monkeypatch.setattr(module, "open_evaluated", lambda *_: pytest.fail("an engine was started"))
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader" / "config.json").write_text('{"model_type": "qwen3"}')
    config = tmp_path / "team.toml"
    config.write_text(
        '[env]\nid = "tic_tac_toe-v1"\n[algo]\ntype = "grpo"\n'
        '[policies.one]\nkind = "frozen"\nmodel = "reader"\n'
    )
    images = TWO + 'options = { observation = "image" }\nagainst_solo = true\n'
    for evaluated in (str(tmp_path / "reader"), str(config)):
        with pytest.raises(ConfigError) as caught:
            run(tmp_path, images, evaluated)
        said = str(caught.value)
        assert said.count("grid: 'sudoku-v1' shows images, and '") == 1, "for all roles at once"
        assert "reader' is text-only; use a VLM" in said
        assert 'or set options.observation = "text", or' in said
        assert "maze" not in said
    others_look = 'title = "T"\n[[benches]]\nenv = "visual_relay-v1"\nroles = ["mover"]\n'
    with pytest.raises(pytest.fail.Exception, match="an engine was started"):
        run(tmp_path, others_look, str(config))


def test_a_server_is_asked_and_its_own_count_of_tokens_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sk-secret")

    def answer(body: dict[str, Any]) -> tuple[int, object]:
        choice = {"message": {"content": first_free_cell(body)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 50, "completion_tokens": 7}
        return 200, {"choices": [choice], "usage": usage}

    with serving(answer) as server:
        _, found = run(tmp_path, CELLS, server.url, "--key", KEY, "--temperature", "0.5")
    form = found["benches"][0]["forms"]["team"]
    assert form["unit"] == "tokens"
    assert form["tokens"] * 8 == 7 * len(server.asked)
    assert form["prompt_tokens"] * 8 == 50 * len(server.asked)
    assert form["seconds"] > 0
    assert {body["temperature"] for body in server.asked} == {0.5}
    assert set(server.auth) == {"Bearer sk-secret"}
    assert found["player"] == {"kind": "server", "name": "tiny/model", "url": server.url}
    written = [
        path.read_text() for path in (tmp_path / "out").rglob("*.*") if path.suffix != ".png"
    ]
    assert not any("sk-secret" in text for text in written)


def test_a_server_that_counts_nothing_is_counted_in_bytes(tmp_path: Path) -> None:
    with serving(first_free_cell) as server:
        said, found = run(tmp_path, CELLS, server.url)
    assert found["benches"][0]["forms"]["team"]["unit"] == "bytes"
    assert "Counts are bytes" in said


def test_replies_that_ran_out_of_tokens_are_counted_and_said(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, object]:
        said = {"content": first_free_cell(body)}
        return 200, {"choices": [{"message": said, "finish_reason": "length"}]}

    with serving(answer) as server:
        said, found = run(tmp_path, CELLS, server.url)
    form = found["benches"][0]["forms"]["team"]
    assert (form["num_truncated_replies"], form["num_truncated"], form["failed"]) == (8, 0, {})
    assert "in 8 of 8 episodes a reply was truncated at max_reply_tokens" in " ".join(said.split())
    with serving(first_free_cell) as server:
        said, found = run(tmp_path, CELLS, server.url)
    assert found["benches"][0]["forms"]["team"]["num_truncated_replies"] == 0
    assert "max_reply_tokens" not in said


def test_a_server_that_fails_gives_no_number_and_is_asked_again_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _: (400, {"error": "no"})) as server:
        said, found = run(tmp_path, CELLS, server.url, code=1)
        num_asked = len(server.asked)
        form = found["benches"][0]["forms"]["team"]
        assert form["avg"] is None
        assert form["failed"] == {"sampler": 8}
        assert "no score" in said
        assert "0%" not in said
        monkeypatch.setattr("pettingllms.cli.eval_suite.find_spec", lambda _: True)
        said, _ = run(tmp_path, CELLS, server.url, code=1)
        assert len(server.asked) == 2 * num_asked
        assert "no picture" not in said, "matplotlib is there, a number is not"
        monkeypatch.setattr("pettingllms.cli.eval_suite.find_spec", lambda _: None)
        assert "pip install 'pettingllms[figures]'" in run(tmp_path, CELLS, server.url, code=1)[0]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "give either RUN"),
        (("RUN", "--player", "random"), "give either RUN"),
        (("--player", "random", "--key", "K"), "--key is for servers"),
        (("--player", "random", "--policy", "p"), "for runs"),
        (("http://127.0.0.1:1/v1", "seed=3"), "has no effect without a config"),
    ],
)
def test_words_that_do_not_fit_together_are_refused(
    tmp_path: Path, args: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        run(tmp_path, TWO, *args)


def test_without_a_suite_a_run_is_asked_for() -> None:
    result = CliRunner().invoke(app, ["eval"])
    assert result.exit_code == 2
    assert "--suite" in result.output


def test_a_model_and_a_run_sit_down_at_environments_of_all_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from local import in_this_process

    from pettingllms.envs import make_env
    from pettingllms.models import make_tiny
    from pettingllms.models.tiny import texts_of

    make_tiny(tmp_path / "model", "qwen3", texts_of([make_env("sudoku-v1")], 4), 64, 1, 300, 0)
    config = tmp_path / "team.toml"
    config.write_text(
        '[env]\nid = "hanabi-v1"\n[algo]\ntype = "grpo"\n[policies.one]\nkind = "frozen"\n'
        f'model = "{tmp_path / "model"}"\n[policies.two]\nkind = "scripted"\n'
        '[roles]\nplayer_1 = "one"\nplayer_2 = "two"\n[inference]\nengine = "torch"\n'
    )
    text = TWO + "options = { terse = true }\nmax_reply_tokens = 4\nagainst_solo = true\n"
    with in_this_process() as engines:
        _, found = run(tmp_path, text, str(tmp_path / "model"), "inference.engine=torch")
        assert len(engines) == 1, "one engine for all benches"
        assert found["player"]["kind"] == "model"
        grid = found["benches"][1]["forms"]
        assert set(grid) == {"team", "solo"}
        assert grid["team"]["unit"] == "tokens"
        assert 0 < grid["team"]["tokens"] <= 4 * 6
        _, found = run(tmp_path, text, str(config))
        assert found["player"] == {"kind": "run", "name": "team"}
        assert found["benches"][1]["forms"]["solo"]["unit"] == "tokens"
