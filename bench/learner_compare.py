"""Compare this version's learner with an earlier one, in CPU-seconds of an optimizer step.

    python bench/learner_compare.py MODEL --commit COMMIT --rounds 3

The sources of the commit are checked out into a temporary folder. Both sides, each a process with
one thread, make a step in turn, because machine speed drifts. The batch is 8 replies of 64 tokens
to one prompt of 400 tokens; the adapter has rank 16.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PRINT_SETTINGS = (
    "import json; from pettingllms.cluster.start import ARITHMETIC as a; print(json.dumps(a))"
)


class Side:
    """A process that makes optimizer steps with the sources of one version."""

    def __init__(self, sources: Path, model: Path, dtype: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
        environment.update(settings_of_runs(environment))
        script = Path(__file__).with_name("learner_side.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(model), dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def step(self) -> float:
        """CPU-seconds of one optimizer step."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a side ended with code {self._process.wait()}; see above")
        seconds: float = json.loads(line)
        return seconds

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def settings_of_runs(environment: dict[str, str]) -> dict[str, str]:
    """The variables that runs of a version set for their processes."""
    command = [sys.executable, "-c", PRINT_SETTINGS]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    settings: dict[str, str] = json.loads(printed.stdout)
    return settings


def check_out(commit: str, folder: Path) -> None:
    """Copy the sources of a commit to a folder."""
    git = ["git", "archive", "--format=tar", commit, "src"]
    archive = subprocess.run(git, cwd=REPOSITORY, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print seconds and ratios of all rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder of the model")
    parser.add_argument("--commit", required=True, help="commit of the earlier version")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        check_out(options.commit, Path(folder))
        versions = {
            "before, float32": (Path(folder) / "src", "float32"),
            "now, float32": (REPOSITORY / "src", "float32"),
            "now, bfloat16": (REPOSITORY / "src", "bfloat16"),
        }
        sides = {name: Side(src, options.model, dtype) for name, (src, dtype) in versions.items()}
        for side in sides.values():
            stack.callback(side.close)
        for _ in range(2):  # compiles, and fills caches
            for side in sides.values():
                side.step()
        rounds = [
            {name: side.step() for name, side in sides.items()} for _ in range(options.rounds)
        ]
    for name in versions:
        ratios = [one["before, float32"] / one[name] for one in rounds]
        seconds = statistics.median(one[name] for one in rounds)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name:16} {seconds:6.2f} CPU-s, {statistics.median(ratios):.2f} times ({spread})")


if __name__ == "__main__":
    main()
