"""Messages to ids and back by a model's own tokenizer and chat template."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pettingllms.errors import ModelError
from pettingllms.types import Ids, Message


class ChatRenderer:
    """Renders prompts as the model was taught to read them. Replies are only ever decoded."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not self._tokenizer.chat_template:
            raise ModelError(
                f"the model in {folder} has no chat template, so it cannot be given messages; take "
                "an instruct model, or put a chat_template.jinja into the folder"
            )

    def reads_as(self, other: "ChatRenderer") -> bool:
        """Whether ids mean the same to both."""
        same: bool = self._tokenizer.get_vocab() == other._tokenizer.get_vocab()  # noqa: SLF001
        return same

    def render(self, messages: Sequence[Message]) -> Ids:
        """Ids of the prompt, up to where the reply begins."""
        ids = self._tokenizer.apply_chat_template(
            [{"role": m.speaker, "content": m.content} for m in messages],
            add_generation_prompt=True,
            return_dict=False,
        )
        return np.array(ids, dtype=np.int32)

    def decode(self, ids: Ids) -> str:
        """The text without the tokens that end a reply."""
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=True))


def stop_ids(folder: Path) -> list[int]:
    """Ids that end a reply: the tokenizer's and those of the model's generation settings."""
    from transformers import AutoTokenizer, GenerationConfig

    found = {AutoTokenizer.from_pretrained(folder, local_files_only=True).eos_token_id}
    if (folder / "generation_config.json").is_file():
        eos = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        found.update(eos if isinstance(eos, list) else [eos])
    return sorted(found - {None})
