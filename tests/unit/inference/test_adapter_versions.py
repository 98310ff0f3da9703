"""Old versions of adapters stay until no request uses them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from pettingllms.inference.adapter_versions import AdapterVersions


class Loras:
    """vLLM's part: the adapters that it was told to hold."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    async def add_lora(self, request: Any) -> None:
        self.ids.append(request.lora_int_id)

    async def remove_lora(self, number: int) -> None:
        await asyncio.sleep(0)
        self.ids.remove(number)


async def publish(versions: AdapterVersions, version: int) -> None:
    versions.switch("p", await versions.load("p", version, {"weights": b"%d" % version}))
    await versions.remove_unused()


def folders(path: Path) -> list[str]:
    return sorted(folder.joinpath("weights").read_text() for folder in path.iterdir())


def test_a_version_is_removed_with_its_last_request(tmp_path: Path) -> None:
    async def go() -> None:
        vllm = Loras()
        versions = AdapterVersions(vllm, tmp_path)
        await publish(versions, 1)
        async with versions.using("p") as first:
            async with versions.using("p") as same:
                assert first is same
                await publish(versions, 2)
                await publish(versions, 3)
                assert vllm.ids == [1, 3], "nobody used version 2"
                assert folders(tmp_path) == ["1", "3"]
            assert vllm.ids == [1, 3], "one request still uses version 1"
            async with versions.using("p") as now:
                assert now is not None
                assert now.lora_name.startswith("p@3")
        assert vllm.ids == [3]
        assert folders(tmp_path) == ["3"]

    asyncio.run(go())


def test_so_is_one_whose_policy_was_dropped_and_whose_request_was_cancelled(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        vllm = Loras()
        versions = AdapterVersions(vllm, tmp_path)
        await publish(versions, 1)

        async def ask() -> None:
            async with versions.using("p"):
                await asyncio.sleep(3600)

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        versions.switch("p", None)
        await versions.remove_unused()
        assert vllm.ids == [1]
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert vllm.ids == []
        assert folders(tmp_path) == []
        async with versions.using("p") as none:
            assert none is None

    asyncio.run(go())
