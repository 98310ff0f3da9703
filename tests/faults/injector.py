"""A callback that injects faults into the run that loads it, and writes down what happens.

`log.callbacks = ["injector.py:Injector"]`. The plan is the JSON in PETTINGLLMS_FAULTS; what happens
is appended to the file that it names. Each fault is injected once, also if the run is resumed.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import injections

from pettingllms.runs.callbacks import Callback


class Injector(Callback):
    def __init__(self) -> None:
        plan: dict[str, Any] = json.loads(os.environ["PETTINGLLMS_FAULTS"])
        self._events = Path(plan["events"])
        metrics = Path(plan["run"]) / "metrics.jsonl"
        self._step = metrics.read_text().count("\n") if metrics.exists() else 0
        before = self._events.read_text().splitlines() if self._events.exists() else []
        done = {e["what"] for e in map(json.loads, before) if e["kind"] == "injected"}
        self._faults = [fault for fault in plan["faults"] if fault["name"] not in done]
        self._note("start", os.getpid())

    def on_phase(self, text: str) -> None:
        self._note("phase", text)
        step = self._step + (text != "saving")
        for fault in [f for f in self._faults if (f["step"], f["phase"]) == (step, text)]:
            self._faults.remove(fault)
            if fault["delay"]:
                threading.Timer(fault["delay"], self._inject, [fault]).start()
            else:
                self._inject(fault)

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._step = step
        self._note("step", step)

    def on_message(self, text: str) -> None:
        self._step = min(self._step, self._back(text))
        self._note("message", text)

    def on_train_end(self) -> None:
        self._note("end", os.getpid())

    def _inject(self, fault: dict[str, Any]) -> None:
        self._note("injected", fault["name"])
        getattr(injections, fault["inject"])(**fault["options"])

    def _back(self, text: str) -> int:
        """The last step that counts after a recovery."""
        _, found, rest = text.partition("the run continues with step ")
        return int(rest.split(maxsplit=1)[0].rstrip(";")) - 1 if found else self._step

    def _note(self, kind: str, what: Any) -> None:
        line = {"time": time.monotonic(), "wall": time.time(), "kind": kind, "what": what}
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
