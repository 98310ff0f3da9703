from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")
pytest.importorskip("torch")

from pettingllms.errors import ModelError
from pettingllms.models import make_tiny, tiny
from pettingllms.models.folder import faults_of
from pettingllms.models.tiny import environment_texts
from pettingllms.registry import ENVIRONMENTS

TEXTS = ["the cat sat on the mat", "the mat sat on the cat"]
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|pad|>")


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("models") / request.param, request.param)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_is_a_whole_model(folder: Path) -> None:
    assert faults_of(folder) == []


def test_the_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = contents(make_tiny(tmp_path / "again", folder.name))
    other = contents(make_tiny(tmp_path / "other", folder.name, seed=1))
    assert again == contents(folder)
    assert {name for name in again if again[name] != other[name]} == {"model.safetensors"}


def test_the_callers_chance_is_left_alone(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    make_tiny(tmp_path / "m", texts=TEXTS)
    assert torch.equal(torch.rand(3), expected)


def test_it_is_the_real_architecture_and_small(folder: Path, model: Any) -> None:
    config = model.config
    assert config.model_type == folder.name
    assert 0.8e6 < model.num_parameters() < 1.2e6
    assert (config.head_dim, config.num_attention_heads, config.num_key_value_heads) == (32, 4, 2)
    assert config.max_position_embeddings == 2048
    assert config.tie_word_embeddings
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert str(model.dtype) == "torch.float32"


def test_it_generates_and_knows_where_to_stop(model: Any, tokenizer: Any) -> None:
    prompt = tokenizer("play", return_tensors="pt")
    out = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert out.shape[1] > prompt["input_ids"].shape[1]
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id


def test_special_tokens_are_single_and_distinct(tokenizer: Any, model: Any) -> None:
    ids = [tokenizer.encode(token) for token in SPECIAL]
    assert all(len(one) == 1 for one in ids)
    assert len({one[0] for one in ids}) == 4
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|pad|>")
    assert tokenizer.decode([one[0] for one in ids], skip_special_tokens=True) == ""
    assert len(tokenizer) == model.config.vocab_size == 512


def test_the_chat_template_is_chatml(tokenizer: Any) -> None:
    chat = [{"role": "system", "content": " Be\nbrief. "}, {"role": "user", "content": "1+1?"}]
    asked = (
        "<|im_start|>system\n Be\nbrief. <|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    render = tokenizer.apply_chat_template
    assert render(chat, tokenize=False, add_generation_prompt=True) == asked
    answered = [*chat, {"role": "assistant", "content": "2"}]
    assert render(answered, tokenize=False) == f"{asked}2<|im_end|>\n"


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_its_ids(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_digit_is_a_token_however_often_a_number_is_said(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = make_tiny(tmp_path / "m", texts=["in 2024", "of 2024"] * 9)
    assert AutoTokenizer.from_pretrained(folder).tokenize("2024") == list("2024")


def test_numbers_are_single_tokens_up_to_the_given_digits(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    options = {"symbols": True, "vocab_size": 1400, "number_digits": 3}
    made = make_tiny(tmp_path / "m", texts=["largest? 1234"], **options)
    tokenizer = AutoTokenizer.from_pretrained(made)
    numbers = [str(number) for number in range(1000)]
    assert all(len(tokenizer.encode(number)) == 1 for number in numbers)
    assert tokenizer.decode(tokenizer.encode("7 12 1234")) == "7 12 1234"
    assert len(tokenizer.encode("1234")) == 2


def test_a_vocabulary_without_room_for_the_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no room for .* of the 990 numbers"):
        make_tiny(tmp_path / "m", texts=[], symbols=True, vocab_size=300, number_digits=3)
    assert not (tmp_path / "m").exists()


def test_words_of_the_environments_are_short(tokenizer: Any) -> None:
    assert tokenizer.tokenize("<answer>") == ["<", "answer", ">"]


def test_few_texts_give_few_tokens(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    folder = make_tiny(tmp_path / "m", texts=TEXTS, hidden_size=64, num_layers=1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert 260 < len(tokenizer) < 512
    assert AutoConfig.from_pretrained(folder).vocab_size == len(tokenizer)
    assert len(tokenizer.tokenize("the cat")) == 2


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"architecture": "gpt"}, "expected qwen3 or llama"),
        ({"hidden_size": 100}, "multiple of 64"),
        ({"num_layers": 0}, "1 or more"),
        ({"vocab_size": 259}, "at least 260"),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, options: Any, advice: str) -> None:
    with pytest.raises(ModelError, match=advice):
        make_tiny(tmp_path / "m", **options)
    assert not list(tmp_path.iterdir())


def test_it_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("midway")

    monkeypatch.setattr(tiny, "_model", fail)
    with pytest.raises(RuntimeError, match="midway"):
        make_tiny(tmp_path / "m", texts=TEXTS)
    assert not list(tmp_path.iterdir())


def test_a_model_is_not_written_over(tmp_path: Path) -> None:
    make_tiny(tmp_path / "m", texts=TEXTS)
    before = contents(tmp_path / "m")
    with pytest.raises(ModelError, match="already exists"):
        make_tiny(tmp_path / "m", texts=TEXTS, seed=1)
    assert contents(tmp_path / "m") == before


def test_the_texts_are_the_same_each_time_and_of_every_environment() -> None:
    texts = environment_texts()
    assert texts == environment_texts()
    assert len(ENVIRONMENTS.names()) < len(texts) == len(set(texts))
    assert all(any(word in text for text in texts) for word in ("Hanabi", "Sokoban", "Sudoku"))


def test_it_is_made_without_a_bar_of_another_library(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_tiny(tmp_path / "model", texts=TEXTS)
    assert capfd.readouterr() == ("", "")
