"""A real vLLM engine replaces the weights of a full model while replies are in progress."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import HERE, run

pytestmark = pytest.mark.engine


def driven(model: Path, folder: Path) -> Any:
    result = folder / "result.json"
    said = run(folder / "log.txt", str(HERE / "drive_in_flight.py"), str(model), str(result))
    print(said[-2000:])
    return json.loads(result.read_text())


def test_replies_continue_with_new_weights(tiny: Path, tmp_path: Path) -> None:
    found = driven(tiny, tmp_path)
    for name in ("kept", "after", "healed"):
        one = found[name]
        assert one["compared"] == one["tokens"], name
        assert max(one["gaps"].values()) < 1e-4, (name, one)
    assert [1, 2] in versions(found["kept"]), "a reply has tokens of both versions"
    assert all(some == [2] for some in versions(found["after"]))
    assert found["scored"] < 1e-4
    assert found["held"], "no reply continues with mixed weights"
    assert "version 9 of 'p' was interrupted" in found["refusal"]
    assert [2, 3] in versions(found["healed"])
    assert not any(9 in some for some in versions(found["healed"]))


def versions(one: Any) -> list[list[int]]:
    """The versions of each reply."""
    return [[version for version, _ in runs] for runs in one["runs"]]
