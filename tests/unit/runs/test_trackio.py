"""The real Trackio, in a virtual environment that has it: a run and its resumption."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "0.43.0"
FOLDER = "PETTINGLLMS_TRACKIO"
"""Environment variable with a virtual environment that has Trackio already."""
SOURCE = Path(__file__).parents[3] / "src"
TRACK = """\
import json, sys
from pathlib import Path
from pettingllms.config import parse_config
from pettingllms.runs.trackers import make_trackers

config = parse_config({
    "env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "m"}}, "log": {"trackio": "games"},
})
folder = Path("run")
folder.mkdir(exist_ok=True)
step = int(sys.argv[1])
for tracker in make_trackers(config, folder, lambda text: sys.exit(text)):
    tracker.log(step, {"roles/player_x/reward": step / 4, "time/step": 2.0})
    tracker.close()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    known = os.environ.get(FOLDER)
    folder = Path(known) if known else tmp_path_factory.mktemp("trackio") / "venv"
    found = folder / "bin" / "python"
    if known is None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(found), "-m", "pip", "install", "--quiet", f"trackio=={VERSION}"]
        install += ["pydantic>=2.11,<3", "tomli-w>=1.2,<2", "rich>=14,<16", "typer>=0.16,<1"]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"Trackio does not install: {done.stderr[-300:]}")
    return str(found)


def run(python: str, home: Path, code: str, *words: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    env |= {"TRACKIO_DIR": str(home / "trackio"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, "-c", code, *words],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_trackio_has_all_steps_of_a_resumed_run(python: str, tmp_path: Path) -> None:
    assert run(python, tmp_path, TRACK, "1") == "", "the display of the run is not disturbed"
    run(python, tmp_path, TRACK, "2")
    name = (tmp_path / "run" / "trackio.name").read_text()
    read = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as S; "
        f"print(json.dumps(S.get_logs('games', {name!r})))"
    )
    rows = json.loads(run(python, tmp_path, read).splitlines()[-1])
    assert [(row["step"], row["roles/player_x/reward"]) for row in rows] == [(1, 0.25), (2, 0.5)]
