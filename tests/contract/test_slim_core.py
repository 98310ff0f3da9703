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


def test_help_answers_within_half_a_second() -> None:
    """The best of five, by the processor's clock: this is about what help must import, not about
    how busy the machine is."""
    times = []
    for _ in range(5):
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(
            "import sys; sys.argv = ['pettingllms', '--help']; "
            "from pettingllms.cli.main import app; app(standalone_mode=False)"
        )
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(end.ru_utime - start.ru_utime + end.ru_stime - start.ru_stime)
    assert min(times) < 0.5
