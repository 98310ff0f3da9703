"""A loss from a user's file: the example of the documentation, from configuration to update."""

import inspect
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.config import LearnerConfig, loss_config, parse_config, to_toml
from pettingllms.config.policies import FullPolicy
from pettingllms.config.user_code import named_code
from pettingllms.errors import ConfigError
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.losses.base import Loss
from pettingllms.models import make_tiny

RUN = {
    "env": {"id": "tic_tac_toe-v1"},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "m"}},
}


@pytest.fixture
def name(tmp_path: Path) -> str:
    """The documented example, written to a file."""
    lines = inspect.getdoc(Loss).splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("    from pettingllms"))
    code = [line for line in lines[first:] if not line or line.startswith("    ")]
    file = tmp_path / "cispo.py"
    file.write_text(textwrap.dedent("\n".join(code)))
    return f"{file}:Cispo"


def test_options_are_read_by_the_named_class(name: str) -> None:
    config = parse_config({**RUN, "loss": {"type": name, "max_ratio": 4.0, "kl_coef": 0.1}})
    assert (config.loss.max_ratio, config.loss.kl_coef) == (4.0, 0.1)
    assert f'type = "{name}"' in to_toml(config)
    with pytest.raises(ConfigError, match=r"loss.clip_low: this loss has no such option, only cl"):
        parse_config({**RUN, "loss": {"type": name, "clip_low": 0.1}})
    assert named_code({**RUN, "loss": {"type": name}}) == [name]


def test_the_learner_trains_with_it(name: str, tmp_path: Path) -> None:
    texts = [f"count {n}" for n in range(50)]
    model = make_tiny(tmp_path / "tiny", texts=texts, hidden_size=64)
    policies = {"p": FullPolicy(model="m", lr=1e-2)}
    made = Learner(LearnerSpec(model, policies, LearnerConfig(), loss_config(name), 16, 5))
    ids = np.arange(5, 9, dtype=np.int32)
    (before,) = made.logprobs("p", [Item(ids, ids, np.zeros(4, np.float32), 1.0)])
    item = Item(ids, ids, before, 1.0)
    assert made.train("p", [item], 1)["ratio"] == 1.0
    assert made.logprobs("p", [item])[0].sum() > before.sum()


def test_its_options_travel_to_a_process_that_has_not_loaded_the_file(name: str) -> None:
    data = pickle.dumps(loss_config(name, max_ratio=3.0))
    code = f"import pickle; print(pickle.loads({data!r}).max_ratio)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3.0"


def test_an_unknown_need_is_rejected() -> None:
    with pytest.raises(TypeError, match="needs 'entropie'; did you mean 'entropy'"):
        type("Odd", (Loss,), {"needs": frozenset({"entropie"})})
