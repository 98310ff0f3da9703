"""Tiny models of real architectures with random weights, for tests and small CPUs."""

import random
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from pettingllms.envs import Environment, make_env
from pettingllms.errors import ModelError
from pettingllms.models.folder import save_quietly, whole
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed

Architecture = Literal["qwen3", "llama"]
_END, _PAD = "<|im_end|>", "<|pad|>"
_SPECIAL = ["<|endoftext|>", "<|im_start|>", _END, _PAD]
_HEAD_DIM = 32
_CONTEXT = 2048
_SMALLEST = 256 + len(_SPECIAL)
_WORDS = "[a-z]{2,}|[\\s\\S]"
"""Lowercase words; any other character by itself."""
_SYMBOLS = ("<|im_end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>")
_ONE_EACH = """\
{%- for message in messages %}
{{- '<|' + message['role'] + '|>' + message['content'] }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>' }}
{%- endif %}
"""
_CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def make_tiny(
    folder: Path,
    architecture: Architecture = "qwen3",
    texts: Iterable[str] | None = None,
    hidden_size: int = 128,
    num_layers: int = 2,
    vocab_size: int = 512,
    seed: int = 0,
    symbols: bool = False,
    mlp_size: int | None = None,
    head_dim: int = _HEAD_DIM,
    number_digits: int = 1,
) -> Path:
    """Write a randomly initialized model with its own tokenizer; the same bytes each time.

    The tokenizer is trained on the texts, or on prompts and replies of the built-in environments,
    and has at most `vocab_size` tokens. The default model has about a million parameters.

    With `symbols` every character is a separate token, except lowercase words, and a message takes
    one token more than its text: for boards and grids, whose cells should not be merged. Numbers of
    up to `number_digits` digits are one token each.
    """
    if architecture not in ("qwen3", "llama"):
        raise ModelError(f"unknown architecture '{architecture}'; expected qwen3 or llama")
    check_sizes(hidden_size, num_layers, vocab_size, head_dim)
    folder = folder.expanduser().absolute()
    with whole(folder) as part:
        known = environment_texts() if texts is None else texts
        if symbols:
            tokenizer = make_symbol_tokenizer(known, vocab_size, number_digits=number_digits)
        else:
            tokenizer = make_tokenizer(known, vocab_size)
        # Wider than usual: a small vocabulary leaves most parameters to the layers.
        width = mlp_size or 8 * hidden_size
        model = _model(architecture, tokenizer, hidden_size, num_layers, width, head_dim, seed)
        save_quietly(model, part)
        tokenizer.save_pretrained(part)
    return folder


def check_sizes(hidden_size: int, num_layers: int, vocab_size: int, head_dim: int) -> None:
    """Raise ModelError if a model of these sizes cannot be created."""
    if find_spec("transformers") is None or find_spec("torch") is None:
        raise ModelError(
            "a tiny model needs torch and transformers; pip install 'pettingllms[cpu]', or [gpu]"
        )
    if hidden_size < 1 or hidden_size % (2 * head_dim):
        raise ModelError(f"hidden_size = {hidden_size}: expected a multiple of {2 * head_dim}")
    if num_layers < 1:
        raise ModelError(f"num_layers = {num_layers}: expected 1 or more")
    if vocab_size < _SMALLEST:
        raise ModelError(
            f"vocab_size = {vocab_size}: 256 bytes and {len(_SPECIAL)} special tokens need at "
            f"least {_SMALLEST}"
        )


def make_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    special: Sequence[str] = (),
    template: str = _CHATML,
) -> Any:
    """A byte-level BPE tokenizer trained on the texts, with additional special tokens."""
    from tokenizers import pre_tokenizers

    cut = pre_tokenizers.Digits(individual_digits=True)
    return _trained(texts, vocab_size, cut, True, [*_SPECIAL, *special], template)


def make_symbol_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    special: Sequence[str] = (),
    template: str = _ONE_EACH,
    number_digits: int = 1,
) -> Any:
    """A tokenizer that does not merge symbols, with additional special tokens."""
    from tokenizers import Regex, pre_tokenizers

    pattern, numbers = _WORDS, range(0)
    if number_digits > 1:
        pattern = f"[0-9]{{2,{number_digits}}}|{_WORDS}"
        numbers = range(10, 10**number_digits)
    cut = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    known = chain(texts, map(str, numbers))
    tokenizer = _trained(known, vocab_size, cut, False, [*_SYMBOLS, *special], template)
    tokens = tokenizer.get_vocab()
    if missing := sum(str(number) not in tokens for number in numbers):
        raise ModelError(
            f"vocab_size = {vocab_size} has no room for {missing} of the {len(numbers)} numbers of "
            f"two to {number_digits} digits; set {vocab_size + missing} or more"
        )
    return tokenizer


def _trained(
    texts: Iterable[str],
    vocab_size: int,
    cut: Any,
    use_regex: bool,
    special: Sequence[str],
    template: str,
) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe: Any = Tokenizer(models.BPE())
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([cut, by_bytes])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    wrapper: Any = PreTrainedTokenizerFast
    return wrapper(
        tokenizer_object=bpe,
        eos_token=_END,
        pad_token=_PAD,
        additional_special_tokens=[token for token in special if token not in (_END, _PAD)],
        model_max_length=_CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )


def _model(
    architecture: str,
    tokenizer: Any,
    hidden_size: int,
    num_layers: int,
    mlp_size: int,
    head_dim: int,
    seed: int,
) -> Any:
    import torch
    import transformers

    num_heads = hidden_size // head_dim
    config = transformers.AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=mlp_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // 2,
        head_dim=head_dim,
        # The usual 0.02 is made for widths of thousands; so narrow a model would train slowly.
        initializer_range=hidden_size**-0.5,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    auto: Any = transformers.AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return auto.from_config(config, dtype=torch.float32)


def environment_texts() -> list[str]:
    """Prompts and replies of one episode of every environment with each of its scripted players.

    Environments that call external programs or show images are left out: the tokenizer must be the
    same on every machine.
    """
    envs = [make_env(name) for name in ENVIRONMENTS.names()]
    return texts_of([env for env in envs if not env.blocking and not env.image_roles], num_tasks=1)


def texts_of(envs: Iterable[Environment[Any, Any]], num_tasks: int) -> list[str]:
    """Distinct prompts and replies of every scripted player on the first tasks. Duplicates are
    removed, so that a long game does not dominate."""
    return list(dict.fromkeys(text for env in envs for text in _texts(env, num_tasks)))


def _texts(env: Environment[Any, Any], num_tasks: int) -> Iterator[str]:
    for player in env.players:
        rng = random.Random(derive_seed("texts", env.id, player))
        for task in islice(env.tasks("train") or env.tasks("test"), num_tasks):
            state = env.reset(task, 0)
            while roles := env.acting(state):
                for role in roles:
                    yield from (message.text for message in env.observe(state, role))
                replies = {role: env.player(player)(env, state, role, rng) for role in roles}
                yield from replies.values()
                state = env.step(state, replies).state
