"""The bundled modules: their statements, one correct design each, and changes that break it.

A known-bad design is the known-good one with a single change, so a bench that distinguishes them
has tested that feature. `@W` is the module's width, `@M` its highest bit.
"""

from dataclasses import dataclass
from typing import Literal

Size = int | Literal["W"]
Ports = tuple[tuple[str, Size], ...]


@dataclass(frozen=True, slots=True)
class Module:
    """One problem, at any width."""

    name: str
    statement: str
    inputs: Ports
    outputs: Ports
    body: str
    """The text between the ports and `endmodule` in the known-good design."""
    breaks: tuple[tuple[str, str], ...]
    """Changes of the body, each of which yields a known-bad design."""
    clocked: bool = False
    """Whether it also has the inputs clk and rst."""
    held_out: bool = False
    """Whether it is only for testing."""
    widths: tuple[int, ...] = (3, 4, 8)

    def header(self, width: int) -> str:
        """The first line of a design."""
        ports = [*(f"input {_wire(p, s, width)}" for p, s in self.all_inputs)]
        ports += [f"output {_wire(p, s, width)}" for p, s in self.outputs]
        return f"module {self.name}({', '.join(ports)});"

    @property
    def all_inputs(self) -> Ports:
        """Clock and reset first, if any."""
        return (("clk", 1), ("rst", 1), *self.inputs) if self.clocked else self.inputs

    def statement_at(self, width: int) -> str:
        """The statement at a width."""
        return _at(self.statement, width)

    def good(self, width: int) -> str:
        """The known-good design."""
        return f"{self.header(width)}\n{_at(self.body, width)}\nendmodule\n"

    def bad(self, width: int) -> tuple[str, ...]:
        """The known-bad designs."""
        return tuple(
            f"{self.header(width)}\n{_at(self.body.replace(old, new), width)}\nendmodule\n"
            for old, new in self.breaks
        )


def size_of(size: Size, width: int) -> int:
    """Number of bits of a port."""
    return width if size == "W" else size


def _wire(port: str, size: Size, width: int) -> str:
    bits = size_of(size, width)
    return port if bits == 1 else f"[{bits - 1}:0] {port}"


def _at(text: str, width: int) -> str:
    return text.replace("@W", str(width)).replace("@M", str(width - 1))


_MODULES = (
    Module(
        "adder",
        "Adds a, b and the carry cin. sum has the low @W bits, cout the carry out.",
        (("a", "W"), ("b", "W"), ("cin", 1)),
        (("sum", "W"), ("cout", 1)),
        "  assign {cout, sum} = a + b + cin;",
        ((" + cin", ""), ("{cout, sum} = a + b + cin", "sum = a + b + cin;\n  assign cout = 0")),
    ),
    Module(
        "abs_diff",
        "y is the difference of the unsigned a and b without its sign: larger less smaller.",
        (("a", "W"), ("b", "W")),
        (("y", "W"),),
        "  assign y = a > b ? a - b : b - a;",
        (("a > b ? a - b : b - a", "a - b"), ("b - a", "a")),
    ),
    Module(
        "mux4",
        "y is d0, d1, d2 or d3: the one whose number is sel.",
        (("d0", "W"), ("d1", "W"), ("d2", "W"), ("d3", "W"), ("sel", 2)),
        (("y", "W"),),
        "  assign y = sel[1] ? (sel[0] ? d3 : d2) : (sel[0] ? d1 : d0);",
        (("sel[0] ? d1 : d0", "sel[0] ? d0 : d1"), ("sel[0] ? d3 : d2", "d2")),
    ),
    Module(
        "comparator",
        "Compares the unsigned a and b: lt is 1 if a is smaller, eq if they are equal, gt if a is "
        "larger.",
        (("a", "W"), ("b", "W")),
        (("lt", 1), ("eq", 1), ("gt", 1)),
        "  assign lt = a < b;\n  assign eq = a == b;\n  assign gt = a > b;",
        (("a < b", "a <= b"), ("a > b", "$signed(a) > $signed(b)")),
    ),
    Module(
        "parity",
        "odd is 1 if the number of ones in d is odd; zero is 1 if there is none.",
        (("d", "W"),),
        (("odd", 1), ("zero", 1)),
        "  assign odd = ^d;\n  assign zero = ~|d;",
        (("^d", "~^d"), ("~|d", "~d[0]")),
    ),
    Module(
        "popcount",
        "n is the number of ones in d.",
        (("d", "W"),),
        (("n", 4),),
        "  integer i;\n  reg [3:0] total;\n  always @* begin\n    total = 0;\n"
        "    for (i = 0; i < @W; i = i + 1) total = total + d[i];\n  end\n  assign n = total;",
        (("i < @W", "i < @M"), ("total + d[i]", "total + ~d[i]")),
    ),
    Module(
        "priority_encoder",
        "index is the number of the highest bit of d that is 1, and 0 if there is none; valid is 1 "
        "if there is one.",
        (("d", "W"),),
        (("index", 3), ("valid", 1)),
        "  integer i;\n  reg [2:0] found;\n  always @* begin\n    found = 0;\n"
        "    for (i = 0; i < @W; i = i + 1) if (d[i]) found = i;\n  end\n"
        "  assign index = found;\n  assign valid = |d;",
        (("i = 0; i < @W; i = i + 1", "i = @M; i >= 0; i = i - 1"), ("|d", "d[0]")),
    ),
    Module(
        "rotate",
        "y is d rotated left by one bit if left is 1, else right by one bit.",
        (("d", "W"), ("left", 1)),
        (("y", "W"),),
        "  assign y = left ? {d[@W-2:0], d[@M]} : {d[0], d[@M:1]};",
        (("{d[0], d[@M:1]}", "d >> 1"), ("left ?", "!left ?")),
    ),
    Module(
        "counter",
        "On each rising clk: if rst is 1, q becomes 0; else if en is 1, q grows by one, and after "
        "its largest value comes 0.",
        (("en", 1),),
        (("q", "W"),),
        "  reg [@M:0] r;\n  always @(posedge clk) if (rst) r <= 0; else if (en) r <= r + 1;\n"
        "  assign q = r;",
        (("else if (en)", "else"), ("r + 1", "r + 2")),
        clocked=True,
        widths=(2, 3, 4),
    ),
    Module(
        "shift_register",
        "On each rising clk: if rst is 1, q becomes 0; else if load is 1, q becomes d; else q "
        "moves one bit to the left and si becomes its lowest bit.",
        (("load", 1), ("si", 1), ("d", "W")),
        (("q", "W"),),
        "  reg [@M:0] r;\n  always @(posedge clk)\n    if (rst) r <= 0;\n"
        "    else if (load) r <= d;\n    else r <= {r[@W-2:0], si};\n  assign q = r;",
        (("{r[@W-2:0], si}", "{si, r[@M:1]}"), ("else if (load) r <= d;\n", "")),
        clocked=True,
    ),
    Module(
        "accumulator",
        "On each rising clk: if rst is 1, total becomes 0; else if add is 1, d is added to total, "
        "which keeps its low @W bits.",
        (("add", 1), ("d", "W")),
        (("total", "W"),),
        "  reg [@M:0] r;\n  always @(posedge clk) if (rst) r <= 0; else if (add) r <= r + d;\n"
        "  assign total = r;",
        (("r + d", "d"), ("if (rst) r <= 0; else ", "if (rst) r <= d; else ")),
        clocked=True,
    ),
    Module(
        "detect_101",
        "On each rising clk the bit x is read. seen is 1 for one clock after the last three bits "
        "read were 1, 0, 1; they may overlap with the three before. rst = 1 forgets all bits.",
        (("x", 1),),
        (("seen", 1),),
        "  reg [2:0] last;\n  always @(posedge clk)\n"
        "    if (rst) last <= 0; else last <= {last[1:0], x};\n"
        "  assign seen = last == 3'b101;",
        (("3'b101", "3'b011"), ("if (rst) last <= 0;", "if (rst | seen) last <= 0;")),
        clocked=True,
        widths=(1,),
    ),
    Module(
        "traffic_light",
        "green, yellow and red are 1 by turns: 3 clocks green, then 1 yellow, then 2 red, again "
        "and again. On a rising clk with rst = 1 the first clock of green begins.",
        (),
        (("green", 1), ("yellow", 1), ("red", 1)),
        "  reg [2:0] t;\n  always @(posedge clk) if (rst || t == 5) t <= 0; else t <= t + 1;\n"
        "  assign green = t < 3;\n  assign yellow = t == 3;\n  assign red = t > 3;",
        (("t == 5", "t == 4"), ("t < 3", "t <= 3")),
        clocked=True,
        widths=(1,),
    ),
    Module(
        "min_max",
        "low is the smaller and high the larger of the unsigned a and b.",
        (("a", "W"), ("b", "W")),
        (("low", "W"), ("high", "W")),
        "  assign low = a < b ? a : b;\n  assign high = a < b ? b : a;",
        (("low = a < b ? a : b", "low = a"), ("high = a < b ? b : a", "high = a | b")),
        held_out=True,
    ),
    Module(
        "gray_encoder",
        "g is the Gray code of the binary number b: its highest bit is that of b, and every other "
        "bit is 1 if the same bit of b and the one above it differ.",
        (("b", "W"),),
        (("g", "W"),),
        "  assign g = b ^ (b >> 1);",
        (("b >> 1", "b << 1"), ("b ^ (b >> 1)", "b")),
        held_out=True,
    ),
    Module(
        "edge_detector",
        "On each rising clk the bit x is read. rise is 1 for one clock after x was read as 1 when "
        "the bit read before was 0. After rst = 1 the bit read before counts as 0, and rise is 0.",
        (("x", 1),),
        (("rise", 1),),
        "  reg old, now;\n  always @(posedge clk)\n"
        "    if (rst) begin old <= 0; now <= 0; end\n"
        "    else begin old <= now; now <= x; end\n  assign rise = now & ~old;",
        (("now & ~old", "now"), ("now & ~old", "now ^ old")),
        clocked=True,
        widths=(1,),
        held_out=True,
    ),
    Module(
        "up_down_counter",
        "On each rising clk: if rst is 1, q becomes 0; else if up is 1 and down is 0, q grows by "
        "one unless it is at its largest value; if down is 1 and up is 0, it shrinks by one unless "
        "it is 0.",
        (("up", 1), ("down", 1)),
        (("q", "W"),),
        "  reg [@M:0] r;\n  always @(posedge clk)\n    if (rst) r <= 0;\n"
        "    else if (up & ~down & ~&r) r <= r + 1;\n"
        "    else if (down & ~up & |r) r <= r - 1;\n  assign q = r;",
        ((" & ~&r", ""), (" & |r", "")),
        clocked=True,
        held_out=True,
        widths=(2, 3),
    ),
)
MODULES = {module.name: module for module in _MODULES}
