"""The router of a run: which runs have one, and whose port it takes."""

import socket
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from pettingllms.cluster.workflows import start_router, stopped_on_error
from pettingllms.config import RolloutConfig, parse_config
from pettingllms.envs import Workflow
from pettingllms.errors import ConfigError
from pettingllms.registry import ENVIRONMENTS

ANY = "127.0.0.1:0"


class Program(Workflow):  # type: ignore[type-arg]
    """A workflow with nothing but roles."""

    id = "session:routed"
    roles = ("a", "b")

    def tasks(self, split: Any) -> Any:
        raise NotImplementedError

    async def run(self, task: Any, agents: Any) -> Any:
        raise NotImplementedError

    def score(self, task: Any, result: Any) -> Any:
        raise NotImplementedError

    def success(self, state: Any, role: str) -> bool:
        raise NotImplementedError


def config_of(address: str, env: str = Program.id, **sections: Any) -> Any:
    ENVIRONMENTS.register(Program.id, Program)
    api = {"kind": "api", "model": "m", "url": "http://localhost:1/v1"}
    return parse_config(
        {
            "env": {"id": env},
            "algo": {"type": "grpo"},
            "policies": {"p": api},
            "rollout": {"gateway_address": address, **sections.pop("rollout", {})},
            **sections,
        }
    )


def env_of(config: Any) -> Any:
    return Program(config.env)


def test_a_workflow_with_an_address_has_a_router() -> None:
    config = config_of(ANY)
    router = start_router(config, env_of(config))
    assert router is not None
    host, _, port = router.url.rpartition(":")
    assert host == "http://127.0.0.1"
    with socket.create_connection(("127.0.0.1", int(port)), timeout=10):
        pass
    with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port} .*free port"):
        start_router(config_of(f"127.0.0.1:{port}"), env_of(config))
    with pytest.raises(ValueError, match="no engine"), stopped_on_error(router):
        raise ValueError("no engine")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), timeout=10)


def test_without_an_address_there_is_none() -> None:
    config = config_of("")
    assert start_router(config, env_of(config)) is None


@pytest.mark.parametrize(
    "address", ["8900", ":8900", "10.0.0.1:", "10.0.0.1:x", "h:70000", "0.0.0.0:1", "::1:5"]
)
def test_addresses_that_programs_cannot_use_are_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        RolloutConfig(gateway_address=address)
    assert RolloutConfig(gateway_address="node-1:8900").gateway_address == "node-1:8900"


def test_an_address_needs_a_workflow() -> None:
    with pytest.raises(ConfigError, match=r"gateway_address: 'tic_tac_toe-v1' is no workflow"):
        config_of(ANY, "tic_tac_toe-v1")


def test_workflows_may_have_workers_but_no_recording_with_them() -> None:
    config_of("", rollout={"num_workers": 2})
    with pytest.raises(ConfigError, match="one process writes the recording"):
        config_of("", rollout={"num_workers": 2}, inference={"recording": "folder"})
