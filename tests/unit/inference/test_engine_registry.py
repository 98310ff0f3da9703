"""Engines by name or from a user's file, and what a run needs of them."""

import asyncio
from pathlib import Path

import pytest

from pettingllms.config import parse_config
from pettingllms.config.user_code import named_code
from pettingllms.errors import ConfigError, SamplerError
from pettingllms.inference.engines.base import Capabilities, InferenceEngine
from pettingllms.registry import ENGINES

RUN = {"env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"}}
LORA = {"policies": {"p": {"kind": "lora", "model": "m"}}}
FULL = {"policies": {"p": {"kind": "full", "model": "m"}}}
ECHO = '''
from pettingllms import InferenceEngine
from pettingllms.inference.engines.base import Capabilities


class Echo(InferenceEngine):
    """Declares log-probs and nothing else."""

    capabilities = Capabilities(logprobs=True)

    def __init__(self, spec): ...
    async def start(self): ...
    async def sample(self, request): ...
    async def score(self, policy, given, temperature=1.0): ...
    async def versions(self): ...
'''


@pytest.fixture
def echo(tmp_path: Path) -> str:
    (tmp_path / "echo.py").write_text(ECHO)
    return f"{tmp_path / 'echo.py'}:Echo"


@pytest.mark.parametrize("name", ENGINES.names())
def test_engines_declare_their_capabilities_and_packages(name: str) -> None:
    engine = ENGINES.load(name)
    assert isinstance(engine.capabilities, Capabilities)
    assert engine.capabilities.logprobs
    assert engine.packages


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (LORA, r"inference.engine: '.*Echo' cannot serve LoRA adapters.* policies.p "),
        (FULL, r"inference.engine: '.*Echo' cannot take new weights"),
        ({**LORA, "inference": {"guided": True}}, "inference.guided: .* cannot constrain replies"),
    ],
)
def test_a_run_that_needs_more_than_the_engine_can_is_rejected(sections, expected, echo) -> None:
    inference = {**sections.get("inference", {}), "engine": echo}
    with pytest.raises(ConfigError, match=expected):
        parse_config({**RUN, **sections, "inference": inference})


def test_an_engine_from_a_file_is_code_that_must_be_trusted(echo: str) -> None:
    assert named_code({**RUN, "inference": {"engine": echo}}) == [echo]
    frozen = {"policies": {"p": {"kind": "frozen", "model": "m"}}}
    assert parse_config({**RUN, **frozen, "inference": {"engine": echo}}).inference.engine == echo


def test_an_unknown_engine_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="inference.engine: no inference engine is called 'vlm'"):
        parse_config({**RUN, **LORA, "inference": {"engine": "vlm"}})


def test_methods_without_the_capability_raise(echo: str) -> None:
    engine: InferenceEngine = ENGINES.load(echo)(None)
    with pytest.raises(SamplerError, match="the engine Echo cannot serve LoRA adapters"):
        asyncio.run(engine.publish_adapter("p", 1, {}))
