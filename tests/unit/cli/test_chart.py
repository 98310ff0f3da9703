"""The chart of shares in the terminal."""

import io
import math

import pytest
from rich.console import Console

from pettingllms.cli.chart import HEIGHT, ShareChart, block

BLOCKS = " ▁▂▃▄▅▆▇█"


def drawn(chart: ShareChart, width: int = 40) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, force_terminal=False)
    console.print(chart)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_bars_are_as_high_as_their_shares() -> None:
    lines = drawn(ShareChart([0, 2, 4], [0.0, 0.5, 1.0]))
    assert len(lines) == HEIGHT + 1
    assert lines[0] == "100% │        ███"
    assert lines[HEIGHT // 2] == " 50% │    ███ ███"
    assert lines[HEIGHT - 1] == "  0% │    ███ ███"
    assert lines[HEIGHT].split() == ["step", "└0", "2", "4"]


def test_the_latest_points_stay_where_all_do_not_fit() -> None:
    lines = drawn(ShareChart(list(range(100)), [0.5] * 100), width=20)
    assert lines[-1].split()[-1] == "99"
    assert all(len(line) <= 20 for line in lines)


@pytest.mark.parametrize("share", [math.nan, math.inf])
def test_what_is_no_share_is_left_empty(share: float) -> None:
    assert {block(share, line, BLOCKS) for line in range(HEIGHT)} == {" "}


@pytest.mark.parametrize("share", [i / 48 for i in range(49)])
def test_the_blocks_of_a_bar_add_up_to_its_share(share: float) -> None:
    parts = [BLOCKS.index(block(share, line, BLOCKS)) for line in range(HEIGHT)]
    assert sum(parts) == round(share * HEIGHT * 8)
    assert parts == sorted(parts), "full blocks are at the bottom"
