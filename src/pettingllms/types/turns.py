"""Turns: one reply of one role, the credit it gets, and its place in the episode tree.

What was sampled is frozen. Rollouts, algorithms, critics and learners write only to the two small
records attached to it, so no stage can change the tokens that a policy is trained on.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

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
    """Version of the policy that sampled the reply; None if no policy did."""
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

    def prompt_key(self) -> Hashable:
        """Equal for turns with the same prompt ids and the same images."""
        images = tuple(image.digest for image in images_of(self.messages))
        return self.prompt_ids.tobytes(), images
