"""Messages to ids and back, with a model's tokenizer and chat template."""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pettingllms.config.template_options import TemplateValue
from pettingllms.errors import ModelError, SamplerError
from pettingllms.inference.control_tokens import ControlTokens
from pettingllms.policies.chat_template import require_used
from pettingllms.types import Ids, Message
from pettingllms.vision.images import text_only

CACHE = 4096
"""Prompts whose ids are cached."""
TemplateKwargs = Mapping[str, TemplateValue]
"""Arguments of a chat template."""
NO_KWARGS: TemplateKwargs = {}


class ChatRenderer:
    """Renders prompts with the model's chat template.

    Sampled replies are only decoded, never encoded again; a demonstration is encoded once. Text
    never becomes a control token: those in a prompt come from the template.
    """

    def __init__(self, folder: Path, template_kwargs: TemplateKwargs = NO_KWARGS) -> None:
        """`template_kwargs`: arguments of the chat template, such as `enable_thinking`."""
        self._template_kwargs: dict[str, Any] = dict(template_kwargs)
        self._pieces: dict[int, str] = {}
        self._tokenizer = load_tokenizer(folder)
        self._control = ControlTokens(self._tokenizer)
        # Forks, siblings and small games repeat prompts, and templates are slow.
        self._rendered = lru_cache(maxsize=CACHE)(self._render)
        if not self._tokenizer.chat_template:
            raise ModelError(
                f"the model in {folder} has no chat template, so it cannot read messages; use an "
                "instruct model, or put a chat_template.jinja into the folder"
            )
        require_used(template_kwargs, str(self._tokenizer.chat_template), folder)

    def reads_as(self, other: "ChatRenderer") -> bool:
        """Whether both have the same vocabulary."""
        same: bool = self._tokenizer.get_vocab() == other._tokenizer.get_vocab()  # noqa: SLF001
        return same

    @property
    def special(self) -> tuple[str, ...]:
        """Spellings of the tokenizer's control tokens."""
        return self._control.spellings

    def render(self, messages: Sequence[Message]) -> Ids:
        """Ids of the prompt, up to where the reply begins."""
        return self._rendered(tuple(messages))

    def _render(self, messages: tuple[Message, ...]) -> Ids:
        chat = [{"role": m.speaker, "content": text_only(m)} for m in messages]
        return self.text_ids(self.chat_text(chat, (), True))

    @property
    def end(self) -> str:
        """Text of the token that ends a reply."""
        return str(self._tokenizer.eos_token)

    @property
    def num_ids(self) -> int:
        """Size of the vocabulary."""
        return len(self._tokenizer)

    def chat_text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], opens: bool
    ) -> str:
        """A chat rendered by the template, up to the start of a reply if it `opens` one. Pass it to
        `text_ids` only: it has a mark where a message spells a control token."""
        from jinja2 import TemplateError

        try:
            text = self._tokenizer.apply_chat_template(
                self._control.cut(messages),
                tools=self._control.cut(tools) or None,
                add_generation_prompt=opens,
                tokenize=False,
                **self._template_kwargs,
            )
        except (TemplateError, TypeError, RecursionError) as error:
            reason = f"the model's chat template rejected the messages: {error}"
            raise SamplerError(reason) from error
        return str(text)

    def text_ids(self, text: str) -> Ids:
        """Ids of a text from `chat_text`, or of a part of it."""
        return np.array(self._ids(text), dtype=np.int32)

    def prompt_ids(self, text: str) -> Ids:
        """Ids of a prompt without a template, with the tokenizer's own special tokens."""
        ids = self._ids(self._control.cut(text))
        return np.array([*self._around[0], *ids, *self._around[1]], dtype=np.int32)

    def encode(self, text: str) -> Ids:
        """Ids of a reply that was not sampled, with the end token."""
        ids = self._ids(self._control.cut(text))
        return np.array([*ids, self._tokenizer.eos_token_id], dtype=np.int32)

    def _ids(self, text: str) -> list[int]:
        """Ids of a text in which marks split the spellings of control tokens."""
        pieces = self._control.pieces(text)
        try:
            if len(pieces) == 1:
                return list(self._tokenizer.encode(text, add_special_tokens=False))
            found = self._tokenizer(
                pieces, add_special_tokens=False, return_attention_mask=False, verbose=False
            )
        except (TypeError, UnicodeEncodeError) as error:
            raise SamplerError(f"the model's tokenizer rejected the text: {error}") from error
        return [one for ids in found["input_ids"] for one in ids]

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The special tokens that the tokenizer adds before and after a prompt without template."""
        bare = self._tokenizer.encode("x", add_special_tokens=False)
        whole = self._tokenizer.encode("x", add_special_tokens=True)
        start = next(at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        return whole[:start], whole[start + len(bare) :]

    def decode(self, ids: Ids) -> str:
        """The text without the tokens that end a reply."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))

    def marked_text(self, ids: Ids, marks: Sequence[str]) -> str:
        """The text with the spellings of these control tokens, which `decode` leaves out."""
        known = [mark for mark in marks if mark in self.special]
        spelled = {self._tokenizer.convert_tokens_to_ids(mark): mark for mark in known}
        places = [at for at, one in enumerate(ids.tolist()) if one in spelled]
        text, start = "", 0
        for at in places:
            text += self.decode(ids[start:at]) + spelled[int(ids[at])]
            start = at + 1
        return text + self.decode(ids[start:])

    def _piece(self, id: int) -> str:  # noqa: A002 - the usual name
        if id not in self._pieces:
            self._pieces[id] = str(self._tokenizer.decode([id], skip_special_tokens=True))
        return self._pieces[id]

    def ends(self, ids: Ids, text: str) -> Ids | None:
        """The end of each id's part of the text.

        Most ids decode to the same text in any context. If they do not (characters of several ids,
        a space that some tokenizers drop), they are decoded one after another, which is slow.
        """
        pieces = [self._piece(one) for one in ids.tolist()]
        if "".join(pieces) != text:
            from tokenizers.decoders import DecodeStream

            stream = DecodeStream(skip_special_tokens=True)
            backend = self._tokenizer.backend_tokenizer
            pieces = [stream.step(backend, one) or "" for one in ids.tolist()]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int32)
        return ends if text.startswith("".join(pieces)) else None


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model's folder.

    Folders of Mistral models also have a `tekken.json`, for which Transformers would load a
    tokenizer of mistral-common, without chat template and control tokens.
    """
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, mistral_format=False)


def stop_ids(folder: Path) -> list[int]:
    """Ids that end a reply: the tokenizer's and those of the model's generation settings."""
    from transformers import GenerationConfig

    found = {load_tokenizer(folder).eos_token_id}
    if (folder / "generation_config.json").is_file():
        eos = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        found.update(eos if isinstance(eos, list) else [eos])
    return sorted(found - {None})
