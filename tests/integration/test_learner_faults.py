"""A learner whose rank hangs or dies on one machine gives a message of ours."""

import json
from pathlib import Path

import pytest
from running import HERE, config_of, run, write_config

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_a_rank_that_hangs_or_dies_is_named(tiny: Path, tmp_path: Path) -> None:
    policy = {"kind": "full", "model": str(tiny), "lr": 1e-3}
    bound = {"device": "cpu", "learner_timeout": 12}
    made = config_of({"a": policy}, {"role0": "a"}, learner={"num_ranks": 2}, cluster=bound)
    config, result = write_config(tmp_path / "config.toml", made), tmp_path / "result.json"
    said = run(tmp_path / "log", str(HERE / "drive_faults.py"), str(config), str(result))
    assert result.is_file(), said
    found = json.loads(result.read_text())
    print(found)
    assert "the learner of 'a' has not answered 'files' for" in found["said"][0]
    assert "rank 1, process" in found["said"][0]
    assert "stopped" in found["said"][0]
    assert "made no progress in 'files'" in found["stopped"]["error"]
    assert "cluster.learner_timeout = 12" in found["stopped"]["error"]
    assert 12 <= found["stopped"]["seconds"] < 60
    assert found["killed"]["error"].startswith("rank 1 of the learner of 'a', in 'files', failed")
    assert "Traceback" not in found["killed"]["error"]
    assert found["killed"]["seconds"] < 60
