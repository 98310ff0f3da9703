"""One policy in its learner: the values of its turns, and an update with them."""

from collections.abc import Sequence

from pettingllms.cluster.checks import check_mismatch
from pettingllms.cluster.learners import Learners
from pettingllms.config import RunConfig
from pettingllms.learners.batches import turns_of
from pettingllms.learners.deferred import head_batch, units_of
from pettingllms.types import Episode, Turn


def trained_turns(
    config: RunConfig, policy: str, episodes: Sequence[Episode], with_values: bool
) -> list[Turn]:
    """The turns that a policy learns from."""
    options = config.learner
    skip = options.skip_zero or config.rollout.max_resamples > 0
    return turns_of(episodes, policy, skip, with_values, options.mask_truncated)


async def update_policy(
    learners: Learners,
    config: RunConfig,
    policy: str,
    turns: Sequence[Turn],
    version: int,
    step: int,
    num_tokens: int,
) -> dict[str, float]:
    """Train a policy, which has this version, on its turns; return metrics.

    Raise StaleWeightsError if sampler and learner differ; the learner has then made no update."""
    keep, bound = config.log.episodes, config.mismatch_bound()
    batch = units_of(turns, version)
    metrics: dict[str, float] = await learners.call(
        "train", policy, batch, step, keep, num_tokens, bound
    )
    check_mismatch(policy, metrics["mismatch"], bound)
    if keep:
        found = await learners.call("take_logprobs")
        for turn, logprobs in zip(turns, found, strict=True):
            turn.credit.learner_logprobs = logprobs
    return metrics


async def value_turns(learners: Learners, policy: str, turns: Sequence[Turn]) -> None:
    """Write the values of a policy's value head on its turns."""
    if not turns:
        return
    found = await learners.call("values", policy, head_batch(turns))
    for turn, values in zip(turns, found, strict=True):
        turn.credit.values = values
