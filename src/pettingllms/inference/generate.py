"""Replies of a Transformers model to many prompts at once, in lockstep.

Made for models of a few million parameters, where the arithmetic is cheap and everything around it
is not. Prompts that are alike are read once, and so is what all prompts begin with. Every reply has
a source of chance of its own, so what is in a batch beside it does not change it.

N replies under way, L their prompts' padded length, V vocabulary.
"""

# ruff: noqa: N803, N806

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pettingllms.errors import SamplerError
from pettingllms.inference.seeing import Prompt, read_seen
from pettingllms.policies.eyes import Eyes
from pettingllms.types import Given, Ids, LogProbs, SampleRequest
from pettingllms.types.episodes import Finish


@dataclass(slots=True)
class Reply:
    """One reply under way."""

    prompt: int
    """Which of the prompts it answers."""
    chances: np.ndarray[Any, np.dtype[np.float64]]
    """One uniform number for each of its tokens."""
    temperature: float
    ids: list[int]
    logprobs: list[float]
    finish: Finish = "length"


@torch.inference_mode()
def refuse_what_is_computed_otherwise(lm: Any) -> None:
    """Refuse models that padding inside the cache would change, or that do more to their logits
    than the last layer does."""
    kind, advice = lm.config.model_type, 'set inference.engine = "vllm", or take another model'
    layers = DynamicCache(config=lm.config).layers
    if not all(type(layer) is DynamicLayer for layer in layers):
        raise SamplerError(
            f"{kind} models do not keep every token in their cache (sliding windows, or a state), "
            f"which this engine counts on; {advice}"
        )
    ids_1L = torch.tensor([[1, 2, 3]])
    ours = lm.get_output_embeddings()(lm.get_decoder()(input_ids=ids_1L).last_hidden_state)
    if not torch.allclose(ours.float(), lm(input_ids=ids_1L).logits.float(), atol=1e-3):
        raise SamplerError(
            f"{kind} models change their logits after the last layer, which this engine does not "
            f"do; {advice}"
        )


@torch.inference_mode()
def generate(
    lm: Any,
    requests: Sequence[SampleRequest],
    stop_ids: Sequence[int],
    eyes: Eyes | None = None,
) -> list[list[tuple[Ids, LogProbs, Finish]]]:
    """For each request its replies, with log-probs at its temperature."""
    prompts: dict[tuple[bytes, ...], Prompt] = {}
    places: dict[tuple[bytes, ...], int] = {}
    replies: list[list[Reply]] = []
    for request in requests:
        asked = Prompt(request.prompt_ids, request.images)
        prompts.setdefault(asked.key, asked)
        prompt = places.setdefault(asked.key, len(places))
        shape = (request.num_samples, request.max_tokens)
        chances = np.random.default_rng(request.seed).random(shape)
        replies.append([Reply(prompt, row, request.temperature, [], []) for row in chances])
    under_way = [reply for some in replies for reply in some]
    batch = Batch(lm, eyes, list(prompts.values()), under_way)
    while under_way:
        under_way = batch.step(frozenset(stop_ids))
    return [[_result(reply) for reply in some] for some in replies]


class Batch:
    """Replies that grow by a token a step, and the cache behind them."""

    def __init__(
        self, lm: Any, eyes: Eyes | None, prompts: Sequence[Prompt], replies: list[Reply]
    ) -> None:
        self._lm = lm
        self._replies = replies
        self._cache: Any = DynamicCache(config=lm.config)
        if any(prompt.images for prompt in prompts):
            hidden_UH, mask_UL, next_U = read_seen(lm, eyes, prompts, self._cache)
        else:
            hidden_UH, mask_UL, next_U = self._read([prompt.ids for prompt in prompts])
        of_N = torch.tensor([reply.prompt for reply in replies])
        self._logits_NV, self._mask_NL = self._logits(hidden_UH)[of_N], mask_UL[of_N]
        self._cache.batch_select_indices(of_N)
        self._at_N = next_U[of_N]

    def step(self, stop_ids: frozenset[int]) -> list[Reply]:
        """Give every reply its next token; those that are not done yet."""
        chosen_N = self._choose(stop_ids)
        going = [
            at
            for at, reply in enumerate(self._replies)
            if reply.finish == "length" and len(reply.ids) < len(reply.chances)
        ]
        if len(going) < len(self._replies):
            self._keep(torch.tensor(going, dtype=torch.long))
            chosen_N = chosen_N[going]
            self._replies = [self._replies[at] for at in going]
        if self._replies:
            one_N1 = torch.ones((len(going), 1), dtype=torch.long)
            self._mask_NL = torch.cat([self._mask_NL, one_N1], dim=1)
            hidden_N1H = self._forward(chosen_N[:, None], self._mask_NL, self._at_N[:, None])
            self._logits_NV = self._logits(hidden_N1H[:, 0])
            self._at_N = self._at_N + 1
        return self._replies

    def _keep(self, rows: Tensor) -> None:
        self._mask_NL, self._at_N = self._mask_NL[rows], self._at_N[rows]
        if len(rows):
            self._cache.batch_select_indices(rows)

    def _choose(self, stop_ids: frozenset[int]) -> Tensor:
        """Sample by the inverse of the cumulative distribution, at each reply's temperature."""
        heat_N1 = torch.tensor([[reply.temperature or 1.0] for reply in self._replies])
        logp_NV = torch.log_softmax(self._logits_NV.float() / heat_N1, dim=-1)
        sum_NV = logp_NV.double().exp().cumsum(dim=-1)
        chances = [reply.chances[len(reply.ids)] for reply in self._replies]
        point_N1 = torch.tensor(chances, dtype=torch.double)[:, None] * sum_NV[:, -1:]
        drawn_N = torch.searchsorted(sum_NV, point_N1, right=True)[:, 0]
        greedy_N = torch.tensor([reply.temperature == 0 for reply in self._replies])
        chosen_N = torch.where(greedy_N, logp_NV.argmax(-1), drawn_N.clamp(max=sum_NV.shape[1] - 1))
        logp_N = logp_NV.gather(1, chosen_N[:, None])[:, 0]
        pairs = zip(chosen_N.tolist(), logp_N.tolist(), strict=True)
        for reply, (token, logprob) in zip(self._replies, pairs, strict=True):
            reply.ids.append(token)
            reply.logprobs.append(logprob)
            if token in stop_ids:
                reply.finish = "stop"
        return chosen_N

    def _read(self, prompts: Sequence[Ids]) -> tuple[Tensor, Tensor, Tensor]:
        """Fill the cache; what the model has in mind after each prompt, which places of the cache
        count, and the position of what comes next.

        Prompts are padded on the right: the holes that this leaves are masked, and positions are
        given, so a hole is never seen.
        """
        shared = _shared_length(prompts)
        if shared:
            head_1L = torch.from_numpy(prompts[0][:shared].astype(np.int64))[None]
            self._forward(head_1L, torch.ones_like(head_1L), torch.arange(shared)[None])
            self._cache.batch_repeat_interleave(len(prompts))
        longest = max(len(prompt) for prompt in prompts) - shared
        ids_UL = torch.zeros((len(prompts), longest), dtype=torch.long)
        mask_UL = torch.ones((len(prompts), shared + longest), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids_UL[row, : len(prompt) - shared] = torch.from_numpy(prompt[shared:].astype(np.int64))
            mask_UL[row, len(prompt) :] = 0
        at_UL = torch.arange(shared, shared + longest).expand(len(prompts), -1)
        hidden_ULH = self._forward(ids_UL, mask_UL, at_UL)
        next_U = torch.tensor([len(prompt) for prompt in prompts])
        return hidden_ULH[torch.arange(len(prompts)), next_U - shared - 1], mask_UL, next_U

    def _forward(self, ids_NL: Tensor, mask_NL: Tensor, at_NL: Tensor) -> Tensor:
        output = self._lm.get_decoder()(
            input_ids=ids_NL,
            attention_mask=mask_NL,
            position_ids=at_NL,
            past_key_values=self._cache,
            use_cache=True,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _logits(self, hidden_NH: Tensor) -> Tensor:
        logits: Tensor = self._lm.get_output_embeddings()(hidden_NH)
        return logits


@torch.inference_mode()
def logprobs_of(lm: Any, given: Sequence[Given], eyes: Eyes | None = None) -> list[LogProbs]:
    """Log-probs, at temperature 1, of replies that were fixed beforehand, each to its prompt.

    They are padded on the right, where no token of a causal model looks.
    """
    if any(one.images for one in given):
        return [_logprobs_seen(lm, one, eyes) for one in given]
    longest = max(len(one.prompt_ids) + len(one.response_ids) for one in given)
    ids_NL = torch.zeros((len(given), longest), dtype=torch.long)
    for row, one in enumerate(given):
        ids = torch.from_numpy(np.concatenate(one[:2]).astype(np.int64))
        ids_NL[row, : len(ids)] = ids
    hidden_NLH = lm.get_decoder()(input_ids=ids_NL, use_cache=False).last_hidden_state
    found: list[LogProbs] = []
    for row, one in enumerate(given):
        start, end = len(one.prompt_ids), len(one.prompt_ids) + len(one.response_ids)
        logits_TV = lm.get_output_embeddings()(hidden_NLH[row, start - 1 : end - 1])
        logp_TV = torch.log_softmax(logits_TV.float(), dim=-1)
        found.append(logp_TV.gather(1, ids_NL[row, start:end, None])[:, 0].numpy())
    return found


def _logprobs_seen(lm: Any, given: Given, eyes: Eyes | None) -> LogProbs:
    """The same for a prompt that may show images: it is read first, and the reply behind it."""
    if not given.images:
        return logprobs_of(lm, [given])[0]
    cache = DynamicCache(config=lm.config)
    prompt = Prompt(given.prompt_ids, given.images)
    hidden_1H, _, next_1 = read_seen(lm, eyes, [prompt], cache)
    ids_T = torch.from_numpy(given.response_ids.astype(np.int64))
    hidden_TH = hidden_1H
    if len(ids_T) > 1:
        at_1T = next_1[:, None] + torch.arange(len(ids_T) - 1)
        later = lm.get_decoder()(
            input_ids=ids_T[None, :-1], position_ids=at_1T, past_key_values=cache, use_cache=True
        )
        hidden_TH = torch.cat([hidden_1H, later.last_hidden_state[0]])
    logp_TV = torch.log_softmax(lm.get_output_embeddings()(hidden_TH).float(), dim=-1)
    found: LogProbs = logp_TV.gather(1, ids_T[:, None])[:, 0].numpy()
    return found


def _shared_length(prompts: Sequence[Ids]) -> int:
    """How many ids all prompts begin with, one left over so that each has a last one to read."""
    shortest = min(len(prompt) for prompt in prompts) - 1
    if len(prompts) == 1 or shortest < 1:
        return 0
    rows = np.stack([prompt[:shortest] for prompt in prompts])
    differs = (rows != rows[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else shortest


def _result(reply: Reply) -> tuple[Ids, LogProbs, Finish]:
    logprobs = np.array(reply.logprobs, dtype=np.float32)
    return np.array(reply.ids, dtype=np.int32), logprobs, reply.finish
