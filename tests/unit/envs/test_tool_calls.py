"""Tool calls of every family are read; what is malformed is refused with its reason."""

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.tool_calls import Parameter, Tool, ToolCall, calls_in, one_call
from pettingllms.envs.toolkit.tool_texts import as_call, as_result, describe, exchange, shown

RUN = Tool("run", "Run a query.", (Parameter("sql", "The query."),), fence="sql")
LOOK = Tool(
    "look",
    "Look at a table.",
    (Parameter("table", "Its name."), Parameter("rows", "How many.", "integer", required=False)),
)
TOOLS = (RUN, LOOK)
STYLES = ("hermes", "llama", "mistral")
SQL = "SELECT a FROM b WHERE c < 3"
SAME = [
    f'<tool_call>\n{{"name": "run", "arguments": {{"sql": "{SQL}"}}}}\n</tool_call>',
    f'I look.\n<tool_call>[{{"name": "run", "arguments": {{"sql": "{SQL}"}}}}]</tool_call>',
    f"<tool_call>\n<function=run>\n<parameter=sql>\n{SQL}\n</parameter>\n</function>\n</tool_call>",
    f'{{"name": "run", "parameters": {{"sql": "{SQL}"}}}}',
    f'<|python_tag|>{{"name": "run", "parameters": {{"sql": "{SQL}"}}}}',
    f'[{{"name": "run", "arguments": {{"sql": "{SQL}"}}}}]',
    f'[TOOL_CALLS][{{"name": "run", "arguments": {{"sql": "{SQL}"}}}}]',
    f'[TOOL_CALLS] [{{"name": "run", "arguments": {{"sql": "{SQL}"}}}}]</s>',
    f'[TOOL_CALLS]run[ARGS]{{"sql": "{SQL}"}}',
    f'[TOOL_CALLS]run{{"sql": "{SQL}"}}',
    f'Let me see.\n```json\n{{"name": "run", "arguments": {{"sql": "{SQL}"}}}}\n```',
    f"Let me see.\n```sql\n{SQL}\n```\nThat should do.",
    json.dumps({"name": "run", "arguments": json.dumps({"sql": SQL})}),
]
WRONG = [
    ('<tool_call>{"name": "run"', "do not belong together"),
    ('{"name": "run"}</tool_call>', "do not belong together"),
    ("<tool_call>run the query</tool_call>", "no JSON between"),
    ("<tool_call>{'name': 'run'}</tool_call>", "at letter 2"),
    ('<tool_call>{"name": "run"} and more</tool_call>', "something follows"),
    ('<tool_call>"run"</tool_call>', "a call is an object"),
    ('<tool_call>{"arguments": {}}</tool_call>', "needs a 'name'"),
    ('<tool_call>{"name": 7}</tool_call>', "needs a 'name'"),
    ('<tool_call>{"name": "run", "name": "look"}</tool_call>', "one thing twice"),
    ('<tool_call>{"name": "run", "arguments": [1]}</tool_call>', "'arguments' of a call"),
    ('<tool_call>{"name": "run", "arguments": {}, "parameters": {}}</tool_call>', "not both"),
    ('<tool_call>{"name": "run", "arguments": "{"}</tool_call>', "in the 'arguments'"),
    ("<tool_call><function=run>SELECT</function></tool_call>", "parameters alone"),
    ('<tool_call>{"name": "rum", "arguments": {"sql": "x"}}</tool_call>', "did you mean 'run'"),
    ('<tool_call>{"name": "run", "arguments": {"sq": "x"}}</tool_call>', "did you mean 'sql'"),
    ('<tool_call>{"name": "run", "arguments": {}}</tool_call>', "needs the argument 'sql'"),
    ('<tool_call>{"name": "run", "arguments": {"sql": 3}}</tool_call>', "no string"),
    ('{"name": "look", "parameters": {"table": "t", "rows": true}}', "no integer"),
    ('{"name": "look", "parameters": {"table": "t", "rows": NaN}}', "NaN is no number"),
    ('{"name": "look", "parameters": {"table": "\\ud800"}}', "no text"),
    ('{"name": "look", "parameters": {"table": "\\u001b[2J"}}', "no text"),
    ('{"name": "run", "parameters": {"sql": "x"}} Done.', "something follows"),
    ("[TOOL_CALLS]run", "no JSON after"),
    ("```json\n{]\n```", "in the ```json block"),
    (SAME[0] + SAME[0], "2 tool calls"),
    (SAME[3] + ";" + SAME[3], "2 tool calls"),
    ('{"a":' * 1300, "no JSON"),
    ('{"a": "' + "x" * 9000, "8000 at most"),
    ("x" * 9000 + f"\n```sql\n{SQL}\n```", "8000 at most"),
    ('{"name": "look", "parameters": {"table": "t", "rows": ' + "9" * 5000 + "}}", "no JSON"),
]


@pytest.mark.parametrize("reply", SAME)
def test_one_call_in_every_form(reply: str) -> None:
    assert one_call(reply, TOOLS) == ToolCall("run", (("sql", SQL),))


@pytest.mark.parametrize(
    "reply", ["", "No.", "<answer>7</answer>", "```python\nprint(1)\n```", "{x}s"]
)
def test_no_call_is_no_error_unless_it_looks_like_one(reply: str) -> None:
    if reply.startswith("{"):
        with pytest.raises(BadReply, match="no JSON"):
            one_call(reply, TOOLS)
    else:
        assert one_call(reply, TOOLS) is None


@pytest.mark.parametrize(("reply", "reason"), WRONG)
def test_a_malformed_call_says_what_was_wrong(reply: str, reason: str) -> None:
    with pytest.raises(BadReply) as refusal:
        one_call(reply, TOOLS)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_a_long_thought_with_braces_and_fences_calls_nothing() -> None:
    thought = "The set {a} is small.\n```python\nprint({1})\n```\n" * 300
    assert one_call(thought, TOOLS) is None
    assert one_call(f"{thought}<answer>7</answer>", TOOLS) is None
    assert one_call(f"```sql\n{SQL}\n``` or <answer>7</answer>", TOOLS) is None


@pytest.mark.parametrize(
    "reply",
    [
        "```sql\n" * 100_000,
        "x\n```\n" * 100_001,
        "x" + "`" * 500_000,
        "```" + " " * 500_000,
        "[TOOL_CALLS]a" + " " * 7900,
        "<tool_call>" * 700,
        "<tool_call><function=a>" + "<parameter=b>" * 550 + "</function></tool_call>",
    ],
)
def test_a_hostile_reply_takes_no_long_time(reply: str) -> None:
    start = time.process_time()
    with contextlib.suppress(BadReply):
        assert one_call(reply, TOOLS) is None
    assert time.process_time() - start < 1


TEXTS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=60)


@given(sql=TEXTS, style=st.sampled_from(STYLES))
def test_what_is_written_is_read_back(sql: str, style: str) -> None:
    call = ToolCall("run", (("sql", sql),))
    if "tool_call>" in sql or "[TOOL_CALLS]" in sql:
        return
    assert [one.name for one in calls_in(as_call(call, style))] == ["run"]
    if all(sign.isprintable() for sign in sql):
        assert one_call(as_call(call, style), TOOLS) == call


@given(table=TEXTS, rows=st.integers(-(10**9), 10**9))
def test_several_arguments_keep_their_kinds(table: str, rows: int) -> None:
    if all(sign.isprintable() for sign in table) and "tool_call>" not in table:
        call = ToolCall("look", (("table", table), ("rows", rows)))
        assert one_call(as_call(call), TOOLS) == call


PIECES = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            "[TOOL_CALLS]",
            "[ARGS]",
            "```json\n",
            "```sql\n",
            "\n```",
        ),
        *("{", "}", "[", "]", ":", ",", ";", '"name"', '"run"', '"arguments"', "<function=run>"),
        *("</function>", "<parameter=sql>", "</parameter>", "<|python_tag|>", "\ud800", "\x00"),
        *("9" * 30, "💥"),
    ]
)


@given(st.lists(PIECES, max_size=14))
def test_any_reply_is_read_or_refused_and_never_raises(pieces: list[str]) -> None:
    try:
        call = one_call("".join(pieces), TOOLS)
    except BadReply:
        return
    assert call is None or call.name in ("run", "look")


@given(st.text())
def test_nothing_shown_keeps_control_signs_or_marks(text: str) -> None:
    for marked in (text, f"<|im_start|>{text}", f"{text}</tool_response>[INST]"):
        clean = shown(marked)
        assert all(sign.isprintable() or sign == "\n" for sign in clean)
        assert not any(mark in clean for mark in ("<|", "</tool_response>", "[INST]"))


def test_what_is_shown_has_an_end() -> None:
    assert len(shown("A" * 20_000)) < 50
    assert len(shown("a b " * 5000)) < 620


@pytest.mark.parametrize("style", STYLES)
def test_tools_are_described_with_the_form_that_is_read(style: str) -> None:
    text = describe(TOOLS, style)
    assert all(tool.about in text for tool in TOOLS)
    assert {"hermes": "<tool_call>", "llama": '"parameters"', "mistral": "[TOOL_CALLS]"}[
        style
    ] in text


def test_an_exchange_is_two_messages_without_marks_of_others() -> None:
    call = ToolCall("run", (("sql", "SELECT '<|im_start|>'"),))
    said, given_back = exchange(call, shown("<|im_start|>system"))
    assert (said.speaker, given_back.speaker) == ("assistant", "user")
    assert "im_start" not in said.content + given_back.content
    assert given_back.content == as_result(call, "?system")
