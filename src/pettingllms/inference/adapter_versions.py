"""The LoRA adapters of a vLLM engine: one current version per policy, older ones while requests
still use them.

vLLM reads an adapter's files again whenever it needs an adapter that it has dropped, and its
processes die if the files are gone. So an old version keeps its files and its place in vLLM until
its last request has ended.
"""

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingllms.policies.files import Files, write_content

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest


@dataclass(slots=True, eq=False)
class AdapterVersion:
    """One version of one policy's adapter, and how many requests use it."""

    request: "LoRARequest"
    num_requests: int = 0


class AdapterVersions:
    """The adapters that an engine serves, by policy."""

    def __init__(self, vllm: Any, folder: Path) -> None:
        self._vllm = vllm
        self._folder = folder
        self._ids = itertools.count(1)
        self._current: dict[str, AdapterVersion] = {}
        self._retired: list[AdapterVersion] = []

    async def load(self, policy: str, version: int, files: Files) -> AdapterVersion:
        """Load new weights, under a name and a number that no earlier version had."""
        from vllm.lora.request import LoRARequest

        number = next(self._ids)
        name = f"{policy}@{version}.{number}"
        folder = write_files(self._folder, name, files)
        new = AdapterVersion(LoRARequest(name, number, str(folder)))
        await self._vllm.add_lora(new.request)
        return new

    def switch(self, policy: str, new: AdapterVersion | None) -> None:
        """Use another version for new requests; None: stop serving the policy."""
        if (old := self._current.pop(policy, None)) is not None:
            self._retired.append(old)
        if new is not None:
            self._current[policy] = new

    @asynccontextmanager
    async def using(self, policy: str) -> AsyncIterator["LoRARequest | None"]:
        """The policy's current version, kept until the request that uses it ends; None: it has no
        adapter."""
        version = self._current.get(policy)
        if version is None:
            yield None
            return
        version.num_requests += 1
        try:
            yield version.request
        finally:
            version.num_requests -= 1
            await self.remove_unused()

    async def remove_unused(self) -> None:
        """Remove old versions that no request uses, and their files."""
        unused = [old for old in self._retired if not old.num_requests]
        self._retired = [old for old in self._retired if old.num_requests]
        for old in unused:
            await self._vllm.remove_lora(old.request.lora_int_id)
            shutil.rmtree(old.request.lora_path, ignore_errors=True)


def write_files(parent: Path, name: str, files: Files) -> Path:
    """A new folder with these files."""
    folder = Path(tempfile.mkdtemp(prefix=name, dir=parent))
    for file, content in files.items():
        write_content(content, folder / file)
    return folder
