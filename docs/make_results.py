"""Recreate the tables, figures and slides in docs/results from the results.json files.

    python docs/make_results.py [NAME ...]

Nothing is trained or evaluated. An experiment without results.json is passed over. The forest plot
of all planned contrasts is drawn again too.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pettingllms.experiments.contrasts import effects
from pettingllms.experiments.experiment import load_experiment
from pettingllms.experiments.forest_figure import Row, draw_forest
from pettingllms.experiments.preregistration import load_preregistration
from pettingllms.experiments.report import RESULTS, redraw
from pettingllms.experiments.results import Result

ROOT = Path(__file__).parents[1]


def main(names: list[str]) -> None:
    """Redraw the named experiments, or all."""
    for path in sorted((ROOT / "docs" / "results").glob(f"*/{RESULTS}")):
        if not names or path.parent.name in names:
            source = ROOT / "experiments" / path.parent.name
            experiment = load_experiment(source)
            redraw(experiment, path.parent, load_preregistration(source, experiment))
            print(f"wrote {path.parent}")
    rows = list(planned_contrasts())
    if rows:
        draw_forest("Planned contrasts", rows, ROOT / "docs" / "results" / "contrasts.png")


def planned_contrasts() -> Iterator[Row]:
    """The planned contrasts of shares in all shipped results."""
    for path in sorted((ROOT / "docs" / "results").glob(f"*/{RESULTS}")):
        source = ROOT / "experiments" / path.parent.name
        experiment = load_experiment(source)
        preregistration = load_preregistration(source, experiment)
        if preregistration is None:
            continue
        shares = {column.name for column in experiment.evaluations if column.is_share}
        results = [Result.from_json(one) for one in json.loads(path.read_text())["results"]]
        for effect in effects(preregistration, results):
            if effect.evaluation in shares:
                yield Row(path.parent.name, effect)


if __name__ == "__main__":
    main(sys.argv[1:])
