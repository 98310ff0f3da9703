"""The sandbox for model-generated code, which never runs in a process of the framework."""

from pettingllms.sandbox.detect import open_sandbox
from pettingllms.sandbox.program import Limits, Outcome, Program, Sandbox, python

__all__ = ["Limits", "Outcome", "Program", "Sandbox", "open_sandbox", "python"]
