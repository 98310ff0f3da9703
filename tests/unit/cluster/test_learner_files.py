"""How the weights of a policy leave its learner: in memory, or through files of this machine."""

import asyncio
import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.cluster.learners import Learners
from pettingllms.cluster.watchdog import Watchdog
from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerLostError
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.policies.files import MODEL_FILE, read_content

POLICIES = {"full": FullPolicy(model="m"), "lora": LoraPolicy(model="m")}


class Written(Learners):
    """Learners without processes; rank 0 writes its weights to a folder."""

    def __init__(self, one_machine: bool, fails: bool = False) -> None:
        self.actors = []
        self._watchdog = Watchdog([])
        self._spec = LearnerSpec(Path("m"), POLICIES, LearnerConfig(), loss_config(), 16, 5)
        self._one_machine = one_machine
        self._fails = fails

    async def call(self, method: str, *args: Any) -> Any:
        policy, folder = args
        assert (method, policy) == ("write", "full")
        (folder / MODEL_FILE).write_bytes(b"weights")
        if self._fails:
            raise RuntimeError("no space left")
        return "hash"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_full_model_is_published_through_a_file_of_one_machine(temporary: Path) -> None:
    files, weight_hash = asyncio.run(Written(one_machine=True).files("full"))
    assert weight_hash == "hash"
    assert {name: read_content(path) for name, path in files.items()} == {MODEL_FILE: b"weights"}
    assert [*temporary.iterdir()]
    del files
    gc.collect()
    assert not [*temporary.iterdir()]


def test_a_failed_write_leaves_no_files(temporary: Path) -> None:
    with pytest.raises(RuntimeError, match="no space left"):
        asyncio.run(Written(one_machine=True, fails=True).files("full"))
    gc.collect()
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize(("one_machine", "policy"), [(False, "full"), (True, "lora")])
def test_other_weights_are_published_in_memory(
    one_machine: bool, policy: str, temporary: Path
) -> None:
    # Asks the processes, of which there are none here.
    with pytest.raises(LearnerLostError, match="was stopped before it answered 'files'"):
        asyncio.run(Written(one_machine).files(policy))
    assert not [*temporary.iterdir()]
