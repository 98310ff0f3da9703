"""Designs and benches on real Icarus Verilog: good ones pass, bad ones fail, and no output can
be forged."""

import shutil
import time
from typing import Any

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.tasks.verilog import simulate as icarus
from pettingllms.envs.tasks.verilog.modules import MODULES, Module
from pettingllms.envs.tasks.verilog.players import comparing_bench
from pettingllms.envs.toolkit import sandboxed
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.errors import ConfigError
from pettingllms.seeds import derive_seed

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="needs Icarus Verilog: apt install iverilog"
)
from plays import play

NARROW = [(module, module.widths[0]) for module in MODULES.values()]
ALL = [(module, width) for module in MODULES.values() for width in module.widths]
ADDER = MODULES["adder"]
SEED = derive_seed("verilog", "adder", 4)
CONSTANT = ADDER.header(4) + "\n  assign sum = 0;\n  assign cout = 0;\n"


def share(module: Module, width: int, design: str) -> float:
    """Of the right outputs of a design that must build."""
    seed = derive_seed("verilog", module.name, width)
    right, trouble = icarus.share_right(module.name, width, seed, design)
    assert not trouble
    return right


@pytest.mark.parametrize(("module", "width"), NARROW, ids=lambda one: getattr(one, "name", one))
def test_the_good_design_passes_and_the_bad_ones_fail(module: Module, width: int) -> None:
    assert share(module, width, module.good(width)) == 1.0
    assert len(set(module.bad(width))) == len(module.bad(width)) >= 2
    for bad in module.bad(width):
        assert bad != module.good(width)
        assert share(module, width, bad) < 1, bad


@pytest.mark.slow
@pytest.mark.parametrize(("module", "width"), ALL, ids=lambda one: getattr(one, "name", one))
def test_so_they_do_at_every_width_and_a_bench_can_tell(module: Module, width: int) -> None:
    good, bad = module.good(width), module.bad(width)
    assert share(module, width, good) == 1.0
    assert all(share(module, width, design) < 1 for design in bad)
    bench = icarus.checked_source(comparing_bench(module, width), icarus.BENCH_WORDS)
    assert icarus.verdict(bench, good)[0] is True
    assert [icarus.verdict(bench, design)[0] for design in bad] == [False] * len(bad)


FORGED = "\n".join(f'    $display("{at} 0000 0");' for at in range(icarus.NUM_VECTORS))
FORGERIES = {
    "lines without the prefix": f"initial begin\n{FORGED}\n  end",
    "a path that names the bench": 'initial $display("%m 0 0000 0");',
    "an early end": "initial $finish;",
    "an early end with success": "initial #15 $finish(0);",
    "a stop": "initial #15 $stop;",
    "a flood": 'initial forever $display("PASS PASS PASS PASS PASS PASS PASS");',
    "a loop that never ends": "reg r = 0; initial forever #0 r = ~r;",
    "the bench's own lines": (
        'integer f, c; reg [8*200:1] line;\n  initial begin f = $fopen("hidden.v", "r");\n'
        '    while (!$feof(f)) begin c = $fgets(line, f); $write("%0s", line); end\n  end'
    ),
    "the program's own lines": (
        'integer f, c; reg [8*200:1] line;\n  initial begin f = $fopen("run.vvp", "r");\n'
        '    while (!$feof(f)) begin c = $fgets(line, f); $write("%0s", line); end\n  end'
    ),
    "a memory of the bench": 'reg [7:0] m [0:9];\n  initial $readmemh("hidden.v", m);',
    "a shell": 'initial $system("echo PASS");',
    "an overwritten output": 'integer f; initial begin f = $fopen("/dev/stdout", "w"); '
    '$fwrite(f, "PASS"); end',
    "another file's text": '`include "/etc/passwd"',
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_wrong_design_is_not_made_right_by(what: str) -> None:
    """Past the list of allowed words, which would have refused it already."""
    design = f"{CONSTANT}  {FORGERIES[what]}\nendmodule\n"
    if "forever #0" not in design:
        with pytest.raises(BadReply):
            icarus.checked_source(design, icarus.DESIGN_WORDS)
    assert icarus.share_right("adder", 4, SEED, design)[0] <= share(
        ADDER, 4, CONSTANT + "endmodule"
    )


def test_a_right_design_that_prints_its_own_lines_gains_nothing() -> None:
    talking = ADDER.good(4).replace("endmodule", '  initial $display("0 0000 0");\nendmodule')
    assert icarus.share_right("adder", 4, SEED, talking)[0] == 1.0


@pytest.mark.parametrize("end", ["", f"initial #{10 * icarus.NUM_VECTORS - 5} $finish;"])
def test_a_line_too_many_counts_for_nothing_even_with_the_prefix(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the early end there are as many lines as there should be, but not each once."""
    monkeypatch.setattr(icarus.secrets, "token_hex", lambda num_bytes: "a" * num_bytes)
    guess = f'  initial $display("{"a" * 16} 0 0000 0");\n  {end}\nendmodule'
    design = ADDER.good(4).replace("endmodule", guess)
    assert icarus.share_right("adder", 4, SEED, design)[0] == 0.0


def test_neither_the_answer_nor_the_good_design_goes_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[Any] = []
    inner = sandboxed.open_sandbox()

    class Watching:
        def run(self, program: Any, limits: Any) -> Any:
            ran.append(program)
            return inner.run(program, limits)

    share(ADDER, 4, ADDER.good(4))
    monkeypatch.setattr(sandboxed, "open_sandbox", Watching)
    share(ADDER, 4, CONSTANT + "  // watched\nendmodule\n")
    (program,) = ran
    texts = b"\n".join(program.files.values()).decode() + " ".join(program.command)
    assert "a + b" not in texts
    traces = icarus._expected("adder", 4, SEED)
    assert not any(trace in texts for trace in traces)


@pytest.mark.parametrize(
    "code",
    [
        "$fopen", "$fdisplay", "$readmemh", "$readmemb", "$system", "$value$plusargs", "$dumpfile",
        "$display", "$finish", "$ fopen", "`include", "`define X", "``", "$sdf_annotate",
    ],
)  # fmt: skip
def test_what_a_design_may_not_use_is_refused_by_name(code: str) -> None:
    with pytest.raises(BadReply, match="the code uses"):
        icarus.checked_source(
            f'{ADDER.header(4)} initial {code}("x"); endmodule', icarus.DESIGN_WORDS
        )


def test_a_bench_may_print_but_not_read() -> None:
    icarus.checked_source('module bench; initial $display("PASS"); endmodule', icarus.BENCH_WORDS)
    with pytest.raises(BadReply, match="the code uses \\$fopen"):
        icarus.checked_source('module bench; initial $fopen("x"); endmodule', icarus.BENCH_WORDS)


def notify(word: str) -> str:
    return f'module bench;\n  initial $display("{word}");\nendmodule'


@pytest.mark.parametrize(
    ("bench", "score"),
    [
        (comparing_bench(ADDER, 3), 1.0),
        (notify("PASS"), 0.2),
        (notify("FAIL"), 0.1),
        (notify("BYPASS"), 0.1),
        (notify("PASS FAIL"), 0.1),
        ("module bench; adder dut(); nonsense", 0.0),
        ("module other; endmodule", 0.0),
    ],
)
def test_a_bench_scores_by_the_designs_it_distinguishes(bench: str, score: float) -> None:
    env = make_env("verilog-v1")
    state = env.reset(env.tasks("train")[0], 0)
    state = env.step(state, {"designer": "no code"}).state
    result = env.step(state, {"bencher": env.reply_of(bench)})
    assert result.metrics["bench_score"] == pytest.approx(score)
    assert result.rewards.process["bencher"].value == pytest.approx(score)


@pytest.mark.parametrize("solo", [False, True])
def test_the_engineer_succeeds_and_the_novice_fails(solo: bool) -> None:
    env = make_env("verilog-v1", solo=solo)
    state, earned = play(env, "engineer", 0)
    assert env.success(state, env.roles[0])
    assert [rewards.process[role].value for role, rewards in earned] == [1.0, 1.0]
    assert earned[-1][1].team.value == 1.0
    assert "It passed." in env.observe(state, env.roles[-1])[-1].content
    state, earned = play(env, "novice", 0)
    assert not env.success(state, env.roles[0])
    assert earned[-1][1].team.value == 0.0


def test_a_design_that_the_bench_fails_may_be_written_again() -> None:
    env = make_env("verilog-v1")
    state = env.reset(env.tasks("train")[0], 0)
    state = env.step(state, {"designer": env.reply_of(ADDER.bad(3)[0])}).state
    state = env.step(state, {"bencher": env.reply_of(comparing_bench(ADDER, 3))}).state
    assert env.acting(state) == ("designer",)
    assert "FAIL" in env.observe(state, "designer")[-1].content
    result = env.step(state, {"designer": env.reply_of(ADDER.good(3))})
    assert result.state.over
    assert result.rewards.agent["designer"].value == result.rewards.agent["bencher"].value == 1.0


def test_what_does_not_build_is_told_without_the_bench_name() -> None:
    env = make_env("verilog-v1")
    state = env.reset(env.tasks("train")[0], 0)
    result = env.step(state, {"designer": env.reply_of("module adder(input q); endmodule")})
    assert result.metrics["design_score"] == 0.0
    told = env.observe(result.state, "bencher")[-1].content
    assert "top_" not in told
    assert "did not work" in told


def test_the_one_block_is_found_among_others_and_hostile_replies_take_no_long_time() -> None:
    env = make_env("verilog-v1")
    state = env.reset(env.tasks("train")[0], 0)
    good = MODULES[state.module].good(state.width)
    reply = f"```python\nx = 1\n```\nSo:\n```verilog\n{good}\n```"
    assert env.step(state, {"designer": reply}).state.design_score == 1.0
    start = time.process_time()
    assert env.step(state, {"designer": "```v\n" * 50_000}).metrics["illegal"] == 1
    assert time.process_time() - start < 1


def test_a_machine_without_icarus_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icarus.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="apt install iverilog"):
        make_env("verilog-v1").tasks("train")


def test_no_module_is_in_both_splits() -> None:
    env = make_env("verilog-v1")
    named = {split: {t.data["module"] for t in env.tasks(split)} for split in ("train", "test")}
    assert not named["train"] & named["test"]
    assert len(named["train"] | named["test"]) == len(MODULES) >= 15
