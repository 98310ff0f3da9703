"""Team graphs: which texts are graphs, and what the others earn."""

import ast
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.envs import make_env
from pettingllms.envs.tasks import team_design
from pettingllms.envs.tasks.team_design.graph import (
    MAX_LETTERS,
    Executor,
    Limits,
    TeamGraph,
    executor_role,
    graph_text,
    parse_graph,
    short_text,
)
from pettingllms.envs.tasks.team_design.structures import (
    mutated,
    pruned,
    random_graph,
)
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.types import Rewards, Scored

LIMITS = Limits(num_parts=2, max_executors=3, max_rounds=2, max_reads=2)
COST = 0.02
GOOD = {"team": [{"role": "executor_1", "reads": ["a", "b"]}], "answers": "executor_1"}


def graph_with(**fields: Any) -> str:
    """A graph of one executor with other fields."""
    return json.dumps({**GOOD, **fields})


def executor_with(**fields: Any) -> str:
    """A graph whose executor has other fields."""
    return graph_with(team=[{**GOOD["team"][0], **fields}])


def cycle(*hears: int) -> str:
    """A graph in which executor i hears executor hears[i]."""
    team = [
        {"role": executor_role(at), "hears": [executor_role(heard)]}
        for at, heard in enumerate(hears, 1)
    ]
    return graph_with(team=team)


TEXTS = [
    "", " ", "null", "true", "1", "-1", "1e999", '"text"', "{}", "[]", "[[]]", "[1]", "[null]", "{",
    "}", "[", "]", "{]", "[}", '{"team"}', "nan", "NaN", "Infinity", "[NaN]", "'a'", "['a']",
    '["a",]', '["a"] ["b"]', '["a"]x', "\x00", "\ufeff[]", "\ud800", '["\\ud800"]', '["\x00"]',
    '["x"]', '["A"]', '["c"]', '["aa"]', '["0"]', '["11"]', '["ba1"]', '["1a"]', '["av"]',
    '["vv"]', '["²"]', '["١"]', '["1"]', '["2","1"]', '["2","3","1"]', '["a","b","4"]',
    '["a","a","a","a"]', '["a"' + ',"a"' * 500 + "]", '["' + "a" * 3000 + '"]',
    '["' + "]" * 1990 + '",' + "[" * 1990,
    "[" * 5000, "[" * 3000, "{" * 3000, '{"team":' * 400, "[" * 1000 + "]" * 1000,
    "9" * 5000, "9" * 3900, "[" + "9" * 3900 + "]", '"' + "a" * 5000 + '"', "a" * 100_000,
    "import os; os.system('true')", "__import__('os').system('true')", "lambda: 0", "!!python/none",
    "<answer>[]</answer>", "$(touch x)", "`touch x`", "{{7*7}}", "${7*7}", "%s%s%n", "../../x",
    '{"team":[{"role":"executor_1"}],"answers":"executor_1","answers":"executor_1"}',
    '{"team":[{"role":"executor_1","prompt":"sum","prompt":"sum"}],"answers":"executor_1"}',
    '{"__class__":"x","team":[],"answers":""}',
    '{"answers":"executor_1"}', '{"team":[{"role":"executor_1"}]}',
]  # fmt: skip
FIELDS: dict[str, list[Any]] = {
    "team": [
        None, 0, "", "executor_1", {}, [], [None], [[]], ["executor_1"], [{}], [{"role": None}],
        [{"role": "designer"}], [{"role": "executor_0"}], [{"role": "executor_4"}],
        [{"role": "Executor_1"}], [{"role": "executor_1 "}], [{"role": ["executor_1"]}],
        [{"role": "executor_1"}] * 2, [{"role": f"executor_{n}"} for n in range(1, 5)],
        [{"role": "executor_1"}] * 50, [{"role": "executor_1", "run": "x"}],
        [{"role": "executor_1", "code": "print()"}], [{"role": {"a": 1}}],
    ],
    "answers": [
        None, 0, True, "", [], ["executor_1"], {}, "executor_2", "designer", "executor_1 ", "x",
    ],
    "rounds": [None, 0, -1, 3, 10**9, 1.0, 1.5, True, "1", [], {}, [1], 10**400],
    "code": ["print()", None], "imports": [["os"]], "__proto__": [{}], "": [1], "Team": [[]],
}  # fmt: skip
EXECUTOR_FIELDS: dict[str, list[Any]] = {
    "reads": [
        None, "a", 0, {}, ["c"], ["A"], ["ab"], [""], ["a", "a"], [["a"]], [None], [0], [{}],
        ["/etc/passwd"], ["a", "b", "c"], [True], ["a"] * 100,
    ],
    "hears": [
        None, "executor_2", 0, {}, ["executor_1"], ["executor_2"], ["designer"], [""], [None],
        [["executor_1"]], ["executor_9"], ["*"], [1], ["executor_1", "executor_1"],
    ],
    "prompt": [
        None, 0, [], {}, "", " ", "\n", "\x00", "<|im_start|>system", "</s>", "<b>", "a" * 161,
        "[/INST]", "{}", "\\", "x\ud800", "é", "\u202e", "`id`", "<|eot_id|>", "${x}", '"', "a=b",
        ["sum"], True, "sum; import os" + "\x1b[2J", "{{x}}", "#!", "&&", "@", "|", "~", "^",
    ],
    "tools": [
        None, "tally", 0, {}, ["python"], ["shell"], ["Tally"], [""], ["tally", "tally"], [None],
        [["tally"]], ["os.system"], ["browser"], ["tally", "python"], [{}], [{"name": "tally"}],
    ],
    "eval": ["1"], "exec": ["1"], "rolE": ["executor_1"], "model": ["x"], "url": ["http://x"],
}  # fmt: skip
CYCLES = [cycle(1), cycle(2, 1), cycle(3, 1, 2), cycle(2, 2), cycle(2, 3, 2)]
INVALID = [
    *TEXTS,
    *(graph_with(**{name: value}) for name, values in FIELDS.items() for value in values),
    *(
        executor_with(**{name: value})
        for name, values in EXECUTOR_FIELDS.items()
        for value in values
    ),
    *CYCLES,
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.sampled_from(["team", "answers", "rounds", "role", "reads", "hears", "x"]), inner
        )
    ),
    max_leaves=20,
)


def design_with(env: Any, text: str) -> Any:
    """The step that a designer's reply leads to."""
    state = env.reset(env.tasks("train")[0], 0)
    return env.step(state, {"designer": text})


# Valid graphs -------------------------------------------------------------------------------------


def test_graph_with_all_fields_is_read_in_the_order_of_its_turns() -> None:
    text = graph_with(
        team=[
            {"role": "executor_3", "hears": ["executor_2", "executor_1"], "tools": ["tally"]},
            {"role": "executor_1", "reads": ["b", "a"], "prompt": "Add  them, please."},
            {"role": "executor_2", "prompt": "vote"},
        ],
        answers="executor_3",
        rounds=2,
    )
    graph = parse_graph(text, LIMITS)
    assert graph == TeamGraph(
        (
            Executor("executor_1", ("a", "b"), prompt="Add them, please."),
            Executor("executor_2", prompt="vote"),
            Executor("executor_3", hears=("executor_1", "executor_2"), tools=("tally",)),
        ),
        "executor_3",
        2,
    )
    assert parse_graph(graph_text(graph), LIMITS) == graph
    assert parse_graph(short_text(graph), LIMITS) == graph, "written with all fields"


def test_short_notation_is_the_same_graph() -> None:
    graph = parse_graph('["a","vb1","12"]', LIMITS)
    assert [one.reads for one in graph.executors] == [("a",), ("b",), ()]
    assert [one.prompt for one in graph.executors] == ["sum", "vote", "sum"]
    assert graph.executors[2].hears == ("executor_1", "executor_2")
    assert short_text(graph) == '["a","vb1","12"]'


@given(st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_random_and_mutated_graphs_are_valid(seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(rng.randint(1, 4), rng.randint(1, 6), 1, rng.randint(1, 4))
    graph = random_graph(limits, rng)
    for _ in range(5):
        for text in (short_text(graph), graph_text(graph)):
            assert parse_graph(text, limits) == graph
        assert len(pruned(graph).executors) <= len(graph.executors)
        assert parse_graph(graph_text(pruned(graph)), limits) == pruned(graph)
        graph = mutated(graph, limits, rng)


# Invalid graphs -----------------------------------------------------------------------------------


def test_there_are_200_invalid_graphs() -> None:
    assert len(set(INVALID)) >= 200


@pytest.mark.parametrize("terse", [False, True])
def test_each_invalid_graph_is_a_scored_outcome_that_ends_the_episode(terse: bool) -> None:
    env = make_env("team_design-v1", terse=terse, max_rounds=2)
    worst = -COST * env.config.max_executors * env.config.max_rounds
    for text in INVALID:
        result = design_with(env, env.reply_of(text))
        assert env.acting(result.state) == (), text[:80]
        assert result.rewards == Rewards(
            agent={"designer": Scored(env.config.invalid_reward)}, team=Scored(0.0)
        ), text[:80]
        assert result.metrics["invalid_graph"] == 1
        assert not env.success(result.state, "designer")
        assert env.config.invalid_reward < worst
        assert len(result.state.refusal) < 200, "a refusal does not repeat the reply"


@given(JSON_VALUES)
@settings(max_examples=300, deadline=None)
def test_generated_json_is_a_graph_or_a_bad_reply(value: Any) -> None:
    for text in (json.dumps(value), json.dumps({"team": value, "answers": "executor_1"})):
        try:
            graph = parse_graph(text, LIMITS)
        except BadReply:
            continue
        assert 1 <= len(graph.executors) <= LIMITS.max_executors


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_scored_outcome(text: str) -> None:
    env = make_env("team_design-v1", terse=True)
    result = design_with(env, text)
    assert result.metrics["illegal"] in (0.0, 1.0)


@pytest.mark.parametrize(
    "text",
    ["[" * 10**6, '{"a":' * 10**6, "9" * 10**6, '["' + "a" * 10**6, " " * 10**6 + "[]"],
)
def test_a_reply_of_a_million_letters_is_rejected_at_once(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(BadReply, match="at most"):
        parse_graph(text, LIMITS)
    assert time.perf_counter() - start < 0.05


@pytest.mark.parametrize("unit", ['"a",', "[],", '{"a":1},', '"\\u0061",', "1,", "a", '"', " "])
def test_reading_takes_linear_time(unit: str) -> None:
    text = ("[" + unit * MAX_LETTERS)[: MAX_LETTERS - 1] + "]"
    start = time.perf_counter()
    for _ in range(20):
        with pytest.raises(BadReply):
            parse_graph(text, LIMITS)
    assert time.perf_counter() - start < 2


def test_no_file_of_the_environment_can_execute_a_graph() -> None:
    """Besides tests/security/test_nothing_is_executed.py: no such name, and no import, at all."""
    folder = Path(team_design.__file__).parent
    banned = {"eval", "exec", "compile", "getattr", "__import__", "import_module", "format_map"}
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        called = {one.func.id for one in ast.walk(tree) if isinstance(one, ast.Call)
                  and isinstance(one.func, ast.Name)}  # fmt: skip
        imported = {one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
        assert not called & banned
        assert not {"subprocess", "importlib", "pickle", "os"} & imported
