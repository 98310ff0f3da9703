"""Messages to ids and back by a model's own tokenizer and chat template."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.errors import ModelError, SamplerError
from pettingllms.images import readable
from pettingllms.types import Ids, Message

CACHE = 4096
"""Prompts of which the ids are kept."""
GONE = "?"
"""Stands where a control token stood."""


class ChatRenderer:
    """Renders prompts as the model was taught to read them.

    What a policy wrote is only ever decoded; a teacher's reply is encoded once.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._pieces: dict[int, str] = {}
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        added = self._tokenizer.added_tokens_decoder.values()
        control = {str(token) for token in added if token.special}
        longest_first = sorted(control | set(self._tokenizer.all_special_tokens), key=len)[::-1]
        self._control = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # Forks, siblings and small games ask the same again and again, and a template is slow.
        self._rendered = lru_cache(maxsize=CACHE)(self._render)
        if not self._tokenizer.chat_template:
            raise ModelError(
                f"the model in {folder} has no chat template, so it cannot be given messages; take "
                "an instruct model, or put a chat_template.jinja into the folder"
            )

    def reads_as(self, other: "ChatRenderer") -> bool:
        """Whether ids mean the same to both."""
        same: bool = self._tokenizer.get_vocab() == other._tokenizer.get_vocab()  # noqa: SLF001
        return same

    @property
    def special(self) -> tuple[str, ...]:
        """What the tokenizer takes for more than text."""
        return tuple(token.content for token in self._tokenizer.added_tokens_decoder.values())

    def render(self, messages: Sequence[Message]) -> Ids:
        """Ids of the prompt, up to where the reply begins."""
        return self._rendered(tuple(messages))

    def _render(self, messages: tuple[Message, ...]) -> Ids:
        said = [{"role": m.speaker, "content": readable(m)} for m in messages]
        ids = self._templated(said, add_generation_prompt=True, return_dict=False)
        return np.array(ids, dtype=np.int32)

    @property
    def end(self) -> str:
        """Text of the token that ends a reply."""
        return str(self._tokenizer.eos_token)

    @property
    def num_ids(self) -> int:
        """Ids that mean something."""
        return len(self._tokenizer)

    def chat_text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], opens: bool
    ) -> str:
        """A chat by the template, up to where a reply begins if it `opens` one."""
        options = {"tools": list(tools) or None, "add_generation_prompt": opens}
        return str(self._templated(messages, tokenize=False, **options))

    def _templated(self, messages: Sequence[dict[str, Any]], **options: Any) -> Any:
        from jinja2 import TemplateError

        try:
            return self._tokenizer.apply_chat_template(list(messages), **options)
        except (TemplateError, TypeError) as error:
            reason = f"the model's chat template refuses these messages: {error}"
            raise SamplerError(reason) from error

    def text_ids(self, text: str, alone: bool = False) -> Ids:
        """Ids of such a text, or of a prompt that stands `alone`, without a template."""
        ids = self._tokenizer.encode(text, add_special_tokens=alone)
        return np.array(ids, dtype=np.int32)

    def encode(self, text: str) -> Ids:
        """Ids of a reply that no policy has written, and the one that ends it."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return np.array([*ids, self._tokenizer.eos_token_id], dtype=np.int32)

    def plain(self, text: str) -> str:
        """Somebody's text with a mark in the place of all that this model's tokenizer takes for
        control. Nothing is taken out, so that nothing new can close up around it."""
        return self._control.sub(GONE, text)

    def decode(self, ids: Ids) -> str:
        """The text without the tokens that end a reply."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))

    def _piece(self, id: int) -> str:  # noqa: A002 - as it is called everywhere
        if id not in self._pieces:
            self._pieces[id] = str(self._tokenizer.decode([id], skip_special_tokens=True))
        return self._pieces[id]

    def ends(self, ids: Ids, text: str) -> Ids | None:
        """Where the part of the text ends that each id stands for.

        Most ids mean the same text wherever they stand. Where they do not (letters of several ids,
        the space that some tokenizers drop) they are decoded one behind the other, which is slow.
        """
        pieces = [self._piece(one) for one in ids.tolist()]
        if "".join(pieces) != text:
            from tokenizers.decoders import DecodeStream

            stream = DecodeStream(skip_special_tokens=True)
            backend = self._tokenizer.backend_tokenizer
            pieces = [stream.step(backend, one) or "" for one in ids.tolist()]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int32)
        return ends if text.startswith("".join(pieces)) else None


def stop_ids(folder: Path) -> list[int]:
    """Ids that end a reply: the tokenizer's and those of the model's generation settings."""
    from transformers import AutoTokenizer, GenerationConfig

    found = {AutoTokenizer.from_pretrained(folder, local_files_only=True).eos_token_id}
    if (folder / "generation_config.json").is_file():
        eos = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        found.update(eos if isinstance(eos, list) else [eos])
    return sorted(found - {None})
