"""How runs went: which lines there are, what bands mean, and that the report says what is so."""

import json
from pathlib import Path

import pytest
from plays import LOST, siblings
from viewed import write_run

from pettingllms.errors import ConfigError
from pettingllms.experiments.curves import PlotOptions, group_by_arm, make_panels, short, spark
from pettingllms.experiments.document import Document
from pettingllms.experiments.run_report import failures, run_report_page
from pettingllms.runs.scores import wilson
from pettingllms.viewer.sources import ViewedRun, open_run


def run_of(folder: Path, values: list[float], *overrides: str, name: str = "success") -> ViewedRun:
    write_run(folder, [], 1, *overrides)
    rows = [
        {
            "step": n,
            f"roles/planner/{name}": v,
            "rollout/num_episodes": 50,
            "rollout/total_tokens": 10 * n,
        }
        for n, v in enumerate(values, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_run(folder)


def test_runs_that_differ_by_seed_are_one_arm_with_a_band(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"s{n}", [0.2 * n, 0.3 * n], f"seed={n}") for n in (1, 2, 3)]
    assert [len(some) for some in group_by_arm(runs).values()] == [3]
    ((panel,),) = [make_panels(runs, PlotOptions(["success"]))]
    (line,) = panel.lines
    assert (line.y[0], line.low[0], line.high[0]) == pytest.approx((0.4, 0.2, 0.6))
    assert (line.y[-1], line.low[-1], line.high[-1]) == pytest.approx((0.6, 0.3, 0.9))
    other = run_of(tmp_path / "other", [0.5], "algo.type=grpo")
    assert [len(some) for some in group_by_arm([*runs, other]).values()] == [3, 1]


def test_a_run_alone_has_the_interval_of_what_was_counted(tmp_path: Path) -> None:
    (panel,) = make_panels([run_of(tmp_path / "r", [0.2, 0.5])], PlotOptions(["success"]))
    (line,) = panel.lines
    assert panel.is_share
    assert (line.low[0], line.high[0]) == pytest.approx(wilson(0.2, 50))


def test_roles_that_went_the_same_way_are_one_line(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", [0.2, 0.5])
    text = (tmp_path / "r" / "metrics.jsonl").read_text()
    (tmp_path / "r" / "metrics.jsonl").write_text(
        "".join(
            json.dumps(row | {"roles/checker/success": row["roles/planner/success"]}) + "\n"
            for row in map(json.loads, text.splitlines())
        )
    )
    (panel,) = make_panels([run], PlotOptions(["success"]))
    assert [line.part for line in panel.lines] == [""]


def test_smoothing_and_tokens(tmp_path: Path) -> None:
    (panel,) = make_panels(
        [run_of(tmp_path / "r", [0, 1, 2, 6], name="reward")], PlotOptions(["reward"], "tokens", 2)
    )
    assert panel.lines[0].x == [0, 10, 20, 30], "rollouts are of the weights before a step"
    assert panel.lines[0].y == [0, 0.5, 1.5, 4]


def test_an_unknown_metric_is_refused_with_the_nearest(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", [0.1], name="reward")
    with pytest.raises(ConfigError, match="roles/planner/reward"):
        make_panels([run], PlotOptions(["roles/planner/rewart"]))
    with pytest.raises(ConfigError, match="did you mean 'reward'"):
        make_panels([run], PlotOptions(["rewrd"]))


def test_pictures_are_drawn_in_both_forms(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from pettingllms.experiments.curve_figure import draw_learning_curves

    runs = [run_of(tmp_path / f"s{n}", [0.2 * n, 0.3 * n], f"seed={n}") for n in (1, 2)]
    panels = make_panels(runs, PlotOptions())
    for name, mark in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        draw_learning_curves(panels, "a title", "step", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(mark)


def test_a_course_in_a_line() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert spark([1, 1]) == "▄▄"
    assert len(spark(list(range(1000)), 24)) <= 24
    assert spark([]) == ""


def test_large_numbers_are_written_out() -> None:
    said = [short(value) for value in (4.66e-09, 0.0687, 71.94, 999.4, 8134.2, -27_200.0)]
    assert said == ["4.66e-09", "0.0687", "71.9", "999", "8,134", "-27,200"]


def test_a_report_says_what_was_trained_and_why_turns_failed(tmp_path: Path) -> None:
    failed = [siblings(f"t{n}", "planner", [1.0, LOST, LOST]) for n in range(4)]
    write_run(tmp_path / "run", failed, 2)
    run = open_run(tmp_path / "run")
    assert failures(run) == [("sampler: lost", 8)]
    text = run_report_page(run).to_markdown()
    for said in (
        "plan\\_path-v1",
        "at\\_grpo",
        "sampler: lost | 8",
        "2 of 20",
        "Diagnostics",
    ):
        assert said in text


def test_text_in_a_report_is_never_markup() -> None:
    hostile = "<script>alert(1)</script> | [x](http://e) `rm` *b*"
    page = Document(hostile)
    page.table([hostile], [[hostile]])
    page.points([hostile])
    page.text(hostile)
    assert "<script>" not in page.to_html()
    written = page.to_markdown()
    assert "\\<script\\>" in written
    assert "[x](" not in written.replace("\\[x\\](", "")
    assert all(
        line.replace("\\|", "").count("|") == 2
        for line in written.splitlines()
        if line.startswith("|")
    )


def test_a_folder_without_a_configuration_has_no_report(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [], 1)
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(ConfigError):
        run_report_page(ViewedRun(tmp_path / "run"))
