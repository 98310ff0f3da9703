"""Where what a model wrote is run: outside every process of ours."""

from pettingllms.sandbox.detect import open_sandbox
from pettingllms.sandbox.program import Limits, Outcome, Program, Sandbox, python

__all__ = ["Limits", "Outcome", "Program", "Sandbox", "open_sandbox", "python"]
