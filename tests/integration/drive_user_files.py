"""Train two steps with each user file in a folder, all under one Ray; print the metrics as JSON."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

from pettingllms.cluster.start import ray_running
from pettingllms.config import ClusterConfig, load_config
from pettingllms.runs.folder import RunFolder
from pettingllms.training.train import train


def main(folder: Path) -> None:
    with (
        ray_running(ClusterConfig()),
        mock.patch("pettingllms.training.train.ray_running", return_value=nullcontext()),
    ):
        for path in sorted(folder.glob("*.toml")):
            config, run = load_config(path), RunFolder(folder / path.stem)
            run.create(config)
            train(config, run)
            print(json.dumps(path.stem), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
