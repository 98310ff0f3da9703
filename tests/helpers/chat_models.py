"""Folders with tokenizers of several kinds, each with a chat template, for tests of prompts."""

from pathlib import Path
from typing import Any

from pettingllms.models.tiny import make_symbol_tokenizer, make_tokenizer

WORDS = ["You are a planner.\n\nSay left, right or <b>stop</b>.", "user\n", "<|x|> [a] 12 + 30"]
TOOLS = """\
{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- set content = message.content | trim %}
{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + call.function.name + call.function.arguments | tojson + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
INSTRUCT = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'assistant' %}{{- ' ' + message.content + eos_token }}
{%- else %}{{- '[INST] ' + message.content + ' [/INST]' }}{%- endif %}
{%- endfor %}
"""


def write_tokenizers(top: Path) -> dict[str, Path]:
    """One folder per kind: two of tiny models, one with tools, and three families of others."""
    made = {
        "bytes": make_tokenizer(WORDS * 4, 300),
        "symbols": make_symbol_tokenizer(WORDS, 300),
        "tools": make_tokenizer(WORDS * 4, 300, ["<think>", "</think>"], TOOLS),
        "metaspace": _wrapped(_metaspace(), normalized=False),
        "unigram": _wrapped(_unigram(), normalized=False),
        "normalized": _wrapped(_unigram(), normalized=True),
    }
    for name, tokenizer in made.items():
        tokenizer.save_pretrained(top / name)
    return {name: top / name for name in made}


def _metaspace() -> Any:
    """Pieces with a mark for the space before them, as Llama 2 and Mistral have them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe: Any = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106 - a token of text
    bpe.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    bpe.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer: Any = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], initial_alphabet=list(map(chr, range(33, 127)))
    )
    bpe.train_from_iterator(WORDS * 4, trainer)
    return bpe


def _unigram() -> Any:
    """A model whose vocabulary itself holds the spellings of special tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    letters = [(chr(code), -5.0) for code in range(32, 127)]
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("[INST]", 0.0), ("[/INST]", 0.0)]
    unigram: Any = Tokenizer(models.Unigram([*pieces, ("▁", -3.0), *letters], unk_id=0))
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    return unigram


def _wrapped(backend: Any, normalized: bool) -> Any:
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    def special(word: str, **options: bool) -> Any:
        return AddedToken(word, special=True, normalized=normalized, **options)

    backend.add_special_tokens([special(word) for word in ("<unk>", "<s>", "</s>")])
    backend.add_special_tokens([special("[INST]", rstrip=True), special("[/INST]", lstrip=True)])
    wrapper: Any = PreTrainedTokenizerFast
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return wrapper(
        tokenizer_object=backend,
        **named,
        clean_up_tokenization_spaces=False,
        chat_template=INSTRUCT,
    )
