"""Turns: one reply of one role, the credit it gets, and its place in the episode tree.

What was sampled is frozen. Rollouts, algorithms, critics and learners write only to the two small
records attached to it, so no stage can change the tokens that a policy is trained on.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pettingllms.types.messages import Image, Message, images_of
from pettingllms.types.rewards import Failed

Ids = npt.NDArray[np.int32]
"""Token ids."""
LogProbs = npt.NDArray[np.float32]
"""Log-probabilities, one per token id."""
Values = npt.NDArray[np.float32]
"""Numbers of a turn: one per token id, or one more."""
Finish = Literal["stop", "length"]
"""Why sampling ended: a stop token, or the token limit."""


class VersionRun(NamedTuple):
    """Consecutive tokens of a reply that one version of a policy sampled."""

    version: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as reported by the server that sampled a reply."""

    prompt: int
    reply: int


@dataclass(slots=True, eq=False)
class Credit:
    """What credit assignment attaches to a turn: an advantage and value targets, or a failure."""

    failure: Failed | None = None
    """Why the turn is excluded from training and from baselines; None if it is not."""
    advantage: float | None = None
    """Written by an algorithm; None if no learner trains on the turn."""
    advantages: Values | None = None
    """Advantage of each token, from algorithms that compute them; `advantage` is their mean."""
    values: Values | None = None
    """A critic's value at the end of the prompt, then after each response token."""
    counterfactual_value: float | None = None
    """A mixing critic's value of the team, given all replies of the step except this one."""
    returns: Values | None = None
    """Value targets, written by an algorithm: as long as `values`, NaN where not trained."""
    learner_logprobs: LogProbs | None = None
    """Log-probability of each response token under the learner, before it trained on the turn; None
    if it was not computed."""


@dataclass(slots=True, eq=False)
class TreeLinks:
    """Where a turn lies in the episode's tree of steps."""

    step: int | None = None
    """Index of the step that the reply entered; None if it never reached the environment."""
    last: int | None = None
    """Index of the last step whose rewards count toward the return of this reply."""
    branch: int | None = None
    """Index among the sibling replies of one decision; None if the reply was sampled alone."""
    extends: int | None = None
    """Index of the earlier turn whose prompt and response ids are a prefix of this prompt, where a
    workflow continued a conversation; None if the whole prompt was rendered anew."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One sampled reply of one role. Token ids are the truth; text is a view of them."""

    role: str
    policy: str
    messages: tuple[Message, ...]
    """The observation of the role, as chat messages."""
    prompt_ids: Ids
    """Token ids of the prompt."""
    response_ids: Ids
    """Sampled token ids. They are never tokenized again."""
    logprobs: LogProbs | None
    """Log-probability of each response token under the sampler; None if it reports none."""
    text: str
    """The decoded reply, which the environment reads."""
    policy_version: int | None
    """Version of the policy that sampled the reply, the oldest one if its tokens have several; None
    if no policy did."""
    finish: Finish = "stop"
    ends: Ids | None = None
    """End offset in `text` of each response token; None if unknown."""
    usage: Usage | None = None
    """Token counts of the server, where ids are the bytes of a text; None if it reports none."""
    guided: bool = False
    """Whether a schema constrained sampling. No learner trains on such turns."""
    limit: str = ""
    """The limit that cut the reply short: the context length of the model. A reply that reached
    rollout.max_reply_tokens is not cut in this sense: the environment reads it."""
    centralized_ids: Ids | None = None
    """Prompt of a centralized critic in place of `prompt_ids`, if there is one."""
    centralized_images: tuple[Image, ...] = ()
    """Images of that prompt."""
    later_versions: tuple[VersionRun, ...] = ()
    """Versions of the last tokens, if new weights arrived while the reply was sampled. The tokens
    before them have `policy_version`."""
    credit: Credit = field(default_factory=Credit)
    links: TreeLinks = field(default_factory=TreeLinks)

    @property
    def num_tokens(self) -> int:
        """Number of sampled tokens."""
        return len(self.response_ids) if self.usage is None else self.usage.reply

    @property
    def num_prompt_tokens(self) -> int:
        """Number of prompt tokens."""
        return len(self.prompt_ids) if self.usage is None else self.usage.prompt

    @property
    def version_runs(self) -> tuple[VersionRun, ...]:
        """The versions of all tokens, oldest first; empty if no policy sampled them."""
        if self.policy_version is None:
            return ()
        num_first = self.num_tokens - sum(run.num_tokens for run in self.later_versions)
        return VersionRun(self.policy_version, num_first), *self.later_versions

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the prompt."""
        return images_of(self.messages)

    @property
    def has_logprobs(self) -> bool:
        """Whether the sampler reported log-probs."""
        return self.logprobs is not None

    def total_logprob(self) -> float:
        """Log-prob of the whole reply; 0 without log-probs."""
        return 0.0 if self.logprobs is None else float(self.logprobs.sum(dtype=float))

    def repetition(self) -> float:
        """Share of 4-grams of tokens that are repeated within the reply; 0 for a short reply."""
        return repetition(self.response_ids)

    def prompt_key(self) -> Hashable:
        """Equal for turns with the same prompt ids and the same images."""
        return self.prompt_ids.tobytes(), tuple(image.digest for image in self.images)

    def reply_key(self) -> Hashable:
        """Equal for turns with the same text, apart from spaces around it."""
        return self.text.strip()


NGRAM = 4
"""Length of the n-grams whose repetition is measured (rep-4 of Welleck et al., 2020)."""
MIN_TOKENS = 32
"""Minimum number of tokens of a reply whose repetition is measured."""


def repetition(ids: Ids) -> float:
    """Share of 4-grams of tokens that are repeated within a reply; 0 for a short reply."""
    if len(ids) < MIN_TOKENS:
        return 0.0
    tokens = ids.tolist()
    grams = [tuple(tokens[at : at + NGRAM]) for at in range(len(tokens) - NGRAM + 1)]
    return 1 - len(set(grams)) / len(grams)
