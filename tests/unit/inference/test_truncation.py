"""top-p and top-k: what is sampled, and its log-probs, by enumeration of a tiny vocabulary."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("ray")

import torch
from test_http_sampler import reply, serving

from pettingllms.cluster.playing import TEST, Play
from pettingllms.cluster.samplers import truncation_of
from pettingllms.cluster.team import Team
from pettingllms.config import InferenceConfig, RunConfig, parse_config
from pettingllms.config.policies import ApiPolicy
from pettingllms.errors import ConfigError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.inference.generate import truncated
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.models import make_tiny
from pettingllms.types import SampleRequest, user
from pettingllms.types.sampling import WHOLE, Truncation

LOGITS = np.log([0.4, 0.05, 0.3, 0.05, 0.2])
LIMITS = [
    (Truncation(top_k=2), {0: 4 / 7, 2: 3 / 7}),
    (Truncation(top_k=1), {0: 1.0}),
    (Truncation(top_k=4), {0: 0.4, 2: 0.3, 4: 0.2, 1: 0.05, 3: 0.05}),  # a tie stays whole
    (Truncation(top_p=0.65), {0: 4 / 7, 2: 3 / 7}),
    (Truncation(top_p=0.75), {0: 4 / 9, 2: 3 / 9, 4: 2 / 9}),
    (Truncation(top_p=0.01), {0: 1.0}),
    (Truncation(top_p=0.55, top_k=2), {0: 1.0}),  # 4/7 of the two that top-k keeps
    (Truncation(top_p=0.6, top_k=2), {0: 4 / 7, 2: 3 / 7}),
    (Truncation(top_k=100), {0: 0.4, 1: 0.05, 2: 0.3, 3: 0.05, 4: 0.2}),
    (WHOLE, {0: 0.4, 1: 0.05, 2: 0.3, 3: 0.05, 4: 0.2}),
]


def test_the_tokens_that_remain_and_their_probabilities() -> None:
    """All in one batch: a reply's truncation is its own."""
    logits = torch.tensor(np.tile(LOGITS, (len(LIMITS), 1)), dtype=torch.float32)
    kept = truncated(logits, [limit for limit, _ in LIMITS]).softmax(-1)
    expected = torch.zeros_like(kept)
    for row, (limit, wanted) in enumerate(LIMITS):
        left = {token: p for token, p in wanted.items() if p}
        for token, p in left.items():
            expected[row, token] = p / sum(left.values())
        assert set(kept[row].nonzero()[:, 0].tolist()) == set(left), limit
    torch.testing.assert_close(kept, expected)
    torch.testing.assert_close(logits[0].double(), torch.tensor(LOGITS), check_dtype=False)


@pytest.mark.engine
def test_it_is_what_vllm_does() -> None:
    """vLLM's function on random logits."""
    ops = pytest.importorskip("vllm.v1.sample.ops.topk_topp_sampler")
    logits = torch.randn(200, 50, generator=torch.Generator().manual_seed(0)) * 3
    rng = np.random.default_rng(0)
    limits = [
        Truncation(float(rng.choice([1.0, 0.95, 0.5, 0.1])), int(rng.choice([0, 1, 5, 20, 50])))
        for _ in range(200)
    ]
    k = torch.tensor([limit.top_k or 50 for limit in limits])
    p = torch.tensor([limit.top_p for limit in limits])
    theirs = ops.apply_top_k_top_p_pytorch(logits.clone(), k, p)
    torch.testing.assert_close(truncated(logits, limits), theirs)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TorchEngine:
    model = make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=["a b"], hidden_size=64)
    config = InferenceConfig(engine="torch", max_model_len=64, max_num_seqs=10_000)
    made = TorchEngine(EngineSpec(model, config, ("p",)))
    asyncio.run(made.start())
    return made


def ask(engine: TorchEngine, num: int, tokens: int, **options: Any) -> list[Any]:
    prompt = np.arange(5, 12, dtype=np.int32)
    request = SampleRequest("p", "role", prompt, num, tokens, 3, "t", **options)
    return list(asyncio.run(engine.sample(request)))


def test_samples_and_their_log_probs_are_of_the_truncated_distribution(engine: TorchEngine) -> None:
    """Every token that may follow is enumerated; the learner's log-probs would be others."""
    heat, limit = 0.7, Truncation(top_p=0.5, top_k=6)
    with torch.no_grad():
        logits = engine._lm(torch.arange(5, 12)[None]).logits[0, -1].double().numpy() / heat
    whole = np.exp(logits - logits.max())
    whole /= whole.sum()
    best = np.argsort(-whole)[:6]
    share = np.cumsum(whole[best] / whole[best].sum())
    kept = best[: int(np.searchsorted(share, 0.5)) + 1]
    expected = dict(zip(kept.tolist(), (whole[kept] / whole[kept].sum()).tolist(), strict=True))
    samples = ask(engine, 6000, 1, temperature=heat, truncation=limit)
    counts = Counter(int(s.ids[0]) for s in samples)
    assert counts.keys() == expected.keys()
    assert len(expected) > 1
    for token, p in expected.items():
        assert abs(counts[token] / 6000 - p) < 5 * (p / 6000) ** 0.5
    for s in samples[:50]:
        np.testing.assert_allclose(s.logprobs[0], np.log(expected[int(s.ids[0])]), atol=1e-4)


def test_later_tokens_are_truncated_too_and_greedy_is_unchanged(engine: TorchEngine) -> None:
    one = ask(engine, 20, 5, temperature=1.0, truncation=Truncation(top_k=1))
    greedy = ask(engine, 2, 5, temperature=0.0)
    assert {tuple(s.ids) for s in one} == {tuple(s.ids) for s in greedy}
    assert all(np.abs(s.logprobs).max() < 1e-6 for s in one)
    limited = ask(engine, 2, 5, temperature=0.0, truncation=Truncation(0.5, 3))
    np.testing.assert_array_equal(limited[0].logprobs, greedy[0].logprobs)


def config(kind: str = "lora", **options: Any) -> RunConfig:
    policy = {"kind": kind, "model": "m", **options.pop("policy", {})}
    return parse_config(
        {
            "env": {"id": "kuhn_poker-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": policy, "other": {"kind": "lora", "model": "m"}},
            "roles": {"player_1": "p", "player_2": "other"},
            **options,
        }
    )


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("option", [{"top_p": 0.9}, {"top_k": 20}])
def test_training_refuses_it_and_says_why(kind: str, option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="training samples from the whole distribution"):
        config(kind, policy=option)


def test_evaluation_and_policies_that_never_learn_may_truncate() -> None:
    frozen = config("frozen", policy={"top_p": 0.9, "top_k": 20}).policies
    assert truncation_of(frozen["p"]) == Truncation(0.9, 20)
    assert truncation_of(frozen["other"]) == WHOLE
    assert config(eval={"top_p": 0.95}).eval.truncation == Truncation(0.95, 0)
    assert config(eval={"top_k": 0}).eval.truncation == WHOLE
    assert config().eval.truncation is None


def test_exploitability_is_not_computed_for_a_truncated_policy() -> None:
    with pytest.raises(ConfigError, match="exploitability is that of the whole distribution"):
        config(eval={"exploitability": True, "top_p": 0.9})
    with pytest.raises(ConfigError, match="policies.p: exploitability is that of the whole"):
        config("frozen", policy={"top_k": 5}, eval={"exploitability": True})


def test_servers_are_sent_what_differs_from_the_whole() -> None:
    with serving([reply("left")]) as (url, asked):
        sampler = HttpSampler(ApiPolicy(url=url, model="m"))
        ids = JsonRenderer().render([user("Go")])

        async def work() -> None:
            for limit in (WHOLE, Truncation(0.9, 20)):
                await sampler.sample(SampleRequest("p", "r", ids, 1, 8, 0, "t", truncation=limit))
            await sampler.close()

        asyncio.run(work())
    assert [{"top_p", "top_k"} & one["body"].keys() for one in asked] == [set(), {"top_p", "top_k"}]
    assert (asked[1]["body"]["top_p"], asked[1]["body"]["top_k"]) == (0.9, 20)


def test_an_evaluation_gives_its_truncation_to_all_players() -> None:
    team: Any = Team(config("frozen", policy={"top_k": 5}), print)
    for names in (team._samplers._samplers, team._samplers.renderers):
        names.update(p=object(), other=object())
    play = Play(0, team.config.rollout, None, frozenset(), False, {}, {}, TEST, 0)
    usual = [play.player(team._samplers, team.env, name).truncation for name in ("p", "other")]
    assert usual == [Truncation(top_k=5), WHOLE]
    evaluation = replace(play, truncation=Truncation(0.9))
    for name in ("p", "other"):
        assert evaluation.player(team._samplers, team.env, name).truncation == Truncation(0.9)
