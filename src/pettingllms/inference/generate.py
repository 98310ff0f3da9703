"""Batched generation with a Transformers model, all replies in lockstep.

It is made for models of a few million parameters, where arithmetic is cheap compared with overhead.
Equal prompts are computed once, and so is the prefix that all prompts share. Every reply has its
own random numbers, so the rest of the batch does not change it.

N active replies, L padded length of their prompts, V vocabulary.
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
from pettingllms.inference.image_prompts import Prompt, prefill_images
from pettingllms.types import Ids, LogProbs, SampleRequest, ScoreRequest
from pettingllms.types.sampling import WHOLE, Truncation
from pettingllms.types.turns import Finish
from pettingllms.vision.processor import ImageProcessor


@dataclass(slots=True)
class Reply:
    """One active reply."""

    prompt: int
    """Index of its prompt."""
    chances: np.ndarray[Any, np.dtype[np.float64]]
    """One uniform random number per token."""
    temperature: float
    truncation: Truncation
    ids: list[int]
    logprobs: list[float]
    finish: Finish = "length"


@torch.inference_mode()
def require_supported(lm: Any) -> None:
    """Reject models for which padding in the cache changes results, or that change their logits
    after the output layer."""
    kind, advice = lm.config.model_type, 'set inference.engine = "vllm", or use another model'
    layers = DynamicCache(config=lm.config).layers
    if not all(type(layer) is DynamicLayer for layer in layers):
        raise SamplerError(
            f"{kind} models do not keep every token in their cache (sliding windows or recurrent "
            f"states), which this engine needs; {advice}"
        )
    ids_1L = torch.tensor([[1, 2, 3]])
    ours = lm.get_output_embeddings()(lm.get_decoder()(input_ids=ids_1L).last_hidden_state)
    if not torch.allclose(ours.float(), lm(input_ids=ids_1L).logits.float(), atol=1e-3):
        raise SamplerError(
            f"{kind} models change their logits after the last layer, which this engine does not "
            f"support; {advice}"
        )


@torch.inference_mode()
def generate(
    lm: Any,
    requests: Sequence[SampleRequest],
    stop_ids: Sequence[int],
    image_processor: ImageProcessor | None = None,
) -> list[list[tuple[Ids, LogProbs, Finish]]]:
    """The replies to each request, with log-probs at its temperature."""
    prompts, places = _distinct([Prompt(r.prompt_ids, r.images) for r in requests])
    replies: list[list[Reply]] = []
    for request, place in zip(requests, places, strict=True):
        shape = (request.num_samples, request.max_tokens)
        chances = np.random.default_rng(request.seed).random(shape)
        replies.append([_reply(request, place, row) for row in chances])
    under_way = [reply for some in replies for reply in some]
    batch = Batch(lm, image_processor, prompts, under_way)
    while under_way:
        under_way = batch.step(frozenset(stop_ids))
    return [[_result(reply) for reply in some] for some in replies]


def _reply(request: SampleRequest, prompt: int, chances: Any) -> Reply:
    truncation = request.truncation if request.temperature else WHOLE
    return Reply(prompt, chances, request.temperature, truncation, [], [])


class Batch:
    """Replies that grow by one token per step, and their cache."""

    def __init__(
        self,
        lm: Any,
        image_processor: ImageProcessor | None,
        prompts: Sequence[Prompt],
        replies: list[Reply],
    ) -> None:
        self._lm = lm
        self._replies = replies
        self._cache: Any = DynamicCache(config=lm.config)
        hidden_UH, mask_UL, next_U = _prefill(lm, image_processor, prompts, self._cache)
        of_N = torch.tensor([reply.prompt for reply in replies])
        self._logits_NV, self._mask_NL = _logits(lm, hidden_UH)[of_N], mask_UL[of_N]
        self._cache.batch_select_indices(of_N)
        self._at_N = next_U[of_N]

    def step(self, stop_ids: frozenset[int]) -> list[Reply]:
        """Sample the next token of every reply; the replies that are not finished."""
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
            hidden_N1H = _forward(
                self._lm, self._cache, chosen_N[:, None], self._mask_NL, self._at_N[:, None]
            )
            self._logits_NV = _logits(self._lm, hidden_N1H[:, 0])
            self._at_N = self._at_N + 1
        return self._replies

    def _keep(self, rows: Tensor) -> None:
        self._mask_NL, self._at_N = self._mask_NL[rows], self._at_N[rows]
        if len(rows):
            self._cache.batch_select_indices(rows)

    def _choose(self, stop_ids: frozenset[int]) -> Tensor:
        """Sample by the inverse of the cumulative distribution, at each reply's temperature."""
        heat_N1 = torch.tensor([[reply.temperature or 1.0] for reply in self._replies])
        limits = [reply.truncation for reply in self._replies]
        logits_NV = truncated(self._logits_NV.float() / heat_N1, limits)
        logp_NV = torch.log_softmax(logits_NV, dim=-1)
        sum_NV = logp_NV.double().exp().cumsum(dim=-1)
        chances = [reply.chances[len(reply.ids)] for reply in self._replies]
        point_N1 = torch.tensor(chances, dtype=torch.double)[:, None] * sum_NV[:, -1:]
        point_N1 = point_N1.minimum(sum_NV[:, -1:].nextafter(torch.zeros(1, dtype=torch.double)))
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


def truncated(logits_NV: Tensor, limits: Sequence[Truncation]) -> Tensor:
    """The logits, with -inf for tokens that each reply's truncation excludes.

    As in vLLM: first top-k, which keeps ties of the last token, then top-p among the tokens that
    remain, which keeps at least one.
    """
    places = [at for at, limit in enumerate(limits) if limit != WHOLE]
    if not places:
        return logits_NV
    size = logits_NV.shape[1]
    k_R = torch.tensor([min(limits[at].top_k or size, size) for at in places])
    p_R1 = torch.tensor([[limits[at].top_p] for at in places], dtype=torch.double)
    sorted_RV, ids_RV = logits_NV[places].sort(dim=-1)
    least_R1 = sorted_RV.gather(1, (size - k_R)[:, None])
    sorted_RV = sorted_RV.masked_fill(sorted_RV < least_R1, -torch.inf)
    below_RV = sorted_RV.double().softmax(dim=-1).cumsum(dim=-1) <= 1 - p_R1
    below_RV[:, -1] = False
    below_RV &= p_R1 < 1
    kept_RV = sorted_RV.masked_fill(below_RV, -torch.inf)
    found_NV = logits_NV.clone()
    found_NV[places] = torch.empty_like(kept_RV).scatter(1, ids_RV, kept_RV)
    return found_NV


@torch.inference_mode()
def logprobs_of(
    lm: Any,
    given: Sequence[ScoreRequest],
    image_processor: ImageProcessor | None = None,
    temperature: float = 1.0,
) -> list[LogProbs]:
    """Log-probs of fixed replies at a temperature.

    At temperature 0 they are relative to the likeliest token, which has 0. Replies are padded on
    the right, where causal attention ignores padding.
    """
    prompts, places = _distinct([Prompt(one.prompt_ids, one.images) for one in given])
    cache = DynamicCache(config=lm.config)
    hidden_UH, mask_UL, next_U = _prefill(lm, image_processor, prompts, cache)
    of_N = torch.tensor(places)
    hidden_NTH = hidden_UH[of_N][:, None]
    longest = max(len(one.response_ids) for one in given)
    ids_NT = torch.zeros((len(given), longest), dtype=torch.long)
    for row, one in enumerate(given):
        ids_NT[row, : len(one.response_ids)] = torch.from_numpy(one.response_ids.astype(np.int64))
    if longest > 1:
        behind_NT = ids_NT[:, :-1]
        cache.batch_select_indices(of_N)
        mask_NL = torch.cat([mask_UL[of_N], torch.ones_like(behind_NT)], dim=1)
        at_NT = next_U[of_N][:, None] + torch.arange(behind_NT.shape[1])
        later_NTH = _forward(lm, cache, behind_NT, mask_NL, at_NT)
        hidden_NTH = torch.cat([hidden_NTH, later_NTH], dim=1)
    found: list[LogProbs] = []
    for row, one in enumerate(given):
        end = len(one.response_ids)
        logits_TV = _logits(lm, hidden_NTH[row, :end]).float() / (temperature or 1.0)
        logp_TV = torch.log_softmax(logits_TV, dim=-1)
        logp_T = logp_TV.gather(1, ids_NT[row, :end, None])[:, 0]
        found.append((logp_T if temperature else logp_T - logp_TV.amax(-1)).numpy())
    return found


def _distinct(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[int]]:
    """The distinct prompts, and the index of each given prompt among them."""
    distinct = {prompt.key: prompt for prompt in prompts}
    places = {key: place for place, key in enumerate(distinct)}
    return [*distinct.values()], [places[prompt.key] for prompt in prompts]


def _prefill(
    lm: Any, image_processor: ImageProcessor | None, prompts: Sequence[Prompt], cache: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Prefill the cache; the last hidden state of each prompt, the attention mask of the cache, and
    the next position.

    Prompts are padded on the right. The padding is masked and positions are explicit, so padding
    has no effect.
    """
    if any(prompt.images for prompt in prompts):
        return prefill_images(lm, image_processor, prompts, cache)
    rows = [prompt.ids for prompt in prompts]
    shared = _shared_length(rows)
    if shared:
        head_1L = torch.from_numpy(rows[0][:shared].astype(np.int64))[None]
        _forward(lm, cache, head_1L, torch.ones_like(head_1L), torch.arange(shared)[None])
        cache.batch_repeat_interleave(len(rows))
    longest = max(map(len, rows)) - shared
    ids_UL = torch.zeros((len(rows), longest), dtype=torch.long)
    mask_UL = torch.ones((len(rows), shared + longest), dtype=torch.long)
    for at, ids in enumerate(rows):
        ids_UL[at, : len(ids) - shared] = torch.from_numpy(ids[shared:].astype(np.int64))
        mask_UL[at, len(ids) :] = 0
    at_UL = torch.arange(shared, shared + longest).expand(len(rows), -1)
    hidden_ULH = _forward(lm, cache, ids_UL, mask_UL, at_UL)
    next_U = torch.tensor([len(ids) for ids in rows])
    return hidden_ULH[torch.arange(len(rows)), next_U - shared - 1], mask_UL, next_U


def _forward(lm: Any, cache: Any, ids_NL: Tensor, mask_NL: Tensor, at_NL: Tensor) -> Tensor:
    output = lm.get_decoder()(
        input_ids=ids_NL,
        attention_mask=mask_NL,
        position_ids=at_NL,
        past_key_values=cache,
        use_cache=True,
    )
    hidden: Tensor = output.last_hidden_state
    return hidden


def _logits(lm: Any, hidden_NH: Tensor) -> Tensor:
    logits: Tensor = lm.get_output_embeddings()(hidden_NH)
    return logits


def _shared_length(prompts: Sequence[Ids]) -> int:
    """Length of the prefix that all prompts share; each keeps at least one id after it."""
    shortest = min(len(prompt) for prompt in prompts) - 1
    if len(prompts) == 1 or shortest < 1:
        return 0
    rows = np.stack([prompt[:shortest] for prompt in prompts])
    differs = (rows != rows[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else shortest


def _result(reply: Reply) -> tuple[Ids, LogProbs, Finish]:
    logprobs = np.array(reply.logprobs, dtype=np.float32)
    return np.array(reply.ids, dtype=np.int32), logprobs, reply.finish
