"""GRPO with PettingLLMs, one step per turn; started by `trl_compare.py`."""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import work

import pettingllms as pl
from pettingllms.envs.single_turn import single_turn


class Reporter(pl.Callback):
    """Reports the sampled tokens of each step."""

    def __init__(self, turns: work.Turns) -> None:
        self._turns = turns

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Report the step and wait."""
        self._turns.report(int(metrics["rollout"]["tokens"]))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--inference-dtype", default="auto")
    parser.add_argument("--learner-dtype", default="auto")
    options = parser.parse_args()
    turns = work.Turns(options.steps)
    rows = [{"prompt": prompt} for prompt in work.prompts(options.steps)]
    policy = {
        "kind": "lora",
        "model": options.model,
        "rank": work.LORA_RANK,
        "alpha": work.LORA_ALPHA,
        "lr": work.LEARNING_RATE,
    }
    with tempfile.TemporaryDirectory() as folder:
        pl.train(
            env=single_turn(rows, work.reward, test_dataset=[{"prompt": "Hello"}]),
            algo="grpo",
            policies={"policy": policy},
            num_steps=options.steps,
            rollout={
                "num_tasks": work.NUM_PROMPTS,
                "num_samples": work.NUM_REPLIES,
                "max_reply_tokens": work.REPLY_TOKENS,
            },
            inference={
                "dtype": options.inference_dtype,
                "max_num_seqs": work.NUM_PROMPTS * work.NUM_REPLIES,
                "max_model_len": 512,
            },
            learner={"dtype": options.learner_dtype},
            train={"save_every": options.steps},
            out=Path(folder) / "run",
            callbacks=[Reporter(turns)],
        )


if __name__ == "__main__":
    main()
