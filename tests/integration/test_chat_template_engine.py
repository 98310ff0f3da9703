"""The rendering of vLLM's API server, without an engine, has the ids of Transformers."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]
pytest.importorskip("vllm")

from pettingllms.models import make_tiny

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_vllm_renders_the_ids_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    import chat_template_ids as ids

    folder = make_tiny(tmp_path / "tiny")
    family, vllm = ids.Family(folder), ids.Vllm(folder)
    num_equal = 0
    for name, one in ids.CONVERSATIONS.items():
        found, expected = vllm.rendered(one), family.rendered(one)["transformers"]
        assert found == expected or (name, found) == ("no thinking", None), name
        num_equal += found is not None
    assert num_equal >= 5
