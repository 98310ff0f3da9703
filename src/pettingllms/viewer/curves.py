"""Metrics as columns for charts, thinned so that a page draws a run of any length at once."""

from collections.abc import Sequence
from typing import Any

MAX_POINTS = 600
DIGITS = 6


def columns(rows: Sequence[dict[str, Any]], max_points: int = MAX_POINTS) -> dict[str, Any]:
    """Steps, and for each metric its values; of neighbours that are drawn as one, the mean."""
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    size = -(-len(rows) // max_points) if rows else 1
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return {
        "num_steps": len(rows),
        "together": size,
        "steps": [part[-1]["step"] for part in parts],
        "series": {name: [_mean(part, name) for part in parts] for name in names},
    }


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return float(f"{sum(values) / len(values):.{DIGITS}g}") if values else None
