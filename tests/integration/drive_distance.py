"""A run that measures its distance, and its evaluation afterwards; see test_distance_engine.py."""

import json
import sys
from pathlib import Path

from drive import Quiet

from pettingllms.config import load_config
from pettingllms.runs.folder import RunFolder
from pettingllms.training.evaluate import evaluate
from pettingllms.training.train import train

if __name__ == "__main__":
    root = Path(sys.argv[1])
    config, folder = load_config(root / "run.toml"), RunFolder(root / "run")
    folder.create(config)
    train(config, folder, Quiet())
    found = folder.open(print)
    assert found is not None
    (root / "result.json").write_text(json.dumps(evaluate(config, found[1], print).exploitability))
