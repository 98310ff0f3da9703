"""The planned memory of a rank, against the resident memory of a real learner on a CPU.

The plan counts live tensors. By default, and with the settings of a run, the C library keeps freed
memory, which counts as resident: up to twice the plan with LoRA. PyTorch asks for aligned memory,
and glibc 2.36 does not reuse a freed block for an aligned request of equal size, so trimming the
heap after the load does not help. Here it returns every large tensor to the system.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pettingllms.config.policies import LoraPolicy
from pettingllms.preflight.estimates import total
from pettingllms.preflight.learner_memory import Trained
from pettingllms.preflight.model_size import read_size

pytest.importorskip("torch")
pytest.importorskip("peft")

NUM_TOKENS = 768
RANK = 16
RETURN_FREED = {"MALLOC_MMAP_THRESHOLD_": "65536"}
LEARN = """
import re, sys
from pathlib import Path

import numpy as np
import torch
from pettingllms.config import LearnerConfig
from pettingllms.config.losses import loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from transformers import Qwen3Config, Qwen3ForCausalLM
import peft

def resident(key):
    return 1024 * int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

model, kind, num_tokens = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
torch.nn.Linear(8, 8)(torch.ones(8)).sum().backward()
baseline = resident("VmRSS")
policy = LoraPolicy(model="m", rank=16) if kind == "lora" else FullPolicy(model="m")
config = LearnerConfig(max_batch_tokens=num_tokens)
learner = Learner(LearnerSpec(model, {"a": policy}, config, loss_config(), 64, 0))
rng = np.random.default_rng(0)
items = [
    Item(prompt, reply, np.full(8, -5, np.float32), 1.0)
    for prompt, reply in (np.split(rng.integers(5, 200, num_tokens), [-8]) for _ in range(2))
]
learner.train("a", items, 1)  # creates the optimizer's state
Path("/proc/self/clear_refs").write_text("5")  # resets the peak
learner.train("a", items, 2)
print(resident("VmHWM") - baseline)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of 145M parameters, most of them in its layers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    config = Qwen3Config(
        vocab_size=8192,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=16,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=64,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_planned_memory_is_within_a_tenth_of_resident_memory(model: Path, kind: str) -> None:
    command = [sys.executable, "-c", LEARN, str(model), kind, str(NUM_TOKENS)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | RETURN_FREED
    )
    measured = int(done.stdout.split()[-1])
    trained = Trained(
        read_size(model),
        num_ranks=1,
        width=4,
        num_tokens=NUM_TOKENS,
        max_length=NUM_TOKENS,
        checkpointing=False,
        adapters=(LoraPolicy(model="m", rank=RANK),) if kind == "lora" else (),
        device="cpu",
    )
    assert total(trained.device_parts()) == pytest.approx(measured, rel=0.1)
