"""Frozen snapshots that the engines of a run serve under additional names.

A snapshot of an adapter is one more adapter on the shared base. A snapshot of a full model is a
copy of it, which only the torch engine can serve beside the current model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pettingllms.cluster.engines import Engines, Published
from pettingllms.cluster.learners import Learners
from pettingllms.cluster.weight_sync import Publisher
from pettingllms.errors import CheckpointError, StaleWeightsError
from pettingllms.policies import ModelGroup
from pettingllms.policies.files import Files, read_content


@dataclass(slots=True)
class SnapshotSamplers:
    """The snapshots of a team, by name."""

    group_of: Callable[[str], ModelGroup]
    engines: Mapping[str, Engines]
    learners: Mapping[str, Learners]
    publishers: Mapping[str, Publisher]
    weight_hashes: dict[str, str]
    """Weight hashes of the team's policies and snapshots."""
    sources: dict[str, str] = field(default_factory=dict)
    """The policy of each snapshot."""
    _files: dict[str, Any] = field(default_factory=dict)
    """Weights of snapshots, in memory, in temporary files, or in Ray's object store."""

    async def take(self, name: str, policy: str, version: int) -> str:
        """Take a snapshot of a policy's current weights; return their hash."""
        group = self.group_of(policy)
        files, weight_hash = await self.learners[group.name].files(policy)
        await self._serve(name, policy, version, weight_hash, files)
        publisher = self.publishers[group.name]
        answers = await self.engines[group.name].score(name, publisher.canary.given)
        for one, other in zip(answers, publisher.answers[policy], strict=True):
            mismatch = float(np.abs(one - other).mean())
            if not mismatch <= publisher.max_mismatch:
                raise StaleWeightsError(
                    f"snapshot {name} differs from '{policy}' by {mismatch:.2g} per token: the "
                    "engine serves it with other weights"
                )
        await publisher.add_snapshot(name, policy)
        await publisher.check_together()
        return weight_hash

    async def load(
        self, name: str, policy: str, version: int, weight_hash: str, files: Files | None
    ) -> None:
        """Serve a snapshot of a checkpoint."""
        if files is None:
            raise CheckpointError(f"the checkpoint lists snapshot {name} but has no weights for it")
        # In memory, because the checkpoint may be deleted before an engine restarts.
        content = {file: read_content(content) for file, content in files.items()}
        await self._serve(name, policy, version, weight_hash, content)
        if (publisher := self.publishers.get(self.group_of(policy).name)) is not None:
            await publisher.add_snapshot(name, None)

    async def drop(self, name: str) -> None:
        """Remove a snapshot."""
        group = self.group_of(self.sources.pop(name)).name
        await self.engines[group].drop(name)
        if group in self.publishers:
            self.publishers[group].expected.pop(name, None)  # absent if it was never checked
        del self._files[name], self.weight_hashes[name]

    async def files(self, name: str) -> Files:
        """The weights of a snapshot, as files."""
        files = self._files[name]
        return files if isinstance(files, dict) else dict(await files)

    async def _serve(
        self, name: str, policy: str, version: int, weight_hash: str, files: Any
    ) -> None:
        group = self.group_of(policy)
        new = Published(group.snapshot_method, version, files)
        await self.engines[group.name].publish(name, new)
        self.sources[name], self._files[name], self.weight_hashes[name] = policy, files, weight_hash
