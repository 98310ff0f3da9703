"""Built-in suites load, and invalid suites are rejected with all problems."""

from pathlib import Path

import pytest

from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites.checks import check_benches
from pettingllms.evaluation.suites.evaluated import evaluated_script
from pettingllms.evaluation.suites.suite import Changes, builtin_suites, load_suite


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_these_ship() -> None:
    own = ["code", "games", "math", "puzzles", "tools"]
    published = ["aime", "anli", "apps", "at_grpo", "code_contests", "gsm8k", "hanabi", "hotpotqa"]
    published += ["humaneval", "livecodebench", "maporl", "math500", "mbpp", "olympiad", "spider"]
    assert builtin_suites() == sorted([*own, *published, "svamp"])


@pytest.mark.parametrize("name", builtin_suites())
def test_every_bench_that_ships_can_be_played(name: str) -> None:
    benches = load_suite(name).benches
    ready = check_benches(benches, evaluated_script("random"))
    assert ready.errors == []
    assert set(ready.forms) | set(ready.missing) == {bench.title for bench in benches}


def test_every_problem_of_a_file_is_named_published(tmp_path: Path) -> None:
    text = 'title = "T"\n[[benches]]\nenv = "sudoku-v1"\nnum_task = 3\nnum_samples = 0\n'
    with pytest.raises(ConfigError) as caught:
        load_suite(write(tmp_path / "s.toml", text))
    assert "did you mean 'num_tasks'?" in str(caught.value)
    assert "num_samples" in str(caught.value)


def test_two_benches_of_one_name_are_refused(tmp_path: Path) -> None:
    text = 'title = "T"\n' + '[[benches]]\nenv = "sudoku-v1"\n' * 2
    with pytest.raises(ConfigError, match="occurs 2 times"):
        load_suite(write(tmp_path / "s.toml", text))


def test_a_suite_that_is_not_there_has_a_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'puzzles'"):
        load_suite("puzzle")


def test_solo_is_compared_or_played_but_not_both(tmp_path: Path) -> None:
    text = 'title = "T"\n[[benches]]\nenv = "sudoku-v1"\noptions = { solo = true }\n'
    with pytest.raises(ConfigError, match="remove solo from options"):
        load_suite(write(tmp_path / "s.toml", f"{text}against_solo = true\n"))
    assert load_suite(write(tmp_path / "s.toml", text)).benches[0].forms == ("solo",)


def test_a_user_may_ask_for_other_numbers() -> None:
    bench = load_suite("puzzles").changed(Changes(num_tasks=3, num_samples=100)).benches[0]
    assert (bench.num_tasks, bench.num_samples, bench.max_samples) == (3, 100, 100)
    assert load_suite("puzzles").changed(Changes()) == load_suite("puzzles")


def test_a_file_beside_the_suite_is_found_from_anywhere(tmp_path: Path) -> None:
    text = 'title = "T"\n[[benches]]\nenv = "mine.py:Mine"\n'
    (bench,) = load_suite(write(tmp_path / "s.toml", text)).benches
    assert bench.env == f"{tmp_path / 'mine.py'}:Mine"
    assert bench.title == f"{tmp_path / 'mine.py'}:Mine".replace("_", " ")
