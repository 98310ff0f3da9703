"""Tool calls in the formats of all model families, and malformed ones, which remain text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.gateway.calls import Call, ToolSpec
from pettingllms.gateway.tool_replies import FORMATS, QUOTE, CallFormat, format_of, reply_parts

KINDS = {"city": {"type": "string"}, "days": {"type": "integer"}, "now": {"type": "boolean"}}
WEATHER = ToolSpec("weather", parameters={"type": "object", "properties": KINDS})
HARMONY, GEMMA, MISTRAL, LLAMA = FORMATS
ULM = {"city": "Ulm", "days": 2}
FINAL = "<|channel|>final<|message|>"
TO_WEATHER = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
MARKS = sorted({mark for form in FORMATS for mark in form.marks})


def split(form: CallFormat | None, marked: str, tool: str = "weather") -> tuple[str, list[Any]]:
    """Text and calls of a reply, as a program receives them."""
    plain = marked
    for mark in form.marks if form else ():
        plain = plain.replace(mark, "")
    call = Call(model="m", tools=(ToolSpec(tool, parameters=WEATHER.parameters),), headers={})
    text, calls = reply_parts(plain, marked, form, call)
    return text, [(one.name, json.loads(one.arguments)) for one in calls]


CALLED = '{"name": "weather", "arguments": %s}'
TAGGED = f"<tool_call>\n{CALLED}\n</tool_call>"
HEADER = " to=functions.weather<|channel|>commentary json<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("form", "marked", "text"),
    [
        (None, f"Yes. {TAGGED}", "Yes."),
        (None, f"<think>\nx\n</think>\n\n{TAGGED}", "<think>\nx\n</think>"),
        (LLAMA, '{"name": "weather", "parameters": %s}', ""),
        (LLAMA, '<|python_tag|>{"name": "weather", "parameters": %s}', ""),
        (MISTRAL, f"[TOOL_CALLS][{CALLED}]</s>", ""),
        (MISTRAL, "Well. [TOOL_CALLS]weather[ARGS]%s", "Well."),
        (MISTRAL, "[TOOL_CALLS]weather[CALL_ID]abc123DEF[ARGS]%s", ""),
        (HARMONY, f"{TO_WEATHER}%s<|call|>", ""),
        (HARMONY, f"{HEADER}%s<|call|>", ""),
        (HARMONY, f"{ANALYSIS}{TO_WEATHER}%s<|call|>", ""),
        (HARMONY, f"{PREAMBLE}{HEADER}%s<|call|>", "I look."),
    ],
)
def test_a_call_is_parsed_in_the_format_of_each_family(
    form: CallFormat | None, marked: str, text: str
) -> None:
    assert split(form, marked % json.dumps(ULM)) == (text, [("weather", ULM)])


def test_a_parameter_that_is_more_than_its_value_stays_text() -> None:
    reply = '<tool_call>\n<function=weather>\n<parameter=days>\n5, "x": 6\n</parameter>\n'
    _, ((_, arguments),) = split(None, f"{reply}</function>\n</tool_call>")
    assert arguments == {"days": '5, "x": 6'}


def test_gemma_arguments_are_typed() -> None:
    body = (
        f"city:{QUOTE}Ulm {{days:3}}{QUOTE},days:2,now:true,more:{{a:[1,{QUOTE}b{QUOTE}],c:null}}"
    )
    said = f"<|channel>thought\nHm.<channel|>I look.<|tool_call>call:weather{{{body}}}<tool_call|>"
    arguments = {"city": "Ulm {days:3}", "days": 2, "now": True, "more": {"a": [1, "b"], "c": None}}
    for end in ("", "<|tool_response>", "<turn|>"):
        assert split(GEMMA, said + end) == ("I look.", [("weather", arguments)])


def test_several_calls_keep_their_order() -> None:
    both = [("weather", {"city": "A"}), ("weather", {"city": "B"})]
    gemma = "".join(f"<|tool_call>call:weather{{city:{QUOTE}{c}{QUOTE}}}<tool_call|>" for c in "AB")
    assert split(GEMMA, gemma) == ("", both)
    mistral = "".join(f'[TOOL_CALLS]weather[ARGS]{{"city": "{c}"}}' for c in "AB")
    assert split(MISTRAL, mistral) == ("", both)
    harmony = "<|start|>assistant".join(f'{TO_WEATHER}{{"city": "{c}"}}<|call|>' for c in "AB")
    assert split(HARMONY, harmony) == ("", both)


def test_a_reply_without_calls_is_its_final_text() -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    assert split(HARMONY, f"{thought}{FINAL}Rain.<|return|>") == ("Rain.", [])
    assert split(HARMONY, "<|channel|>analysis<|message|>Hm") == ("", [])
    assert split(HARMONY, "Rain.<|return|>") == ("Rain.", [])
    assert split(GEMMA, "<|channel>thought\nHm.<channel|>Rain.<turn|>") == ("Rain.", [])
    assert split(GEMMA, "<|channel>thought\nHm") == ("", [])
    assert split(HARMONY, f"{thought.replace('Hm', 'Hm ' * 5000)}{FINAL}Rain.") == ("Rain.", [])
    assert split(MISTRAL, "Rain.") == ("Rain.", [])
    assert split(LLAMA, "Rain.") == ("Rain.", [])


@pytest.mark.parametrize(
    ("form", "marked"),
    [
        (HARMONY, TO_WEATHER + '{"city": <|call|>'),
        (HARMONY, f"{TO_WEATHER}[1]<|call|>"),
        (HARMONY, f"{TO_WEATHER}{{}}<|call|>".replace("weather", "other")),
        (GEMMA, "<|tool_call>call:weather{city:"),
        (GEMMA, "<|tool_call>call:weather{city:Ulm}<tool_call|>"),
        (GEMMA, "<|tool_call>weather(1)<tool_call|>"),
        (GEMMA, f"<|tool_call>call:weather{{x:{'[' * 7000}}}<tool_call|>"),
        (GEMMA, f"<|tool_call>call:weather{{x:{'1' * 9000}}}<tool_call|>"),
        (MISTRAL, "[TOOL_CALLS]weather[ARGS]{"),
        (MISTRAL, "[TOOL_CALLS]weather[ARGS]{}[TOOL_CALLS]"),
        (LLAMA, '<|python_tag|>weather.call(city="Ulm")'),
        (None, '<tool_call>{"name": "weather", "arguments": {}'),
        (None, '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
    ],
)
def test_a_malformed_call_is_text(form: CallFormat | None, marked: str) -> None:
    text, calls = split(form, marked)
    assert not calls
    for mark in form.marks if form else ():
        marked = marked.replace(mark, "")
    assert text == marked


def test_a_call_drafted_in_reasoning_is_text() -> None:
    draft = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
    for opening in ("<think>\n", ""):  # some prompts open the reasoning
        reply = f"{opening}Perhaps {draft}?\n</think>\n\nNo need."
        assert split(None, reply) == (reply, [])
        text, calls = split(None, f"{opening}Hm.\n</think>\n\n{draft}")
        assert (text, calls) == (f"{opening}Hm.\n</think>", [("weather", {})])


def test_arguments_in_xml_get_the_types_of_the_schema() -> None:
    inside = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n"
        for name, value in (("city", "12"), ("days", "2"), ("now", "true"), ("other", "3"))
    )
    reply = f"<tool_call>\n<function=weather>\n{inside}</function>\n</tool_call>"
    arguments = {"city": "12", "days": 2, "now": True, "other": "3"}
    assert split(None, reply) == ("", [("weather", arguments)])
    wrong = reply.replace("\n2\n", "\ntwo\n").replace("\ntrue\n", "\n1\n")
    assert split(None, wrong)[1] == [("weather", {**arguments, "days": "two", "now": "1"})]


def test_the_control_tokens_decide_the_format() -> None:
    assert format_of(["<|im_end|>", "<|end|>"]) is None
    assert format_of(["</s>", "[TOOL_CALLS]"]) is MISTRAL
    assert format_of(["<|eot_id|>", "<|python_tag|>"]) is LLAMA
    assert format_of(["<|end|>", "<|channel|>"]) is HARMONY
    assert format_of(["<turn|>", "<|tool_call>"]) is GEMMA


PIECES = (
    *(*MARKS, "call:weather{", "}", "{", "[", "]", '"', "weather", " to=functions.weather"),
    *('{"name": "weather", "arguments": {}}', "analysis", "final", "<tool_call>", "</tool_call>"),
    *("<think>", "</think>", "<function=weather>", "</function>", "city:", ",", "1e999", "NaN"),
    *("\\ud800", "\ud800", ":", "é"),
)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join))
def test_no_reply_raises(text: str) -> None:
    for form in (*FORMATS, None):
        said, calls = split(form, text)
        assert isinstance(said, str)
        assert all(isinstance(arguments, dict) for _, arguments in calls)
