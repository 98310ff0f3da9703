"""The seam between rollouts and engines: ids in, ids and log-probs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pettingllms.types.messages import Message
from pettingllms.types.parts import Image
from pettingllms.types.rewards import Failed
from pettingllms.types.turns import Finish, Ids, LogProbs, Usage


# Requests and samples travel between processes by the thousand. Those with slots are read back by
# Python code in place of C, which takes twice as long, so these have none.
@dataclass(frozen=True, eq=False)
class SampleRequest:
    """Ask one policy for `num_samples` replies to one prompt."""

    policy: str
    role: str
    prompt_ids: Ids
    num_samples: int
    max_tokens: int
    seed: int
    task_id: str
    """The same task may go to the same replica, for its prefix cache."""
    temperature: float = 1.0
    """Part of the log-probs that come back; 0 is greedy."""
    guide: str | None = None
    """JSON schema that the reply must fit. It narrows what can be sampled, so the log-probs that
    come back are not the policy's own, and nobody may train on the reply."""
    state: object = None
    """The environment's state, for scripted policies alone; an engine is never given it."""
    images: tuple[Image, ...] = ()
    """What the prompt shows, in the order of the places that it has for them."""


class Given(NamedTuple):
    """A reply that was fixed beforehand, for an engine to say how likely it is."""

    prompt_ids: Ids
    response_ids: Ids
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, eq=False)
class Sample:
    """One reply: what was sampled, by which version of the policy."""

    ids: Ids
    logprobs: LogProbs | None
    policy_version: int
    finish: Finish
    usage: Usage | None = None
    """Tokens as a server counts them, where ids are the bytes of a text."""
    limit: str = ""
    """The end of the model, if it cut the reply short of what was asked for."""


@dataclass(frozen=True, slots=True)
class PromptTooLong(Failed):
    """A prompt that leaves the model no room for a reply."""


class Sampler(Protocol):
    """Turns prompt ids into response ids: vLLM, an HTTP server, a script."""

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Give exactly `request.num_samples` results; raise SamplerError if none can be given."""
        ...


class Renderer(Protocol):
    """Turns messages into the ids that a policy sees, and ids back into text."""

    def render(self, messages: Sequence[Message]) -> Ids:
        """Ids of the prompt, ready for a reply."""
        ...

    def decode(self, ids: Ids) -> str:
        """The text that an environment reads."""
        ...

    def ends(self, ids: Ids, text: str) -> Ids | None:
        """Where the part of the text ends that each id stands for; None if it has no such parts."""
        ...
