"""Hardware modules and their test benches, `verilog-v1`."""

from pettingllms.envs.tasks.verilog.env import Verilog, VerilogConfig

__all__ = ["Verilog", "VerilogConfig"]
