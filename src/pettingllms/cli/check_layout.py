"""`check CONFIG --nodes --gpus`: on which node and GPUs each process of a run is placed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pettingllms.cli.check import MARKS
from pettingllms.cli.console import console
from pettingllms.policies import check_placement, group_resources, plan_models
from pettingllms.policies.layout import Layout, Placed
from pettingllms.preflight.sizing import SLOWER, find_layout
from pettingllms.runs.trust import load_inspected_config

COLORS = ("blue", "green", "magenta", "cyan", "yellow", "red")
"""Background of a model in the picture; learners are bold."""
NUM_RANGES = 4
"""Places of a process in the table."""


def check_layout(
    path: Path, overrides: Sequence[str], num_nodes: int, gpus_per_node: int, as_json: bool
) -> None:
    """Print the layout of a config on equal nodes; exit code 1 if there is none."""
    config = load_inspected_config(path, overrides, needs_data=False)
    groups = plan_models(config)
    check_placement(config, groups)
    layout, missing = find_layout(config, num_nodes, gpus_per_node)
    if as_json:
        found = {"fits": layout is not None, "missing": missing, "layout": as_data(layout)}
        console.out(json.dumps(found), highlight=False)
    elif layout is None:
        what, _, advice = missing.rpartition("; ")
        line = f"{MARKS['problem']} {escape(what)}\n  → {escape(advice)}"
        console.print(line, soft_wrap=True, highlight=False)
    else:
        widths = {group.name: group_resources(config, group).tensor_parallel for group in groups}
        _print_table(layout, widths)
        print_picture(layout, widths)
        for one in layout.divided:
            what = f"{escape(one.group.name)} is divided over {len(one.shares)} nodes: {SLOWER}"
            console.print(f"{MARKS['note']} {what}", soft_wrap=True)
        console.print(f"[green]ok[/]: {escape(str(path))} fits; `--gpu NAME` plans its memory.")
    if layout is None:
        raise typer.Exit(1)


def print_picture(layout: Layout, widths: dict[str, int]) -> None:
    """Print one row per node and one cell per GPU. `widths`: GPUs per engine."""
    console.print(_picture(layout, widths))
    console.print("E engine, L learner, C critic, with its number; · free", style="dim")


def _print_table(layout: Layout, widths: dict[str, int]) -> None:
    total = sum(node.num_gpus for node in layout.nodes)
    nodes = "1 node" if len(layout.nodes) == 1 else f"{len(layout.nodes)} nodes"
    table = Table(
        *("", "process", "GPUs", "where"),
        title=f"Layout on {nodes}: {layout.num_gpus} of {total} GPUs",
    )
    for rows in _rows(layout):
        table.add_row(*_row(layout, rows, widths))
    console.print(table)


def as_data(layout: Layout | None) -> list[dict[str, Any]] | None:
    """The layout as plain data."""
    if layout is None:
        return None
    return [
        {
            "name": one.group.name,
            "kind": one.group.kind,
            "policies": one.group.policies,
            "places": [
                {"node": layout.nodes[share.node].name, "gpus": share.gpus} for share in one.shares
            ],
        }
        for one in layout.placed
    ]


def _rows(layout: Layout) -> list[list[Placed]]:
    """Process groups by row: the engines of a model share one."""
    rows: dict[tuple[str, str], list[Placed]] = {}
    for one in layout.placed:
        rows.setdefault((one.group.kind, one.group.model), []).append(one)
    return list(rows.values())


def _row(layout: Layout, placed: Sequence[Placed], widths: dict[str, int]) -> list[Text | str]:
    group = placed[0].group
    policies = ", ".join(f"'{policy}'" for policy in group.policies)
    names = {
        "engine": f"engine{'s' if len(placed) > 1 else ''} of {policies}",
        "learner": f"learner of {policies}",
        "critic": f"critic of {policies}",
        "colocated": f"engines and learner of {policies}",
    }
    number = f"{group.num_gpus}"
    if group.kind == "engine":
        number = f"{len(placed)} x {group.num_gpus}"
    elif group.kind == "colocated":
        width = widths[group.model]
        number = f"{group.num_gpus // width} x {width} and {group.num_gpus} ranks"
    ranges = [_range(layout, one) for one in placed]
    more = [f"and {len(ranges) - NUM_RANGES} more"] if len(ranges) > NUM_RANGES else []
    where = "\n".join([*ranges[:NUM_RANGES], *more])
    return [Text("  ", style=_style(layout, placed[0])), escape(names[group.kind]), number, where]


def _range(layout: Layout, one: Placed) -> str:
    """Such as "node 0: 0-7, node 1: 0-3"."""
    texts = []
    for share in one.shares:
        first, last = share.gpus[0], share.gpus[-1]
        gpus = f"{first}" if first == last else f"{first}-{last}"
        texts.append(f"{layout.nodes[share.node].name}: {gpus}")
    return ", ".join(texts)


def _picture(layout: Layout, widths: dict[str, int]) -> Table:
    """One row per node and one cell per GPU, with the processes and the first policy."""
    cells: dict[tuple[int, int], Text] = {}
    for one in layout.placed:
        rank = 0
        for share in one.shares:
            for gpu in share.gpus:
                label = f"{_label(one, rank, widths)}\n{_policies(one)}"
                cells[share.node, gpu] = Text(label, style=_style(layout, one))
                rank += 1
    most = max(node.num_gpus for node in layout.nodes)
    table = Table(box=box.SQUARE, show_lines=True, padding=0, header_style="dim")
    table.add_column("", no_wrap=True)
    width = max(4, min(12, (console.width - 10) // most - 1))
    for gpu in range(most):
        options: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis", "justify": "center"}
        table.add_column(f"GPU {gpu}" if width > 5 else f"{gpu}", width=width, **options)
    for number, node in enumerate(layout.nodes):
        row = [cells.get((number, gpu), Text("·", style="dim")) for gpu in range(node.num_gpus)]
        table.add_row(node.name, *row)
    return table


def _label(one: Placed, rank: int, widths: dict[str, int]) -> str:
    match one.group.kind:
        case "engine":
            return f"E{one.group.number}"
        case "colocated":
            return f"E{rank // widths[one.group.model]} L{rank}"
        case "critic":
            return f"C{rank}"
        case _:
            return f"L{rank}"


def _policies(one: Placed) -> str:
    first, *others = one.group.policies
    return f"{first} +{len(others)}" if others else first


def _style(layout: Layout, one: Placed) -> str:
    models = list(dict.fromkeys(each.group.model for each in layout.placed))
    color = COLORS[models.index(one.group.model) % len(COLORS)]
    return f"white on {color}" if one.group.kind == "engine" else f"bold black on bright_{color}"
