"""Why prompts differ, for the page that compare_chat_templates.py writes."""

from collections.abc import Callable

from chat_template_page import Difference

OURS = frozenset({"environment", "gateway", "continued", "demonstration"})
UNKNOWN = "No known reason."
SPELLED = (
    "**Text that spells control tokens stays text in PettingLLMs** (intended). Transformers turns "
    "such text into control tokens, so a message could end itself and speak as another role. vLLM "
    "does so too, except for GPT-OSS and with mistral-common. See "
    "`src/pettingllms/inference/control_tokens.py`."
)
BARE = (
    "**A tool without description or parameters.** Transformers passes the tool as it is. vLLM "
    "writes the missing fields as `null`. The gateway writes an empty description and an empty "
    "object of parameters, so that templates which require them, such as that of GPT-OSS, accept "
    "the tool. Tools with both fields have equal ids."
)
FOLDED = (
    "**Templates without tools.** Transformers and vLLM drop the tools without a warning, or "
    "reject their results. The gateway writes tools, calls and results into the text, in the "
    "format of Hermes and Qwen."
)
AFTER_END = (
    "**Text after the end of a reply.** Training on demonstrations ends with the token that the "
    "model samples last. The line break that the template writes after it belongs to the next "
    "prompt."
)
THINK = (
    "**Empty reasoning.** Qwen3's template writes an empty `<think>` block before the last reply. "
    "Training on demonstrations starts the reply where the prompt ends, so the reply has no such "
    "block. Set `chat_template_kwargs.enable_thinking = false` to have it in the prompt."
)
SYSTEM_LAST = (
    "**The system message of Mistral Nemo.** Its template writes the system message into the last "
    "message, and only if that is a user's. A chat that ends with a reply or a tool's result loses "
    "it. Training on demonstrations keeps the prompt as it was when the reply was asked for."
)
CHANNEL = (
    "**Channels of GPT-OSS (limitation).** Its template starts a reply with "
    "`<|channel|>final<|message|>`. Training on demonstrations does not, so the model would learn "
    "replies without a channel. Do not fine-tune GPT-OSS on demonstrations of text; sampled "
    "replies have their channels."
)
HARMONY = (
    "**vLLM does not use the template of GPT-OSS.** It renders with openai-harmony, which writes "
    "no blank lines after the instructions, writes non-ASCII letters of arguments as escapes, does "
    "not quote results of tools, orders the header of a result differently and always opens a "
    "reply. Rollouts of PettingLLMs send ids, so they are not affected; a deployed model is."
)
CALL_ORDER = (
    "**Order of keys in tool calls.** vLLM orders the parts of a tool call as its request type "
    "does. Templates that write the call as a whole, such as Mistral's, show it."
)
COMMON = (
    "**vLLM renders Mistral models with mistral-common** if their folder has `tekken.json`, "
    "instead of the template. It keeps the system message if the chat ends with a tool's result; "
    "the template drops it. Start vLLM with `--tokenizer-mode hf` to serve what was trained."
)
CODE_GPT_OSS = (
    "**`renderers` has its own code for GPT-OSS.** It opens the reply with the channel `analysis`, "
    "writes no blank line after the instructions and orders the headers of calls and results "
    "differently."
)
CODE_2507 = (
    "**`renderers` uses its code for Qwen3 also for Qwen3 2507**, whose template neither removes "
    "reasoning from earlier replies nor writes an empty `<think>` block."
)
CODE_DEEPSEEK = (
    "**Tool calls of DeepSeek V3.** Its template drops a tool call unless the content of the "
    "message is null; `renderers` writes the call."
)
Rule = tuple[Callable[[Difference], bool], str]
RULES: list[Rule] = [
    (lambda one: one.way == "vllm" and "`mistral` mode" in one.family, COMMON),
    (lambda one: one.way == "vllm" and one.family == "GPT-OSS", HARMONY),
    (lambda one: one.conversation == "spelled" and one.way in OURS, SPELLED),
    (lambda one: one.way == "renderers" and one.family == "GPT-OSS", CODE_GPT_OSS),
    (lambda one: one.way == "renderers" and one.family == "Qwen3 2507", CODE_2507),
    (lambda one: one.way == "renderers" and one.family == "DeepSeek V3", CODE_DEEPSEEK),
    (
        lambda one: one.way == "gateway" and one.family in ("Gemma 3", "DeepSeek V3", "SmolLM2"),
        FOLDED,
    ),
    (lambda one: one.conversation == "bare tool", BARE),
    (lambda one: one.way == "vllm" and one.conversation == "tool result", CALL_ORDER),
    (lambda one: one.way == "demonstration" and one.family == "GPT-OSS", CHANNEL),
    (lambda one: one.way == "demonstration" and one.family == "Qwen3", THINK),
    (lambda one: one.way == "demonstration" and "Mistral" in one.family, SYSTEM_LAST),
    (lambda one: one.way == "demonstration" and one.num_ids == 1 and not one.found, AFTER_END),
]
"""The first rule that fits gives the reason."""


def reason_of(one: Difference) -> str:
    """The reason of a difference."""
    return next((reason for fits, reason in RULES if fits(one)), UNKNOWN)
