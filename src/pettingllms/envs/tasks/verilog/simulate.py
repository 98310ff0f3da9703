"""Run Icarus Verilog inside the sandbox and compare the trace of a hidden bench.

The hidden bench drives a design with inputs from the task's seed and prints its outputs. Expected
values stay outside the sandbox: the trace is compared here with that of the known-good design. A
design cannot fake trace lines: it does not know the random prefix of the run.
"""

import random
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pettingllms.envs.tasks.verilog.modules import MODULES, Module, size_of
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.sandboxed import run_sandboxed
from pettingllms.errors import ConfigError
from pettingllms.sandbox import Limits, Program

NUM_VECTORS = 64
LIMITS = Limits(seconds=3.0)
NOT_BUILT = 97
SCRIPT = f"""
TMP=. iverilog -g2012 -s "$1" -o run.vvp *.v >build.txt 2>&1 ||
    {{ cat build.txt; exit {NOT_BUILT}; }}
exec vvp -n run.vvp
"""
MAX_SOURCE = 4000
DESIGN_WORDS = frozenset({"$signed", "$unsigned", "$clog2", "$bits"})
BENCH_WORDS = DESIGN_WORDS | {
    *("$display", "$write", "$monitor", "$strobe", "$time", "$finish", "$random", "$urandom"),
    *("$urandom_range", "$error", "$stop"),
}
DIRECTIVES = frozenset({"`timescale", "`default_nettype"})


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a build and a simulation."""

    built: bool
    ended: bool
    """Whether the simulation ended normally."""
    output: str


def require_icarus() -> None:
    """Raise ConfigError with the install command unless Icarus Verilog is installed."""
    missing = [name for name in ("iverilog", "vvp") if not shutil.which(name, path="/usr/bin:/bin")]
    if missing:
        raise ConfigError(
            "verilog-v1",
            [f"/usr/bin has no {', no '.join(missing)}; run `apt install iverilog`"],
        )


def checked_source(text: str, words: frozenset[str]) -> str:
    """A source that may be built; BadReply if it is too long or uses forbidden words.

    The sandbox contains all code regardless; the allowlist keeps designs and benches to their task.
    """
    if len(text) > MAX_SOURCE:
        raise BadReply(f"the code has {len(text)} letters; {MAX_SOURCE} at most")
    if not all(" " <= sign <= "~" or sign in "\n\t" for sign in text):
        raise BadReply("the code has signs other than plain ASCII")
    if re.search(r"\w{65,}", text):
        raise BadReply("the code has a word of more than 64 letters")
    for used in re.findall(r"[$`]\w*", text):
        if used not in words and used not in DIRECTIVES:
            allowed = ", ".join(sorted(words | DIRECTIVES))
            raise BadReply(f"the code uses {used[:40]}; allowed are {allowed}")
    return text.strip() + "\n"


class _Stopped(Exception):  # noqa: N818 - a result that depends on timing, not an error
    def __init__(self, output: str) -> None:
        self.run = Run(built=True, ended=False, output=output)


def simulate(sources: Mapping[str, str], top: str) -> Run:
    """Build sources by file name and run the module `top`."""
    files = {name: source.encode() for name, source in sources.items()}
    program = Program(("sh", "-c", SCRIPT, "sh", top), files)
    outcome = run_sandboxed(program, LIMITS)
    if outcome.end != "exited":
        raise _Stopped(outcome.stdout)
    return Run(outcome.code != NOT_BUILT, outcome.ok, outcome.stdout)


def share_right(name: str, width: int, seed: int, design: str) -> tuple[float, str]:
    """Share of inputs with correct outputs, and why the design was not built."""
    try:
        return _share_right(name, width, seed, design)
    except _Stopped:
        return 0.0, ""


@lru_cache(maxsize=1024)
def _share_right(name: str, width: int, seed: int, design: str) -> tuple[float, str]:
    got, trouble = _trace(MODULES[name], width, seed, design)
    wanted = _expected(name, width, seed)
    if got is None or len(got) != len(wanted):
        return 0.0, trouble
    return sum(map(str.__eq__, got, wanted)) / len(wanted), trouble


def verdict(bench: str, design: str) -> tuple[bool | None, Run]:
    """Whether a bench passes a design: it prints PASS and no FAIL. None if it does not run."""
    try:
        return _verdict(bench, design)
    except _Stopped as stopped:
        return None, stopped.run


@lru_cache(maxsize=1024)
def _verdict(bench: str, design: str) -> tuple[bool | None, Run]:
    run = simulate({"design.v": design, "bench.v": bench}, "bench")
    if not run.built or not run.ended:
        return None, run
    words = run.output.split()
    return "PASS" in words and "FAIL" not in words, run


@lru_cache(maxsize=1024)
def _expected(name: str, width: int, seed: int) -> tuple[str, ...]:
    module = MODULES[name]
    trace, trouble = _trace(module, width, seed, module.good(width))
    if trace is None or len(trace) != NUM_VECTORS:
        raise RuntimeError(
            f"the known-good design of {name} cannot be run here: {trouble or trace}"
        )
    return trace


def _trace(
    module: Module, width: int, seed: int, design: str
) -> tuple[tuple[str, ...] | None, str]:
    """The outputs that the hidden bench printed, line by line; or why there are none."""
    top, prefix = f"top_{secrets.token_hex(8)}", secrets.token_hex(16)
    bench = hidden_bench(module, width, seed, top, prefix)
    run = simulate({"design.v": design, "hidden.v": bench}, top)
    if not run.built:
        return None, re.sub(r"\w*top_[0-9a-f]{16}", "the bench", run.output)
    lines = [line.split(" ", 2) for line in run.output.split("\n") if line.startswith(prefix)]
    in_order = [number for _, number, *_ in lines] == [str(at) for at in range(len(lines))]
    if not in_order:
        return None, "it printed what is not its own"
    return tuple(" ".join(rest) for _, _, *rest in lines), ""


def hidden_bench(module: Module, width: int, seed: int, top: str, prefix: str) -> str:
    """A bench that sets inputs, waits (for the clock, if any) and prints the outputs."""
    regs = [f"  reg [{size_of(s, width) - 1}:0] {p} = 0;" for p, s in module.all_inputs]
    wires = [f"  wire [{size_of(s, width) - 1}:0] {p};" for p, s in module.outputs]
    ports = ", ".join(f".{p}({p})" for p, _ in (*module.all_inputs, *module.outputs))
    forms = " ".join("%b" for _ in module.outputs)
    names = ", ".join(p for p, _ in module.outputs)
    pulse = "#5 clk = 1; #5 " if module.clocked else "#10 "
    steps = []
    for at, vector in enumerate(_vectors(module, width, seed)):
        sets = " ".join(f"{p} = {value};" for p, value in vector.items())
        after = " clk = 0;" if module.clocked else ""
        steps.append(f'    {sets} {pulse}$display("{prefix} {at} {forms}", {names});{after}')
    body = ["  initial begin", *steps, "    $finish;", "  end"]
    dut = f"  {module.name} dut({ports});"
    return "\n".join([f"module {top};", *regs, *wires, dut, *body, "endmodule", ""])


def _vectors(module: Module, width: int, seed: int) -> list[dict[str, int]]:
    """Inputs of every step: often the ends of each range, otherwise random.

    A clocked module is reset first and then occasionally. In the second half its 1-bit inputs
    rarely change, so that it reaches deeper states.
    """
    rng = random.Random(seed)
    vectors: list[dict[str, int]] = []
    for at in range(NUM_VECTORS):
        late = module.clocked and at > NUM_VECTORS // 2
        vector = {}
        for port, size in module.inputs:
            largest = 2 ** size_of(size, width) - 1
            if late and largest == 1 and rng.random() < 0.85:
                vector[port] = vectors[-1][port]
            else:
                ends = (0, largest, *(rng.randint(0, largest) for _ in range(4)))
                vector[port] = rng.choice(ends)
        if module.clocked:
            vector["rst"] = int(at == 0 or (late and rng.random() < 0.05))
        vectors.append(vector)
    return vectors
