"""New weights reach the samplers, and a canary proves that they did.

The canary is a fixed reply to a fixed prompt. After every publication both sides give its
log-probs: they must agree, and if the learner's answer has changed, the sampler's must have changed
as well. A run whose rollouts would use other weights than it trains cannot go on. That the weights
have changed is no sign: decay alone moves an adapter that adds nothing yet.

Then every policy that the engines serve answers in one batch: those that learn, frozen ones and
snapshots. An engine that confuses the adapters of a batch is right as long as each policy is alone.
"""

from dataclasses import dataclass, field

import numpy as np

from pettingllms.cluster.engines import Engines, Published
from pettingllms.cluster.learners import Learners
from pettingllms.errors import StaleWeightsError
from pettingllms.learners.batches import Item
from pettingllms.types import LogProbs


@dataclass(slots=True)
class Publisher:
    """Publishes the policies of one model."""

    learners: Learners
    engines: Engines
    canary: Item
    max_mismatch: float
    method: str
    """What an engine does with new weights."""
    frozen: tuple[str, ...] = ()
    """Policies of the base without an adapter."""
    weight_hashes: dict[str, str] = field(default_factory=dict)
    """Hash of each policy's weights as they were last published."""
    expected: dict[str, LogProbs] = field(default_factory=dict)
    """Log-probs of the canary that each policy should give: by the learner, as of its last
    publication; by the base; by the policy that a snapshot was taken of."""
    answers: dict[str, list[LogProbs]] = field(default_factory=dict)
    """What each replica last said of it."""

    async def publish(self, policy: str, version: int) -> float:
        """Hand the learner's weights to every engine; give the gap that is left between them."""
        files, weight_hash = await self.learners.files(policy)
        await self.engines.publish(policy, Published(self.method, version, files))
        return await self.check(policy, version, weight_hash)

    async def check(self, policy: str, version: int, weight_hash: str) -> float:
        """Compare both sides; raise if the sampler does not have what the learner has."""
        for versions in await self.engines.versions():
            if versions[policy] != version:
                raise StaleWeightsError(
                    f"an engine answers for '{policy}' with version {versions[policy]}, the "
                    f"learner is at {version}: its weights were not published"
                )
        canary = self.canary
        (expected,) = await self.learners.call("logprobs", policy, [canary], 1.0)
        answers = await self.engines.score(policy, canary.given)
        mismatch = max(float(np.abs(answer - expected).mean()) for answer in answers)
        if not mismatch <= self.max_mismatch:
            raise StaleWeightsError(
                f"sampler and learner differ on '{policy}' version {version} by {mismatch:.2g} a "
                "token, "
                f"more than {self.max_mismatch:g} (inference.max_mismatch): the sampler has other "
                "weights, "
                "or computes them otherwise"
            )
        changed = not np.array_equal(expected, self.expected.get(policy, expected))
        before = self.answers.get(policy, answers)
        if changed and any(np.array_equal(*two) for two in zip(answers, before, strict=True)):
            raise StaleWeightsError(
                f"the learner's answer for '{policy}' changed and the sampler's did not, to the "
                f"last bit: version {version} was not published"
            )
        self.weight_hashes[policy] = weight_hash
        self.expected[policy], self.answers[policy] = expected, answers
        return mismatch

    async def check_together(self) -> float:
        """Compare all policies that the engines serve, batched with each other; the widest gap."""
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
                        "(inference.max_mismatch): the "
                        "sampler confuses the policies of a batch"
                    )
                widest = max(widest, mismatch)
        return widest

    async def add_snapshot(self, name: str, policy: str | None) -> None:
        """Expect of a snapshot what the policy says that it was just taken of; if that is not known
        any more, what the engines say of the snapshot alone."""
        if policy is not None:
            self.expected[name] = self.expected[policy]
        else:
            self.expected[name] = (await self.engines.score(name, self.canary.given))[0]
