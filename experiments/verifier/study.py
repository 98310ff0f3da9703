"""Does balancing within questions make a better verifier? A study on sums, on two cores.

A tiny model is warm-started on sums of four to nine small numbers, mostly short ones, so that it
is right about short sums more often than about long ones. Its own answers are the data: *raw*, as
they come, and *balanced*, one right and one wrong answer of each question that has both. Two
verifiers begin with the model's weights and see equally many answers, equally often. Both are
tested on questions that neither saw, with one right and one wrong answer of each and as many
questions of each length: there, how long a sum is says nothing about an answer.

    python experiments/verifier/study.py --seeds 1 2 3 --out runs/verifier
"""

import argparse
import asyncio
import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.config import InferenceConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy
from pettingllms.config.verifier import VerifierConfig
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.learners.batches import Item
from pettingllms.learners.critic import Critic
from pettingllms.learners.learner import Learner, LearnerSpec
from pettingllms.models import make_tiny
from pettingllms.policies.files import MODEL_FILE
from pettingllms.types import Sample, SampleRequest, Scored, user
from pettingllms.verifier.classifier import Verifier, VerifierSpec
from pettingllms.verifier.evaluate import Report, measure
from pettingllms.verifier.labeled_answers import Answer, balanced
from pettingllms.verifier.train import fit, tokenize_answers

LENGTHS = (4, 5, 8, 9)
"""Numbers in a sum: how hard it is."""
LARGEST = 4
"""Of the numbers."""
WARM_SHARES = (0.45, 0.45, 0.05, 0.05)
"""How often the warm start shows each length."""
TEMPERATURE = 1.3
"""Of the answers: right and wrong ones of as many questions as can be had."""


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    num_warm: int = 8000
    """Sums that the warm start shows, over and over."""
    warm_steps: int = 800
    warm_batch: int = 256
    num_questions: int = 800
    """To learn from, of each length, where there are as many."""
    num_test: int = 200
    """To sample for the test, of each length."""
    num_samples: int = 8
    verifier_steps: int = 500
    verifier_batch: int = 128


QUICK = Size(
    num_warm=3000,
    warm_batch=160,
    warm_steps=250,
    num_questions=300,
    num_test=100,
    verifier_steps=150,
)


def draw_sum(rng: random.Random, length: int) -> str:
    """Such as 3+0+4+1="""
    return "+".join(str(rng.randint(0, LARGEST)) for _ in range(length)) + "="


def truth(question: str) -> str:
    """What it comes to."""
    return str(sum(int(part) for part in question.rstrip("=").split("+")))


def length_of(question: str) -> int:
    """How many numbers are added."""
    return question.count("+") + 1


def questions_of(rng: random.Random, count: int, taken: set[str]) -> list[str]:
    """As many of each length, none of them taken; they are taken then."""
    found: list[str] = []
    for length in LENGTHS:
        new: set[str] = set()
        while len(new) < min(count, (LARGEST + 1) ** length // 3):
            question = draw_sum(rng, length)
            if question not in taken:
                new.add(question)
        taken |= new
        found += sorted(new)
    return found


def warm_started(folder: Path, seed: int, size: Size, held_out: set[str]) -> Path:
    """A tiny model that has been shown right answers, to none of the questions held out."""
    texts = ["".join(map(str, range(10))) + "+="]
    base = make_tiny(
        folder / "base", texts=texts, hidden_size=64, mlp_size=256, vocab_size=300, seed=seed,
        symbols=True,
    )  # fmt: skip
    learner = Learner(
        LearnerSpec(
            base,
            {"p": FullPolicy(model=str(base), lr=3e-3)},
            LearnerConfig(decay_steps=size.warm_steps, warmup_steps=20),
            loss_config("plain"),
            max_reply_tokens=4,
            seed=seed,
        )
    )
    renderer, rng = ChatRenderer(base), random.Random(seed)
    items: list[Item] = []
    while len(items) < size.num_warm:
        question = draw_sum(rng, rng.choices(LENGTHS, WARM_SHARES)[0])
        if question not in held_out:
            prompt, reply = renderer.render([user(question)]), renderer.encode(truth(question))
            items.append(Item(prompt, reply, np.zeros(len(reply), np.float32), 1.0))
    for step in range(1, size.warm_steps + 1):
        learner.train("p", rng.sample(items, size.warm_batch), step)
    warm = folder / "warm"
    shutil.copytree(base, warm)
    (warm / MODEL_FILE).write_bytes(learner.files("p")[0][MODEL_FILE])
    return warm


async def answered(model: Path, questions: Sequence[str], size: Size, seed: int) -> list[Answer]:
    """What the model says, graded."""
    config = InferenceConfig(engine="torch", max_num_seqs=512, max_model_len=64)
    engine, renderer = TorchEngine(EngineSpec(model, config, ("p",))), ChatRenderer(model)
    await engine.start()
    requests = [
        SampleRequest(
            "p", "solo", renderer.render([user(q)]), size.num_samples, 4, seed + at, q, TEMPERATURE
        )
        for at, q in enumerate(questions)
    ]
    found: list[Answer] = []
    replies = await engine.sample_many(requests)
    for question, samples in zip(questions, replies, strict=True):
        for sample in samples:
            assert isinstance(sample, Sample)
            said = renderer.decode(sample.ids)
            found.append(Answer(question, (user(question),), said, said == truth(question)))
    return found


def even(answers: Sequence[Answer], seed: int) -> list[Answer]:
    """One right and one wrong answer of each question, and as many questions of each length."""
    pairs = balanced(answers, 1, seed)
    by_length = {n: [a for a in pairs if length_of(a.question) == n] for n in LENGTHS}
    count = min(map(len, by_length.values()))
    return [answer for some in by_length.values() for answer in some[:count]]


def correlation(answers: Sequence[Answer]) -> float:
    """Of how long a question is with whether its answer is right."""
    lengths = [length_of(answer.question) for answer in answers]
    return float(np.corrcoef(lengths, [answer.correct for answer in answers])[0, 1])


def trained(model: Path, answers: Sequence[Answer], size: Size, seed: int) -> Verifier:
    """A verifier that begins with the model's weights."""
    make = VerifierSpec(str(model), kind="full", max_tokens=64)
    settings = VerifierConfig(num_steps=size.verifier_steps, num_answers=size.verifier_batch)
    learner = LearnerConfig(decay_steps=size.verifier_steps)
    critic = Critic(make.critic(learner, seed, lr=2e-3))

    async def call(method: str, *args: Any) -> Any:
        return getattr(critic, method)(*args)

    asyncio.run(fit(call, tokenize_answers(answers, make), settings, seed, lambda *_: None))
    return Verifier(make, critic)


def measured(verifier: Verifier, answers: Sequence[Answer]) -> Report:
    """What a verifier is worth on a test."""
    rewards = verifier.score([(answer.messages, answer.text) for answer in answers])
    scores = [reward.value for reward in rewards if isinstance(reward, Scored)]
    return measure(scores, [a.correct for a in answers], [a.question for a in answers])


def study(seed: int, out: Path, size: Size) -> dict[str, Any]:
    """Both arms with one seed."""
    start = time.perf_counter()
    rng, taken = random.Random(seed), set[str]()
    tested = questions_of(rng, size.num_test, taken)
    asked = questions_of(rng, size.num_questions, taken)
    model = warm_started(out / f"seed{seed}", seed, size, set(tested))
    warm_seconds = time.perf_counter() - start
    raw = asyncio.run(answered(model, asked, size, seed))
    test = even(asyncio.run(answered(model, tested, size, seed + 10**6)), seed)
    sets = {"balanced": balanced(raw, 1, seed)}
    sets["raw"] = random.Random(seed).sample(raw, len(sets["balanced"]))
    right = {n: np.mean([a.correct for a in raw if length_of(a.question) == n]) for n in LENGTHS}
    found: dict[str, Any] = {
        "seed": seed,
        "right_by_length": {str(n): round(float(share), 3) for n, share in right.items()},
        "num_answers": len(sets["balanced"]),
        "num_test": len(test),
        "test_correlation": correlation(test),
        "arms": {},
    }
    for name, answers in sets.items():
        report = measured(trained(model, answers, size, seed), test)
        kept = ("auc", "auc_within", "accuracy", "brier", "ece")
        numbers = {key: asdict(report)[key] for key in kept}
        found["arms"][name] = {"train_correlation": correlation(answers), **numbers}
    found["warm_seconds"] = round(warm_seconds, 1)
    found["seconds"] = round(time.perf_counter() - start, 1)
    return found


def main() -> None:
    """Run all seeds, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("runs/verifier"))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    found = []
    for seed in asked.seeds:
        found.append(study(seed, asked.out, QUICK if asked.quick else Size()))
        print(json.dumps(found[-1]), flush=True)
    (asked.out / "results.json").write_text(json.dumps(found, indent=1))
    for name in ("balanced", "raw"):
        arms = [one["arms"][name] for one in found]
        for key in ("auc", "auc_within", "accuracy", "ece"):
            values = [arm[key] for arm in arms]
            print(f"{name} {key}: {np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
