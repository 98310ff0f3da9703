"""Recreate the tables, figures and slides in docs/results from the results.json files.

    python docs/make_results.py [NAME ...]

Nothing is trained or evaluated. An experiment without results.json is passed over.
"""

import sys
from pathlib import Path

from pettingllms.experiments.experiment import load_experiment
from pettingllms.experiments.report import RESULTS, redraw

ROOT = Path(__file__).parents[1]


def main(names: list[str]) -> None:
    """Redraw the named experiments, or all."""
    for path in sorted((ROOT / "docs" / "results").glob(f"*/{RESULTS}")):
        if not names or path.parent.name in names:
            redraw(load_experiment(ROOT / "experiments" / path.parent.name), path.parent)
            print(f"wrote {path.parent}")


if __name__ == "__main__":
    main(sys.argv[1:])
