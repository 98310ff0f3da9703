"""The interface between rollouts and inference engines: token ids in, ids and log-probs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pettingllms.types.messages import Image, Message
from pettingllms.types.rewards import Failed
from pettingllms.types.turns import Finish, Ids, LogProbs, Usage, VersionRun


@dataclass(frozen=True, slots=True)
class Truncation:
    """Which tokens a sampler may choose, after the temperature: the `top_k` likeliest (0: all), and
    of these the likeliest whose probabilities reach `top_p`. The returned log-probs are those of
    the truncated distribution."""

    top_p: float = 1.0
    top_k: int = 0


WHOLE = Truncation()
"""The whole distribution, which training samples from."""


# Requests and samples are sent between processes by the thousand. Unpickling frozen dataclasses
# with slots runs Python code instead of C and takes twice as long, so these have no slots.
@dataclass(frozen=True, eq=False)
class SampleRequest:
    """A request for `num_samples` replies of one policy to one prompt."""

    policy: str
    role: str
    prompt_ids: Ids
    num_samples: int
    max_tokens: int
    seed: int
    task_id: str
    """Requests of one task may be routed to one replica, for its prefix cache."""
    temperature: float = 1.0
    """Sampling temperature, which the returned log-probs include; 0 is greedy."""
    truncation: Truncation = WHOLE
    """Greedy sampling ignores it."""
    guide: str | None = None
    """JSON schema that constrains the reply. The returned log-probs are then not those of the
    policy, so no learner may train on the reply."""
    state: object = None
    """The environment's state, for scripted players only; engines never get it."""
    images: tuple[Image, ...] = ()
    """Images of the prompt, in the order of their placeholders."""


class ScoreRequest(NamedTuple):
    """A request for the log-probs of a given reply."""

    prompt_ids: Ids
    response_ids: Ids
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, eq=False)
class Sample:
    """One sampled reply, with the version of the policy."""

    ids: Ids
    logprobs: LogProbs | None
    policy_version: int
    finish: Finish
    usage: Usage | None = None
    """Token counts of the server, where ids are the bytes of a text."""
    limit: str = ""
    """The context length of the model, if it cut the reply short of `max_tokens`."""
    later_versions: tuple[VersionRun, ...] = ()
    """Versions of the last tokens, if new weights arrived while the reply was sampled. The tokens
    before them have `policy_version`."""


@dataclass(frozen=True, slots=True)
class PromptTooLong(Failed):
    """The prompt leaves no room for a reply in the context of the model."""


class PromptRefused(Failed):
    """The server rejects the prompt, or cuts its reply, for what the prompt contains."""


class Sampler(Protocol):
    """Turns prompt ids into response ids: vLLM, an HTTP server, a scripted player."""

    async def sample(self, request: SampleRequest) -> Sequence[Sample | Failed]:
        """Return exactly `request.num_samples` results; raise SamplerError if that is
        impossible."""
        ...


class Renderer(Protocol):
    """Turns messages into prompt ids, and response ids into text."""

    def render(self, messages: Sequence[Message]) -> Ids:
        """Token ids of the prompt, including the header of the reply."""
        ...

    def decode(self, ids: Ids) -> str:
        """The text of a reply, which the environment reads."""
        ...

    def ends(self, ids: Ids, text: str) -> Ids | None:
        """End offset in the text of each token; None if unknown."""
        ...
