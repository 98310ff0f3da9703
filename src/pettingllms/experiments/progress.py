"""Progress lines of an experiment: seed, arm, step and main metrics."""

from collections.abc import Callable, Mapping
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.experiments.results import TOKENS
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.metrics import flatten


class ProgressLines(Callback):
    """Prints one line per training step."""

    def __init__(self, where: str, config: RunConfig, notify: Callable[[str], None]) -> None:
        self._where = where
        self._config = config
        self._notify = notify

    def on_step_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        found = flatten(metrics)
        parts = [f"step {step} of {self._config.train.num_steps}"]
        if TOKENS in found:
            most = self._config.train.max_tokens
            parts.append(f"{found[TOKENS]:,.0f}{f' of {most:,}' if most else ''} tokens")
        for key, value in found.items():
            section, _, rest = key.partition("/")
            name, _, metric = rest.partition("/")
            if section == "roles" and metric in ("reward", "eval_success"):
                parts.append(f"{name} {metric.replace('_', ' ')} {value:+.3f}")
            elif section == "policies" and metric == "loss":
                parts.append(f"{name} loss {value:.3f}")
        self.on_message(", ".join(parts))

    def on_message(self, text: str) -> None:
        self._notify(f"{self._where}: {text}")
