import io
import math
import re
from collections.abc import Mapping

import pytest
from rich.cells import cell_len
from rich.console import Console

from pettingllms.cli.live import LiveDisplay, PlainDisplay, make_display, sparkline
from pettingllms.config import RunConfig, parse_config

LORA = {"kind": "lora", "model": "m"}
METRICS = {
    "roles": {
        "player_x": {
            "reward": 0.42,
            "success": 0.31,
            "reply_tokens": 1204.4,
            "failed_share": 0.2,
        },
        "player_o": {"reward": 0.4},
    },
    "policies": {
        "first": {
            "version": 3,
            "mismatch": 0.00004,
            "clip_share": 0.012,
            "entropy": 1.5,
            "grad_norm": 0.87,
            "tokens_per_second": 12345.0,
        },
        "second": {"mismatch": 0.5},
    },
    "rollout": {"num_episodes": 32.0},
    "time": {"sample": 8.1, "step": 12.3},
}


class Time:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def team(second: Mapping[str, str] = LORA) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {
                "first": {"kind": "full", "model": "m"},
                "second": dict(second),
            },
            "roles": {"player_x": "first", "player_o": "second"},
        }
    )


def terminal(width: int = 80, **options) -> Console:
    options = {"force_terminal": True, "file": io.StringIO(), **options}
    return Console(width=width, height=40, record=True, _environ={"TERM": "xterm"}, **options)


def plain() -> Console:
    return Console(width=40, file=io.StringIO(), force_terminal=False, record=True)


def drawn(display: LiveDisplay, console: Console) -> str:
    console.print(display)
    return console.export_text()


def words(text: str, start: str) -> str:
    """The words of the one line that begins with this one."""
    found = [line.strip("│ ").split() for line in text.splitlines()]
    (line,) = [line for line in found if line[:1] == [start]]
    return " ".join(line)


def test_what_can_draw_gets_a_table_and_what_cannot_gets_lines() -> None:
    assert isinstance(make_display(team(), "r", terminal()), LiveDisplay)
    assert isinstance(make_display(team(), "r", plain()), PlainDisplay)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(make_display(team(), "r", dumb), PlainDisplay)


def test_a_line_a_step() -> None:
    clock, console = Time(), plain()
    with make_display(team(), "r", console, clock) as display:
        display.on_phase("sampling")
        display.on_progress(1, 2)
        display.on_step_end(3, METRICS)
        clock.now += 7
        display.on_step_end(4, {})
        display.on_message("look at [this]: " + "word " * 20)
    first, second, said = console.export_text().splitlines()
    assert first == (
        "step 3/100  player_x reward +0.42 success 31%  player_o reward +0.40  mismatch 0.5  12.3 s"
    )
    assert second == "step 4/100  player_x  player_o  7.0 s"
    assert said.startswith("look at [this]: word word")


def test_a_gap_that_is_no_number_is_not_hidden_by_another() -> None:
    console = plain()
    policies = {"first": {"mismatch": 0.1}, "second": {"mismatch": math.nan}}
    make_display(team(), "r", console).on_step_end(1, {"policies": policies})
    assert "mismatch nan" in console.export_text()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_line_fits_the_terminal(width: int) -> None:
    console = terminal(width)
    display = LiveDisplay(team(), "tic-tac-toe", console)
    display.on_phase("sampling episodes")
    display.on_progress(12, 32)
    for step in range(1, 50):
        display.on_step_end(step, METRICS)
    lines = drawn(display, console).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert "tic-tac-toe" in lines[0]


def test_numbers_stand_in_the_row_of_their_role_and_policy() -> None:
    console = terminal(120)
    display = LiveDisplay(team(), "r", console)
    display.on_step_end(7, METRICS)
    text = drawn(display, console)
    assert words(text, "player_x") == "player_x first +0.420 ▄ 31% 1,204 20.0%"
    assert words(text, "player_o") == "player_o second +0.400 ▄ - - -"
    assert words(text, "first") == "first 3 4e-05 1.2% 1.500 0.87 12,345"
    assert words(text, "second") == "second - 0.5 - - - -"
    assert "sample 8.1 s, step 12.3 s" in text


def test_a_policy_that_does_not_learn_has_no_separate_row() -> None:
    console = terminal()
    text = drawn(LiveDisplay(team({"kind": "scripted"}), "r", console), console)
    assert words(text, "player_o") == "player_o second - - - -"
    assert words(text, "first") == "first - - - - - -"
    assert "│ second" not in text


def test_before_the_first_step_there_are_no_numbers() -> None:
    console = terminal()
    text = drawn(LiveDisplay(team(), "r", console), console)
    assert words(text, "player_x") == "player_x first - - - -"
    assert "step 0/100" in text
    assert "starting" in text
    assert "- left" in text


def test_what_is_past_its_bound_is_red() -> None:
    console = terminal(120, color_system="standard")
    display = LiveDisplay(team(), "r", console)
    display.on_step_end(1, METRICS)
    console.print(display)
    styled = console.export_text(styles=True)
    red = re.findall(r"\x1b\[1;31m\s*(\S+?)\x1b", styled)
    assert red == ["20.0%", "0.5"], "the first policy's gap is within bounds"


def test_the_time_left_follows_from_the_pace_of_steps_and_not_from_the_start() -> None:
    clock, console = Time(), terminal()
    display = LiveDisplay(team(), "r", console, clock)
    clock.now += 1000
    for step in (51, 52, 53):
        clock.now += 10
        display.on_step_end(step, METRICS)
    clock.now += 4
    text = drawn(display, console)
    assert "step 53/100" in text
    assert "0:17:14 elapsed" in text
    assert "0:07:46 left" in text, "47 steps of 10 s, less the 4 s that have gone by"


def test_a_new_phase_has_made_no_progress() -> None:
    console = terminal()
    display = LiveDisplay(team(), "r", console)
    display.on_phase("sampling episodes")
    display.on_progress(12, 32)
    assert "sampling episodes 12/32" in drawn(display, console)
    display.on_phase("learning")
    text = drawn(display, console)
    assert "learning" in text
    assert "/32" not in text


def test_messages_stand_above_the_table() -> None:
    console = terminal()
    with make_display(team(), "tic-tac-toe", console) as display:
        display.on_step_end(1, METRICS)
        display.on_message("mlflow [1] did not take step 1")
    text = console.file.getvalue()
    assert text.rindex("mlflow [1] did not take step 1") < text.rindex("tic-tac-toe")


def test_a_sparkline_goes_from_lowest_to_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([-1.0, math.nan, 1.0, math.inf]) == "▁·█·"
    assert sparkline([2.0, 2.0]) == "▄▄"
    assert sparkline([math.nan]) == "·"
    assert sparkline([]) == ""


@pytest.mark.parametrize(("width", "room"), [(120, 30), (64, 9)])
def test_a_sparkline_shows_the_newest_steps(width: int, room: int) -> None:
    console = terminal(width)
    display = LiveDisplay(team(), "r", console)
    for step in range(100):
        reward = 50.0 if step < 70 else float(step == 99)
        display.on_step_end(step, {"roles": {"player_x": {"reward": reward}}})
    assert words(drawn(display, console), "player_x").split()[3] == "▁" * (room - 1) + "█"


def test_a_terminal_without_unicode_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = terminal(file=file)
    display = LiveDisplay(team(), "r", console)
    display.on_step_end(1, METRICS)
    display.on_step_end(2, {"roles": {"player_x": {"reward": 0.5}}})
    assert drawn(display, console).isascii()


def test_evaluations_are_drawn_as_a_chart() -> None:
    console = terminal()
    display = LiveDisplay(team(), "run", console, Time())
    display.on_step_end(1, {"roles": {"player_x": {"reward": 0.1}}})
    assert "evaluations" not in drawn(display, console)
    roles = {"player_x": {"eval_success": 0.4}, "player_o": {"eval_success": 0.6}}
    display.on_step_end(2, {"roles": roles})
    display.on_step_end(4, {"roles": {role: {"eval_success": 1.0} for role in roles}})
    lines = drawn(display, console).splitlines()
    (full,) = (line.strip("│ ") for line in lines if "100%" in line)
    (half,) = (line.strip("│ ") for line in lines if " 50%" in line)
    assert (full.count("███"), half.count("███")) == (1, 2)


def test_a_plain_line_names_the_success_of_an_evaluation() -> None:
    console = plain()
    with PlainDisplay(team(), console, Time()) as display:
        display.on_step_end(2, {"roles": {"player_x": {"eval_success": 0.4}}})
    assert "test success 40%" in console.export_text()
