"""Models that change their logits after the output layer are rejected, whatever they call it."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from ranks import note, noted, rank_of

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec

SIZE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
CHANGED: dict[str, Any] = {
    "gemma2 caps": lambda: transformers.Gemma2Config(**SIZE, final_logit_softcapping=30.0),
    "cohere scales": lambda: transformers.CohereConfig(**SIZE, logit_scale=0.0625),
    "granite divides": lambda: transformers.GraniteConfig(**SIZE, logits_scaling=8.0),
    "falcon multiplies": lambda: transformers.FalconH1Config(
        **SIZE, **MAMBA, lm_head_multiplier=0.25
    ),
}
PLAIN: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SIZE),
    "qwen3": lambda: transformers.Qwen3Config(**SIZE),
    "gemma2": lambda: transformers.Gemma2Config(**SIZE, final_logit_softcapping=None),
    "granite": lambda: transformers.GraniteConfig(**SIZE, logits_scaling=1.0),
}


def made(config: Any, folder: Path) -> Path:
    """A model with the weights of its first moment, which are as small as they get."""
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def learner(model: Path, kind: str = "full", **config: Any) -> Learner:
    kinds = {"full": FullPolicy(model="m"), "lora": LoraPolicy(model="m", rank=4)}
    spec = LearnerSpec(model, {"p": kinds[kind]}, LearnerConfig(**config), loss_config(), 16, 5)
    return Learner(spec)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", CHANGED)
def test_a_model_that_changes_its_logits_is_rejected(
    family: str, dtype: str, tmp_path: Path
) -> None:
    with pytest.raises(LearnerError, match="change their logits after the output layer"):
        learner(made(CHANGED[family](), tmp_path), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("family", PLAIN)
def test_a_model_that_does_not_is_accepted(
    family: str, kind: str, dtype: str, tmp_path: Path
) -> None:
    learner(made(PLAIN[family](), tmp_path), kind, dtype=dtype)


class NestedConfig(transformers.LlamaConfig):
    """A config that keeps what it does to logits in a part of itself."""

    model_type = "nested_llama"


class NestedLlama(transformers.LlamaForCausalLM):
    config_class = NestedConfig

    def forward(self, *args: Any, **options: Any) -> Any:
        found = super().forward(*args, **options)
        found.logits = found.logits * self.config.head["multiplier"]
        return found


def test_a_setting_in_a_nested_config_is_found(tmp_path: Path) -> None:
    transformers.AutoConfig.register("nested_llama", NestedConfig)
    transformers.AutoModelForCausalLM.register(NestedConfig, NestedLlama)
    with pytest.raises(LearnerError, match="nested_llama models change their logits"):
        learner(made(NestedConfig(**SIZE, head={"multiplier": 0.5}), tmp_path / "half"))
    learner(made(NestedConfig(**SIZE, head={"multiplier": 1.0}), tmp_path / "one"))


def on_two_ranks(rank: int, num_ranks: int, folder: Path) -> None:
    with rank_of(rank, num_ranks, folder):
        said = ""
        for dtype in ("float32", "bfloat16"):
            learner(folder / "plain", dtype=dtype)
            try:
                learner(folder / "changed", dtype=dtype)
            except LearnerError as error:
                said += str(error)
        note(said, rank, num_ranks, folder)


def test_ranks_compare_what_they_share(tmp_path: Path) -> None:
    made(PLAIN["llama"](), tmp_path / "plain")
    made(CHANGED["granite divides"](), tmp_path / "changed")
    mp.spawn(on_two_ranks, args=(2, tmp_path), nprocs=2)
    assert noted(2, tmp_path).count("granite models change their logits") == 2
