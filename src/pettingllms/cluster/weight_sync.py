"""Weight sync: new weights are sent to the samplers, and a canary verifies that they arrived.

The canary is a fixed reply to a fixed prompt. After each sync, sampler and learner compute its
log-probs: they must agree, and if the learner's changed, the sampler's must have changed too. If
not, the run stops. Changed weights alone are no evidence, because weight decay changes an adapter
without any effect on its output.

Then all policies that the engines serve are scored in one batch: trained ones, frozen ones and
snapshots. This detects an engine that confuses the adapters of a batch.
"""

from dataclasses import dataclass, field

import numpy as np

from pettingllms.cluster.engines import Engines, Published
from pettingllms.cluster.learners import Learners
from pettingllms.cluster.weight_transfer import Streamed, WeightTransfer, transfer_of
from pettingllms.config import RunConfig
from pettingllms.errors import StaleWeightsError
from pettingllms.learners.batches import Item
from pettingllms.policies import ModelGroup
from pettingllms.types import LogProbs


@dataclass(slots=True)
class Publisher:
    """Sends the weights of one model's policies to its engines."""

    learners: Learners
    engines: Engines
    canary: Item
    max_mismatch: float
    method: str
    """Method of an engine that loads new weights."""
    transfer: WeightTransfer | None = None
    """The stream of a full model; None: weights go through files."""
    merged: bool = False
    """Whether engines sample with the adapter merged into its base."""
    frozen: tuple[str, ...] = ()
    """Policies that use the base without an adapter."""
    weight_hashes: dict[str, str] = field(default_factory=dict)
    """Hash of each policy's last published weights."""
    expected: dict[str, LogProbs] = field(default_factory=dict)
    """Expected log-probs of the canary: by the learner at the last sync, by the base, or by the
    policy of a snapshot."""
    answers: dict[str, list[LogProbs]] = field(default_factory=dict)
    """The last log-probs of the canary by each replica."""

    async def publish(self, policy: str, version: int) -> float:
        """Send the learner's weights to all engines; return the remaining mismatch."""
        if self.transfer is not None:
            new = Streamed(version, self.transfer)
            await self.engines.publish(policy, new)
            return await self.check(policy, version, new.weight_hash)
        merged = {"merged": True} if self.merged else {}
        files, weight_hash = await self.learners.files(policy, **merged)
        await self.engines.publish(policy, Published(self.method, version, files))
        return await self.check(policy, version, weight_hash)

    def disconnect(self) -> None:
        """Expect other ranks of the learner at the next stream."""
        if self.transfer is not None:
            self.transfer.disconnect()

    async def check(self, policy: str, version: int, weight_hash: str) -> float:
        """Compare sampler and learner; raise StaleWeightsError if they differ."""
        for versions in await self.engines.versions():
            if versions[policy] != version:
                raise StaleWeightsError(
                    f"an engine serves version {versions[policy]} of '{policy}', but the learner "
                    f"is at {version}: its weights were not published"
                )
        canary = self.canary
        (expected,) = await self.learners.call("logprobs", policy, [canary], 1.0)
        answers = await self.engines.score(policy, canary.given)
        mismatch = max(float(np.abs(answer - expected).mean()) for answer in answers)
        if not mismatch <= self.max_mismatch:
            raise StaleWeightsError(
                f"sampler and learner differ on '{policy}' version {version} by {mismatch:.2g} per "
                f"token, more than {self.max_mismatch:g} (inference.max_mismatch): the sampler has "
                "other weights, or other numerics"
            )
        changed = not np.array_equal(expected, self.expected.get(policy, expected))
        before = self.answers.get(policy, answers)
        if changed and any(np.array_equal(*two) for two in zip(answers, before, strict=True)):
            raise StaleWeightsError(
                f"the learner's log-probs for '{policy}' changed, but the sampler's are identical: "
                f"version {version} was not published"
            )
        self.weight_hashes[policy] = weight_hash
        self.expected[policy], self.answers[policy] = expected, answers
        return mismatch

    async def check_together(self) -> float:
        """Compare all policies that the engines serve in one batch; return the largest mismatch."""
        if self.frozen and self.frozen[0] not in self.expected:
            (base,) = await self.learners.call("base_logprobs", [self.canary])
            self.expected |= dict.fromkeys(self.frozen, base)
        if len(self.expected) < 2:
            return 0.0
        widest = 0.0
        for answers in await self.engines.score_together([*self.expected], self.canary.given):
            for policy, answer in answers.items():
                mismatch = float(np.abs(answer - self.expected[policy]).mean())
                if not mismatch <= self.max_mismatch:
                    raise StaleWeightsError(
                        f"batched with other policies, '{policy}' differs from its own weights by "
                        f"{mismatch:.2g} per token, more than {self.max_mismatch:g} "
                        "(inference.max_mismatch): the sampler confuses the policies of a batch"
                    )
                widest = max(widest, mismatch)
        return widest

    async def add_snapshot(self, name: str, policy: str | None) -> None:
        """Expect the log-probs of the policy of which a snapshot was just taken; if `policy` is
        None, those of the snapshot scored alone."""
        if policy is not None:
            self.expected[name] = self.expected[policy]
        else:
            self.expected[name] = (await self.engines.score(name, self.canary.given))[0]


def publisher_of(
    config: RunConfig, group: ModelGroup, learners: Learners, engines: Engines, canary: Item
) -> Publisher:
    """The publisher of a model, by streams where its engines can take them."""
    return Publisher(
        learners,
        engines,
        canary,
        config.mismatch_bound(),
        group.publish_method,
        transfer_of(config, group, learners),
        group.merged,
        tuple(group.frozen),
    )
