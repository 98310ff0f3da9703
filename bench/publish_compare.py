"""Compare how long this version and an earlier one take to publish a full model.

    python bench/publish_compare.py MODEL --commit COMMIT --rounds 2

The sources of the commit are checked out into a temporary folder. Each side has a learner of two
ranks and two vLLM engines. They start and publish in turn, because machine speed drifts and both
together do not fit into 24 GB. "total" contains the canary's check, on both sides; "transfer" does
not.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner_compare import check_out

from pettingllms.models import find_model

HERE = Path(__file__).resolve().parent


class Side:
    """A team with the sources of one version."""

    def __init__(self, sources: Path, model: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "publish_side.py"), str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(sources)},
        )
        self._report()

    def publish(self) -> "Publication":
        """Publish once."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._report()

    def close(self) -> None:
        """End the team."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _report(self) -> "Publication":
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a side ended with code {self._process.wait()}; see above")
        return Publication(*json.loads(line))


@dataclass(frozen=True, slots=True)
class Publication:
    """Seconds of one publication."""

    total: float
    check: float
    """Of the canary, which compares log-probs of the learner and of the engines."""

    @property
    def transfer(self) -> float:
        """Without the check."""
        return self.total - self.check


def publications(sources: Path, model: Path, times: int) -> list[Publication]:
    """Start a side, and return its publications after the first, which connects."""
    side = Side(sources, model)
    try:
        return [side.publish() for _ in range(times + 1)][1:]
    finally:
        side.close()


def main() -> None:
    """Print seconds and ratios of all rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="Folder or name of the model.")
    parser.add_argument("--commit", required=True, help="The earlier version.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="Publications of a side in a round.")
    options = parser.parse_args()
    model = find_model(options.model)
    with tempfile.TemporaryDirectory() as folder:
        check_out(options.commit, Path(folder))
        sources = {"before": Path(folder) / "src", "now": HERE.parent / "src"}
        measured = []
        for number in range(options.rounds):
            order = list(sources) if number % 2 else list(reversed(sources))
            seconds = {name: publications(sources[name], model, options.times) for name in order}
            measured += [
                {"before": before, "now": now}
                for before, now in zip(seconds["before"], seconds["now"], strict=True)
            ]
    print(json.dumps({part: compared(measured, part) for part in ("total", "transfer")}, indent=1))


def compared(measured: Sequence[Mapping[str, Publication]], part: str) -> dict[str, Any]:
    """Seconds of a part on both sides, and their ratios."""
    rounds = [{name: getattr(one, part) for name, one in pair.items()} for pair in measured]
    ratios = [one["before"] / one["now"] for one in rounds]
    return {
        "before": [round(one["before"], 2) for one in rounds],
        "now": [round(one["now"], 2) for one in rounds],
        "ratios": [round(ratio, 2) for ratio in ratios],
        "median_ratio": round(statistics.median(ratios), 2),
    }


if __name__ == "__main__":
    main()
