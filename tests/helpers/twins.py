"""Tiny twins of recipes: the same config with a random Qwen3, small data and small batches."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import Watched

from pettingllms.config import RunConfig, load_config, read_config
from pettingllms.envs import make_env_for
from pettingllms.models.tiny import make_tiny, texts_of
from pettingllms.runs.folder import RunFolder
from pettingllms.types import Sample, SampleRequest, ScoreRequest

SAMPLES = Path(__file__).parents[1] / "data"
TEMPLATE = """
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content and not loop.last %}
        {%- set content = content.split('</think>')[-1] | trim %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
"""As Qwen3's: no default system message, thoughts of earlier replies left out, and an empty thought
before the reply if `enable_thinking` is false."""
NO_THOUGHT = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
"""How a prompt ends if `enable_thinking` is false."""
REPLY_TOKENS = 160
"""Limit of a reply; a random model writes at most OWN_TOKENS."""
OWN_TOKENS = 16
SIZES = [
    *("cluster.device=cpu", "inference.engine=torch"),
    *("inference.num_replicas=1", "inference.max_model_len=2000", "learner.num_ranks=1"),
    *("rollout.num_tasks=2", "rollout.num_samples=2", f"rollout.max_reply_tokens={REPLY_TOKENS}"),
    *("train.num_steps=2", "train.eval_every=0", "train.save_every=2", "eval.num_tasks=1"),
]
ROUNDS = {"max_rounds": 1, "num_rounds": 2}
"""Fewer rounds, so that a run takes seconds."""
STRONG = {
    "sudoku-v1": "backtracking",
    "sokoban-v1": "astar",
    "plan_path-v1": "bfs",
    "math-v1": "solver",
    "debate-v1": "solver",
    "code-v1": "right",
    "kuhn_poker-v1": "nash",
    "story-v1": "author",
}
"""A scripted player that earns rewards."""


def write_data(folder: Path) -> dict[tuple[str, str], str]:
    """Data in the formats of the published sets, by key and by the source that a recipe names."""
    sums = [(1, 2), (3, 5), (10, 7), (20, 22), (6, 1), (30, 3)]
    polaris = [
        {"problem": f"What is {a} + {b}?", "answer": str(a + b), "difficulty": "1/8"}
        for a, b in sums
    ]
    gsm8k = [
        {
            "question": f"Ida has {a} boats and buys {b}. How many has she?",
            "answer": f"#### {a + b}",
        }
        for a, b in sums
    ]
    anli = [
        {
            "uid": str(number),
            "premise": f"Ida owns {number} boats.",
            "hypothesis": f"Ida owns {number + number % 2} boats.",
            "label": 2 * (number % 2),
        }
        for number in range(3, 9)
    ]
    for name, rows in (("polaris", polaris), ("gsm8k", gsm8k), ("anli", anli)):
        for part, some in (("train", rows[:4]), ("test", rows[4:])):
            text = "\n".join(map(json.dumps, some))
            folder.joinpath(f"{name}_{part}.jsonl").write_text(text)
    return {
        ("data", "hf:POLARIS-Project/Polaris-Dataset-53K"): f"math:{folder}/polaris_train.jsonl",
        ("test_data", "aime24"): f"aime:{SAMPLES}/samples/aime24.jsonl",
        ("data", "apps"): f"{SAMPLES}/code/apps.jsonl",
        ("test_data", "livecodebench/v6"): f"{SAMPLES}/code/livecodebench.jsonl",
        ("data", "gsm8k"): f"gsm8k:{folder}/gsm8k_train.jsonl",
        ("test_data", "gsm8k"): f"gsm8k:{folder}/gsm8k_test.jsonl",
        ("data", "anli"): f"anli:{folder}/anli_train.jsonl",
        ("test_data", "anli"): f"anli:{folder}/anli_test.jsonl",
    }


def twin_of(
    recipe: Path, model: Path, data: Mapping[tuple[str, str], str], *more: str
) -> RunConfig:
    """The recipe with another model, other data and smaller sizes, and nothing else changed."""
    given = read_config(recipe)
    env: dict[str, Any] = given["env"]
    local = [name for name, one in given["policies"].items() if one["kind"] != "api"]
    overrides = [*SIZES, *(f"policies.{name}.model={model}" for name in local)]
    overrides += [f"env.{key}={number}" for key, number in ROUNDS.items() if key in env]
    found = [(key, env[key]) for key in ("data", "test_data") if key in env]
    overrides += [f"env.{key}={data[key, source]}" for key, source in found]
    return load_config(recipe, [*overrides, *more])


def make_qwen3(folder: Path, configs: Sequence[RunConfig]) -> Path:
    """A random Qwen3 whose tokenizer knows the texts of these runs, with the template of Qwen3."""
    texts = texts_of([make_env_for(config.env) for config in configs], num_tasks=2)
    make_tiny(folder, texts=[*texts, NO_THOUGHT], hidden_size=64, vocab_size=4000)
    folder.joinpath("chat_template.jinja").write_text(TEMPLATE)
    return folder


@contextmanager
def strong_siblings(config: RunConfig, strong: bool = True) -> Iterator[list[str]]:
    """Replace every second reply of a role by one of a strong scripted player, with the log-probs
    that the policy's own engine gives it. A random model alone earns no reward that varies.

    Yields the prompts' texts.
    """
    from pettingllms.inference.chat import ChatRenderer
    from pettingllms.rollouts import player as players

    env, plain, counts = make_env_for(config.env), players._sample, Counter[str]()
    play, rng, prompts = env.player(STRONG[config.env.id]), random.Random(0), list[str]()

    async def sample(sampler: Any, request: SampleRequest, turn: Any) -> list[Any]:
        if request.policy not in renderers:
            return await plain(sampler, request, turn)
        found = await plain(sampler, replace(request, max_tokens=OWN_TOKENS), turn)
        renderer = renderers[request.policy]
        prompts.append(renderer._tokenizer.decode(request.prompt_ids.tolist()))
        for at, sampled in enumerate(found):
            counts[turn.role] += 1
            if strong and counts[turn.role] % 2:
                ids = renderer.encode(play(env, turn.state, turn.role, rng))
                assert len(ids) <= request.max_tokens, f"raise REPLY_TOKENS to {len(ids)}"
                given = ScoreRequest(request.prompt_ids, ids)
                (logprobs,) = await sampler.score(request.policy, given)
                found[at] = Sample(ids, logprobs, sampled.policy_version, "stop")
        return found

    renderers = {
        name: ChatRenderer(Path(policy.model), policy.chat_template_kwargs)
        for name, policy in config.policies.items()
        if policy.kind != "api"
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(players, "_sample", sample)
        yield prompts


def train_twin(
    config: RunConfig, folder: RunFolder, strong: bool = True
) -> tuple[Watched, list[str]]:
    """The run's callback, and the prompts that the policies were given."""
    from local import in_this_process

    from pettingllms.training import train as loop

    watched = Watched()
    folder.create(config)
    with in_this_process(), strong_siblings(config, strong) as prompts:
        asyncio.run(loop._train(config, folder, watched))
    return watched, prompts
