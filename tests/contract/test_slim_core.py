"""The core imports without an engine, and help answers at once."""

import resource
import subprocess
import sys

ENGINES = ("torch", "vllm", "ray", "transformers", "peft")
CORE = (
    *("types", "config", "envs", "algos", "rollouts", "exploitability"),
    *("training.collect", "cli.main", "registry"),
)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_core_loads_no_engine() -> None:
    imports = "; ".join(f"import pettingllms.{name}" for name in CORE)
    load_all = (
        "from pettingllms.registry import ENVIRONMENTS, ALGORITHMS, ENGINES as INFERENCE, LOSSES; "
        "[r.load(n) for r in (ENVIRONMENTS, ALGORITHMS, INFERENCE, LOSSES) for n in r.names()]"
    )
    found = run(f"import sys; {imports}; {load_all}; print(set({ENGINES}) & set(sys.modules))")
    assert found.strip() == "set()"


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; import pettingllms; print({'numpy', 'pydantic', 'rich'} & set(sys.modules))"
    assert run(code).strip() == "set()"


HELP = (
    "import sys; sys.argv = ['pettingllms', '--help']; "
    "from pettingllms.cli.main import app; app(standalone_mode=False)"
)
LEAST = (
    "import sys, typer; sys.argv = ['least', '--help']; app = typer.Typer(); "
    "app.command()(lambda: None); app(standalone_mode=False)"
)


def cpu_time(code: str) -> float:
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(code)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime - start.ru_utime + end.ru_stime - start.ru_stime


def test_help_takes_at_most_twice_the_time_of_one_command() -> None:
    """Against a program of one command with the same library, by the CPU's clock and interleaved:
    this is about what help must import, not about how fast or busy the machine is."""
    times = [(cpu_time(HELP), cpu_time(LEAST)) for _ in range(5)]
    ours, least = (min(column) for column in zip(*times, strict=True))
    assert ours < 2 * least
