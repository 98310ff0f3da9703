"""Frozen snapshots on the engines of a run: other names under which a model answers.

A snapshot of an adapter is one more adapter over the base that is there already. A snapshot of a
whole model is a copy of it, which only the small engine holds beside the one that is trained.
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
from pettingllms.policies.files import Files


@dataclass(slots=True)
class SnapshotSamplers:
    """The snapshots that a team can sit down, by name."""

    group_of: Callable[[str], ModelGroup]
    engines: Mapping[str, Engines]
    learners: Mapping[str, Learners]
    publishers: Mapping[str, Publisher]
    weight_hashes: dict[str, str]
    """Hash of the weights of each, among those of a team's policies."""
    sources: dict[str, str] = field(default_factory=dict)
    """The policy that each is a snapshot of."""
    _files: dict[str, Any] = field(default_factory=dict)
    """Their weights, in memory or in Ray's store."""

    async def take(self, name: str, policy: str, version: int) -> str:
        """Freeze a policy as it is now; the hash of its weights."""
        group = self.group_of(policy)
        files, weight_hash = await self.learners[group.name].files(policy)
        await self._serve(name, policy, version, weight_hash, files)
        publisher = self.publishers[group.name]
        said = await self.engines[group.name].score(name, publisher.canary.given)
        for one, other in zip(said, publisher.answers[policy], strict=True):
            mismatch = float(np.abs(one - other).mean())
            if not mismatch <= publisher.max_mismatch:
                raise StaleWeightsError(
                    f"snapshot {name} differs from '{policy}', of which it was taken, by "
                    f"{mismatch:.2g} "
                    "a token: the engine answers for it with other weights"
                )
        await publisher.add_snapshot(name, policy)
        await publisher.check_together()
        return weight_hash

    async def load(
        self, name: str, policy: str, version: int, weight_hash: str, files: Files | None
    ) -> None:
        """Serve a snapshot of a checkpoint."""
        if files is None:
            raise CheckpointError(f"the checkpoint's league names {name} and has no weights for it")
        await self._serve(name, policy, version, weight_hash, dict(files))
        if (publisher := self.publishers.get(self.group_of(policy).name)) is not None:
            await publisher.add_snapshot(name, None)

    async def drop(self, name: str) -> None:
        """Let go of a snapshot."""
        group = self.group_of(self.sources.pop(name)).name
        await self.engines[group].drop(name)
        if group in self.publishers:
            del self.publishers[group].expected[name]
        del self._files[name], self.weight_hashes[name]

    async def files(self, name: str) -> dict[str, bytes]:
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
