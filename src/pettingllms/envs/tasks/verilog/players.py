"""Scripted players: one that knows the modules, one that guesses, one that is wrong."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.verilog.modules import MODULES, Module, size_of
from pettingllms.envs.toolkit.noisy import noisy

NUM_CHECKS = 40


def play_engineer(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The known-good design, and a bench that compares with it."""
    module = MODULES[state.module]
    if state.part == "designer":
        return str(env.reply_of(module.good(state.width)))
    return str(env.reply_of(comparing_bench(module, state.width)))


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A module with constant outputs, or a bench with a fixed verdict."""
    module, bit = MODULES[state.module], rng.choice("01")
    if state.part == "designer":
        drive = "".join(f"  assign {port} = {bit};\n" for port, _ in module.outputs)
        return str(env.reply_of(f"{module.header(state.width)}\n{drive}endmodule"))
    word = rng.choice(("PASS", "FAIL"))
    return str(env.reply_of(f'module bench;\n  initial $display("{word}");\nendmodule'))


def play_novice(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A known-bad design, and a bench that passes everything."""
    if state.part == "designer":
        return str(env.reply_of(MODULES[state.module].bad(state.width)[0]))
    return str(env.reply_of('module bench;\n  initial $display("PASS");\nendmodule'))


def comparing_bench(module: Module, width: int) -> str:
    """A bench that compares the design with the known-good one on random inputs, sometimes all
    equal."""
    ins, outs = module.all_inputs, module.outputs
    golden = module.good(width).replace(f"module {module.name}(", "module golden(")
    regs = [f"  reg [{size_of(size, width) - 1}:0] {port} = 0;" for port, size in ins]
    wires = [f"  wire [{size_of(size, width) - 1}:0] {port}, want_{port};" for port, size in outs]
    shared = ", ".join(f".{port}({port})" for port, _ in ins)
    made = ", ".join(f".{port}({port})" for port, _ in outs)
    wanted = ", ".join(f".{port}(want_{port})" for port, _ in outs)
    draws = " ".join(f"{port} = i % 3 ? $random : i / 3;" for port, _ in module.inputs)
    reset = "rst = i < 2; " if module.clocked else ""
    pulse = "#5 clk = 1; #5" if module.clocked else "#10"
    wrong = " || ".join(f"{port} !== want_{port}" for port, _ in outs)
    late = "i == 0 ? 0 : " if module.clocked else ""
    fall = " clk = 0;" if module.clocked else ""
    lines = [
        *("module bench;", *regs, *wires, "  integer i, bad = 0;"),
        f"  {module.name} dut({', '.join(part for part in (shared, made) if part)});",
        f"  golden want({', '.join(part for part in (shared, wanted) if part)});",
        f"  initial begin\n    for (i = 0; i < {4 * NUM_CHECKS}; i = i + 1) begin",
        f"      {reset}{draws} {pulse} bad = bad + ({late}({wrong}));{fall}",
        '    end\n    if (bad) $display("FAIL"); else $display("PASS");',
        "    $finish;\n  end\nendmodule",
    ]
    return golden + "\n".join(lines) + "\n"


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_engineer, play_random),
    "engineer": play_engineer,
    "novice": play_novice,
}
