"""Ray that does not come up is a sentence, and nothing of it is left behind."""

import pytest

ray = pytest.importorskip("ray")

from pettingllms.cluster import start
from pettingllms.config import ClusterConfig
from pettingllms.errors import ClusterError


@pytest.mark.parametrize(
    ("address", "words"),
    [("", "on this machine: Exception: timed out"), ("h:1", r"at h:1 \(cluster.address\): Exc")],
)
def test_ray_that_cannot_be_started_is_said_in_a_sentence(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: object) -> None:
        raise Exception("timed out during startup")  # noqa: TRY002 - as Ray does

    ended: list[bool] = []
    monkeypatch.setattr(start, "_prepare", lambda _: None)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    with (
        pytest.raises(ClusterError, match=f"Ray could not be started {words}.*doctor"),
        start.ray_running(ClusterConfig(address=address)),
    ):
        pytest.fail("there is no Ray")
    assert ended == [True]
