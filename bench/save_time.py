"""How long a checkpoint blocks the loop of training, in shares of the step that it overlaps with.

    python bench/save_time.py MODEL lora
    python bench/save_time.py MODEL full --tokens 4096

One rank of a learner trains steps on random tokens, and saves after every second step. A step is
only the learner's part; sampling makes real steps longer, and the share smaller.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.shard_writer import LocalFolder, ShardWriter


def items(num_tokens: int, vocab_size: int, reply: int = 64, prompt: int = 192) -> list[Item]:
    """Replies to different prompts."""
    draw = np.random.default_rng(0)
    count = max(1, num_tokens // (reply + prompt))
    logprobs = np.full(reply, -8.0, np.float32)

    def ids(size: int) -> Any:
        return draw.integers(5, vocab_size, size, dtype=np.int32)

    return [Item(ids(prompt), ids(reply), logprobs, 1.0 - 2 * (at % 2)) for at in range(count)]


def measure(made: Learner, batch: list[Item], folder: Path, num_steps: int, copies: bool) -> None:
    """Print the seconds of steps without a save, of steps beside one, and of waiting."""
    writer = ShardWriter(torch.device("cpu"))
    plain, beside, blocked, written = [], [], [], []
    made.train("p", batch, 0)  # compiles, and creates the optimizer's state
    for step in range(1, num_steps + 1):
        start = time.perf_counter()
        made.train("p", batch, step)
        seconds = time.perf_counter() - start
        if step % 2:
            plain.append(seconds)
            place = folder / str(step)
            place.mkdir()
            start = time.perf_counter()
            writer.start("p", LocalFolder(place), *made.parts("p"), copies)
            blocked.append(time.perf_counter() - start)
        else:
            beside.append(seconds)
            start = time.perf_counter()
            while (found := writer.poll("p")) is None:
                time.sleep(0.001)
            assert not found.problem, found.problem
            blocked[-1] += time.perf_counter() - start
            written.append(sum(path.stat().st_size for path in place.iterdir()))
            shutil.rmtree(place)
    print(f"checkpoint {mean(written) / 2**20:.0f} MiB, background: {copies}")
    print(f"step without a save {mean(plain):.2f} s, beside one {mean(beside):.2f} s")
    share = mean(blocked) / mean(beside)
    print(f"the loop waits {mean(blocked):.2f} s per save: {share:.1%} of the step beside it")


def main() -> None:
    """Measure one kind of policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("kind", choices=["lora", "full"])
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = str(options.model)
    policy = LoraPolicy(model=model) if options.kind == "lora" else FullPolicy(model=model)
    config = LearnerConfig()
    spec = LearnerSpec(options.model, {"p": policy}, config, loss_config(), 64, 0)
    made = Learner(spec)
    batch = items(options.tokens, 2000)
    for copies in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            measure(made, batch, Path(folder), options.steps, copies)


if __name__ == "__main__":
    main()
