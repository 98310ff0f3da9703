"""GRPO with TRL, one step per turn; started by `trl_compare.py` in TRL's environment."""

import argparse
import tempfile
from typing import Any

import work
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

PASS_REPLIES = 16
"""Replies of a forward and backward pass; more take more memory and are not faster on CPU."""


class Reporter(TrainerCallback):
    """Counts sampled tokens as a reward function, and reports each step."""

    def __init__(self, turns: work.Turns) -> None:
        self._turns, self._num_tokens = turns, 0

    def reward(self, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        """The reward of each reply."""
        self._num_tokens += sum(map(len, completion_ids))
        return [work.reward(completion[-1]["content"]) for completion in completions]

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Report the step and wait."""
        num_tokens, self._num_tokens = self._num_tokens, 0
        self._turns.report(num_tokens)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--generation", default="generate")
    options = parser.parse_args()
    turns = work.Turns(options.steps)
    rows = [[{"role": "user", "content": text}] for text in work.prompts(options.steps)]
    reporter = Reporter(turns)
    num_replies = work.NUM_PROMPTS * work.NUM_REPLIES
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=PASS_REPLIES,
            gradient_accumulation_steps=num_replies // PASS_REPLIES,
            num_generations=work.NUM_REPLIES,
            max_completion_length=work.REPLY_TOKENS,
            learning_rate=work.LEARNING_RATE,
            temperature=1.0,
            beta=0.0,
            bf16=options.dtype == "bfloat16",
            model_init_kwargs={"dtype": options.dtype},
            gradient_checkpointing=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            **_generation(options.generation),
        )
        trainer = GRPOTrainer(
            model=options.model,
            reward_funcs=reporter.reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": rows}),
            peft_config=LoraConfig(
                r=work.LORA_RANK,
                lora_alpha=work.LORA_ALPHA,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            ),
            callbacks=[reporter],
        )
        trainer.train()


def _generation(kind: str) -> dict[str, Any]:
    if kind == "vllm":
        return {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": 512}
    if kind == "continuous":
        return {"use_transformers_continuous_batching": True}
    return {}


if __name__ == "__main__":
    main()
