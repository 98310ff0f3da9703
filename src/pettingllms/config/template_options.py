"""Arguments of chat templates, such as `enable_thinking` of Qwen3."""

import re
from collections.abc import Mapping

TemplateValue = bool | int | float | str
RESERVED = frozenset(
    {
        *("messages", "conversation", "tools", "documents", "chat_template", "tokenize"),
        *("add_generation_prompt", "continue_final_message", "tokenizer_kwargs"),
        *("padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "bos_token", "eos_token"),
    }
)
"""Arguments of Transformers' `apply_chat_template` that the renderer sets itself."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_template_kwargs(given: Mapping[str, TemplateValue]) -> None:
    """Raise ValueError for names that a template cannot read, or that the renderer sets."""
    for name in given:
        if name in RESERVED:
            raise ValueError(f"'{name}' is set when prompts are rendered; leave it out")
        if not NAME.fullmatch(name):
            raise ValueError(f"'{name}' is no name of a variable, such as enable_thinking")
