"""One side of `learner_compare.py`: optimizer steps of a LoRA adapter on one batch, on request.

It uses only what both versions have in common. Started with the sources of one version in
PYTHONPATH; a line on stdin asks for a step.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import LoraPolicy
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec

NUM_REPLIES, PROMPT_TOKENS, REPLY_TOKENS = 8, 400, 64


def main() -> None:
    """Make a step for each line of stdin; print its CPU-seconds."""
    model, dtype = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to stderr
    config = LearnerConfig(dtype=dtype, max_batch_tokens=4096)
    policies = {"p": LoraPolicy(model="m", lr=1e-6, rank=16)}
    learner = Learner(LearnerSpec(model, policies, config, loss_config(), REPLY_TOKENS, 1))
    items = batch()
    own = learner.logprobs("p", items)
    items = [replace(item, logprobs=row) for item, row in zip(items, own, strict=True)]
    for _ in sys.stdin:
        start = time.process_time()
        learner.train("p", items, 1)
        reports.write(json.dumps(time.process_time() - start) + "\n")
        reports.flush()


def batch() -> list[Item]:
    """Replies to one prompt."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(5, 40_000, PROMPT_TOKENS).astype(np.int32)
    replies = rng.integers(5, 40_000, (NUM_REPLIES, REPLY_TOKENS)).astype(np.int32)
    unknown = np.zeros(REPLY_TOKENS, np.float32)
    return [Item(prompt, reply, unknown, float(rng.normal())) for reply in replies]


if __name__ == "__main__":
    main()
