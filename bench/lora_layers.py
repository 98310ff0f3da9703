"""CPU time of a decoder layer's linear layers with one LoRA adapter and with eight, in turn.

Shapes are those of SmolLM2-135M, rank 16. `uneven`: one adapter has many more rows than the others.
"""

import statistics
import time
from types import SimpleNamespace

import torch

from pettingllms.inference.packed_adapters import AdapterRows, add_product, pack

RANK, NUM_ADAPTERS, ROUNDS = 16, 8, 12
LAYERS = ((576, (576, 192, 192)), (576, (576,)), (576, (1536, 1536)), (1536, (576,)))
"""Inputs and outputs of q, k and v; o; gate and up; down."""


def layers(num_adapters: int, rows: int, dtype: torch.dtype) -> list[tuple]:
    """Weights, packed adapters and inputs of each linear layer."""
    random = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    made = []
    for size, outputs in LAYERS:
        layer = SimpleNamespace(
            lora_a_stacked=tuple(tensor(num_adapters, 1, RANK, size) for _ in outputs),
            lora_b_stacked=tuple(tensor(num_adapters, 1, out, RANK) for out in outputs),
        )
        pack(layer)
        made.append((tensor(sum(outputs), size), layer.lora_a_stacked.packed, tensor(rows, size)))
    return made


def compare(rows: int, dtype: torch.dtype) -> dict[str, float]:
    """Median CPU time of each side, relative to one adapter."""
    one, several = (layers(count, rows, dtype) for count in (1, NUM_ADAPTERS))
    index = torch.arange(rows) % NUM_ADAPTERS
    uneven = torch.where(torch.arange(rows) < rows // 4, 0, index)
    sides = {
        "one": (one, AdapterRows.from_index(torch.zeros(rows, dtype=torch.long))),
        "eight": (several, AdapterRows.from_index(index)),
        "uneven": (several, AdapterRows.from_index(uneven)),
        "base": (one, AdapterRows(rows)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, (made, batch) in sides.items():
            start = time.process_time()
            for _ in range(2000 // rows):
                for weight, packed, x in made:
                    add_product(torch.nn.functional.linear(x, weight), x, packed, batch)
            seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(some[2:]) for name, some in seconds.items()}
    return {name: round(value / medians["one"], 2) for name, value in medians.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        for rows in (64, 1024):
            print(dtype, rows, compare(rows, dtype), flush=True)
