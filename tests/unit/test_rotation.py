"""CI's rotation of slow tests."""

import itertools
import time
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
TESTS = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_one(n): pass\n"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text())
    pytester.makepyfile(test_some=TESTS, test_other=TESTS, test_third=TESTS)
    return pytester


def order(project: pytest.Pytester, seed: str) -> list[str]:
    result = project.runpytest_inprocess("-v", "-p", "no:cacheprovider", "--rotate", seed)
    result.assert_outcomes(passed=18)
    return [line.split()[0] for line in result.outlines if "PASSED" in line]


def test_rotation_depends_on_the_seed_alone(project: pytest.Pytester) -> None:
    orders = [order(project, f"commit {n}") for n in range(8)]
    assert order(project, "commit 0") == orders[0]
    assert len({tuple(one) for one in orders}) > 1
    assert len({one[0] for one in orders}) > 1, "the same test would always be the first"
    assert {tuple(sorted(one)) for one in orders} == {tuple(sorted(orders[0]))}


def test_rotation_keeps_files_together(project: pytest.Pytester) -> None:
    files = [name.partition("::")[0] for name in order(project, "commit")]
    assert len(list(itertools.groupby(files))) == 3


def test_rotation_spreads_smoke_runs(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nmarkers =\n  smoke: minutes")
    project.makepyfile(test_some=TESTS.replace("def", "@pytest.mark.smoke\ndef"))
    files = [name.partition("::")[0] for name in order(project, "commit")]
    assert len(list(itertools.groupby(files))) > 3


def test_late_tests_are_skipped_and_listed(project: pytest.Pytester) -> None:
    listed = project.path / "skipped.txt"
    late = ("--start-before", str(time.time() - 1), "--skipped-to", str(listed))
    result = project.runpytest_inprocess("-p", "no:cacheprovider", *late)
    result.assert_outcomes(skipped=18)
    assert len(listed.read_text().splitlines()) == 18


def test_early_tests_are_run(project: pytest.Pytester) -> None:
    listed = project.path / "skipped.txt"
    early = ("--start-before", str(time.time() + 600), "--skipped-to", str(listed))
    result = project.runpytest_inprocess("-p", "no:cacheprovider", *early)
    result.assert_outcomes(passed=18)
    assert not listed.exists()
