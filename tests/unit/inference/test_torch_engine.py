"""The small engine keeps the promises of the large one, checked against plain Transformers."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from pettingllms.config import InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import SamplerError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.inference.generate import require_supported
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.types import Failed, Sample, SampleRequest, ScoreRequest

ResultT = TypeVar("ResultT")


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    return asyncio.run(work)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def engine(model: Path, policies: tuple[str, ...] = ("p",), **config: Any) -> TorchEngine:
    options = {"engine": "torch", "max_model_len": 64, **config}
    made = TorchEngine(EngineSpec(model, InferenceConfig(**options), policies))
    run(made.start())
    return made


def ask(at: int, length: int = 7, policy: str = "p", **options: Any) -> SampleRequest:
    prompt = np.random.default_rng(at).integers(5, 60, length).astype(np.int32)
    chosen = {"num_samples": 3, "max_tokens": 6, "seed": at, "task_id": "t", **options}
    return SampleRequest(policy, "role", prompt, **chosen)


def plain_logprobs(model: Path, request: SampleRequest, sample: Sample, prompt: Any = None) -> Any:
    from transformers import AutoModelForCausalLM

    lm = AutoModelForCausalLM.from_pretrained(model)
    prompt = request.prompt_ids if prompt is None else prompt
    ids = torch.tensor(np.concatenate([prompt, sample.ids])).long()
    with torch.no_grad():
        logp = torch.log_softmax(lm(ids[None]).logits[0] / request.temperature, -1)
    start = len(prompt)
    return logp[start - 1 : -1].gather(1, ids[start:, None])[:, 0].numpy()


def test_log_probs_are_those_of_the_plain_model_whatever_else_is_in_the_batch(model: Path) -> None:
    requests = [ask(1, 3), ask(2, 9, temperature=0.5), ask(3, 20), ask(1, 3, seed=9)]
    for request, samples in zip(requests, run(engine(model).sample_many(requests)), strict=True):
        assert len(samples) == 3
        for sample in samples:
            wanted = plain_logprobs(model, request, sample)
            np.testing.assert_allclose(sample.logprobs, wanted, atol=2e-5)


def test_a_reply_depends_on_its_own_request_alone(model: Path) -> None:
    made = engine(model)
    alone = run(made.sample(ask(4)))
    among = run(made.sample_many([ask(5, 12), ask(4), ask(6, 2), ask(4, seed=8)]))
    assert [s.ids.tolist() for s in among[1]] == [s.ids.tolist() for s in alone]
    assert [s.ids.tolist() for s in among[3]] != [s.ids.tolist() for s in alone]
    small = engine(model, max_num_seqs=3)
    parts = run(small.sample_many([ask(5, 12), ask(4), ask(6, 2), ask(4, seed=8)]))
    assert [[s.ids.tolist() for s in some] for some in parts] == [
        [s.ids.tolist() for s in some] for some in among
    ]


def test_what_is_sampled_follows_the_distribution(model: Path) -> None:
    request = ask(1, num_samples=4000, max_tokens=1)
    samples = run(engine(model, max_num_seqs=5000).sample(request))
    first = samples[0]
    shares = np.bincount([s.ids[0] for s in samples], minlength=600) / len(samples)
    expected = {int(s.ids[0]): float(np.exp(s.logprobs[0])) for s in samples}
    assert first.finish in ("stop", "length")
    for token, probability in expected.items():
        assert abs(shares[token] - probability) < 5 * (probability / 4000) ** 0.5 + 1e-3


def test_greedy_takes_the_likeliest_token_every_time(model: Path) -> None:
    samples = run(engine(model).sample(ask(2, temperature=0.0)))
    assert len({tuple(s.ids.tolist()) for s in samples}) == 1


def test_a_reply_ends_with_the_token_that_ends_replies(model: Path) -> None:
    samples = run(engine(model).sample(ask(3, num_samples=400, max_tokens=40)))
    ends = {int(s.ids[-1]) for s in samples if s.finish == "stop"}
    assert len(ends) == 1
    end = ends.pop()
    for sample in samples:
        assert end not in sample.ids[:-1]
        assert (sample.finish == "stop") == (sample.ids[-1] == end)
        assert len(sample.ids) == 40 or sample.finish == "stop"


def test_what_the_end_of_the_model_cuts_says_so(model: Path) -> None:
    asked = [ask(1, 64), ask(1, 62, num_samples=200), ask(1, 62, max_tokens=2)]
    full, tight, short = run(engine(model).sample_many(asked))
    assert all(isinstance(s, Failed) and s.owner == "limit" for s in full)
    cut = [s for s in tight if isinstance(s, Sample) and s.limit]
    assert all(s.finish == "length" and len(s.ids) == len(s.logprobs) == 2 for s in cut)
    assert "was cut after 2 of 6 tokens: its prompt has 62" in cut[0].limit
    ended = [s for s in tight if isinstance(s, Sample) and not s.limit]
    assert all(s.finish == "stop" for s in ended), "those that ended before are whole"
    assert any(s.finish == "length" for s in short), "these had what was asked for"


def test_a_policy_that_is_not_served_is_refused(model: Path) -> None:
    with pytest.raises(SamplerError, match="does not serve 'q'"):
        run(engine(model).sample(ask(1, policy="q")))


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_published_weights_are_those_that_answer(model: Path, kind: str) -> None:
    cls = {"full": FullPolicy, "lora": LoraPolicy}[kind]
    policies = {"p": cls(model="m", lr=1e-2)}
    learner = Learner(LearnerSpec(model, policies, LearnerConfig(), loss_config(), 8, 1))
    made = engine(model, ("p", "frozen"))
    request = ask(1)
    for version in (1, 2):
        items = [
            Item(request.prompt_ids, sample.ids, sample.logprobs, float(at))
            for at, sample in enumerate(run(made.sample(request)))
        ]
        learner.train("p", items, version)
        files, _ = learner.files("p")
        run(
            getattr(made, "publish_weights" if kind == "full" else "publish_adapter")(
                "p", version, files
            )
        )
        samples = run(made.sample(request))
        assert {sample.policy_version for sample in samples} == {version}
        now = [Item(request.prompt_ids, s.ids, s.logprobs, 0.0) for s in samples]
        for item, logp in zip(now, learner.logprobs("p", now), strict=True):
            np.testing.assert_allclose(item.logprobs, logp, atol=2e-5)
            scored = run(made.score("p", item.given))
            np.testing.assert_allclose(scored, logp, atol=2e-5)
    assert run(made.versions()) == {"p": 2, "frozen": 0}
    if kind == "lora":
        base = run(made.sample(ask(1, policy="frozen")))
        np.testing.assert_allclose(
            base[0].logprobs, plain_logprobs(model, request, base[0]), atol=2e-5
        )


def test_weights_of_another_model_are_refused(model: Path, tmp_path: Path) -> None:
    texts = [f"count {n}" for n in range(50)]
    other = make_tiny(tmp_path / "other", texts=texts, hidden_size=64, num_layers=3)
    files = {"model.safetensors": (other / "model.safetensors").read_bytes()}
    with pytest.raises(SamplerError, match="another model"):
        run(engine(model).publish_weights("p", 1, files))


SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.MistralConfig(**SIZES, sliding_window=8), "sliding windows"),
        (transformers.CohereConfig(**SIZES, logit_scale=0.0625), "change their logits"),
        (transformers.GraniteConfig(**SIZES, logits_scaling=4.0), "change their logits"),
    ],
)
def test_what_it_would_compute_otherwise_is_refused(config: Any, reason: str) -> None:
    lm = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(SamplerError, match=reason):
        require_supported(lm)


def test_what_it_computes_as_the_model_does_is_not_refused() -> None:
    for config in (transformers.LlamaConfig(**SIZES), transformers.MistralConfig(**SIZES)):
        config.sliding_window = None
        lm = transformers.AutoModelForCausalLM.from_config(config).eval()
        require_supported(lm)
        lm.to(torch.bfloat16)
        require_supported(lm)


@pytest.mark.parametrize("names", [("a.b", "a_b"), ("a", "b")])
def test_adapters_of_two_policies_never_meet(model: Path, names: tuple[str, str]) -> None:
    policies = {name: LoraPolicy(model="m", lr=1e-2) for name in names}
    learner = Learner(LearnerSpec(model, policies, LearnerConfig(), loss_config(), 8, 1))
    made, request = engine(model, names), ask(1)
    for version, (at, name) in enumerate([(0, names[0]), (1, names[1])], start=1):
        reply = np.array([6 + at, 7, 8], np.int32)
        item = Item(request.prompt_ids, reply, np.full(3, -4.0, np.float32), 1.0)
        learner.train(name, [item], version)
    for name in names:
        run(made.publish_adapter(name, 1, learner.files(name)[0]))
    for name in names:
        (logp,) = learner.logprobs(name, [item])
        scored = run(made.score(name, item.given))
        np.testing.assert_allclose(scored, logp, atol=2e-5)


def test_scores_of_many_are_those_of_each_alone(model: Path) -> None:
    made = engine(model, max_num_seqs=3)
    asked = [ask(at, length) for at, length in enumerate((9, 2, 20, 5, 5, 11, 3))]
    pairs = [
        ScoreRequest(one.prompt_ids, one.prompt_ids[: 1 + at % 4]) for at, one in enumerate(asked)
    ]
    found = run(made.score_many("p", pairs))
    assert [len(some) for some in found] == [len(one.response_ids) for one in pairs]
    for (prompt, reply, _), some in zip(pairs, found, strict=True):
        alone = plain_logprobs(model, asked[0], Sample(reply, None, 0, "stop"), prompt)
        np.testing.assert_allclose(some, alone, atol=2e-5)


def test_weights_published_again_under_the_same_version_are_the_ones_that_answer(
    model: Path,
) -> None:
    """As when a run takes up a checkpoint after it has published its first weights."""
    policies = {"p": LoraPolicy(model="m", lr=1e-2)}
    learner = Learner(LearnerSpec(model, policies, LearnerConfig(), loss_config(), 8, 1))
    made, request = engine(model), ask(1)
    item = Item(request.prompt_ids, request.prompt_ids[:3], np.full(3, -4.0, np.float32), 1.0)
    for step in (1, 2):
        learner.train("p", [item], step)
        run(made.publish_adapter("p", 0, learner.files("p")[0]))
        scored = run(made.score("p", item.given))
        np.testing.assert_allclose(scored, learner.logprobs("p", [item])[0], atol=2e-5)
