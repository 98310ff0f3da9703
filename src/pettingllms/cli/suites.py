"""`list suites`: the benchmarks that ship with the package, with their data and protocols."""

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console
from pettingllms.evaluation.suites.bench_data import num_published, sources_of
from pettingllms.evaluation.suites.suite import Bench, builtin_suites, load_suite

GENERATED = "-"


def list_suites() -> None:
    """Print a table of the benchmarks of every suite, and the protocol that each suite follows."""
    table = Table(title="Suites", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("suite", "benchmark", "form", "data"):
        table.add_column(title, no_wrap=title in ("suite", "form"), overflow="fold")
    for title in ("tasks", "samples"):
        table.add_column(title, no_wrap=True, justify="right")
    protocols: dict[str, str] = {}
    for name in builtin_suites():
        for at, bench in enumerate(load_suite(name).benches):
            title = "" if at else f"[bold]{name}[/]"
            table.add_row(title, *map(escape, _cells(bench)))
            if bench.protocol:
                protocols[name] = bench.protocol
    console.print(table)
    for name, protocol in protocols.items():
        console.print(f"[bold]{name}[/]: {escape(protocol)}.")
    console.print(
        "Suites without a protocol are our own. Run one: [bold]pettingllms eval RUN --suite "
        "NAME[/]. Download its data: [bold]pettingllms data get NAME[/]."
    )


def _cells(bench: Bench) -> tuple[str, ...]:
    data = ", ".join(source.text for source, _ in sources_of(bench)) or GENERATED
    return bench.title, ", ".join(bench.forms), data, _num_tasks(bench), str(bench.num_samples)


def _num_tasks(bench: Bench) -> str:
    if isinstance(bench.num_tasks, int):
        return f"{bench.num_tasks:,}"
    published = num_published(bench)
    return f"all {published:,}" if published else "all"
