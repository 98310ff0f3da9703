"""Several adapters and their base on one real vLLM engine: batched, and replaced under way."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import HERE, run

pytestmark = pytest.mark.engine
CLOSE = 1e-4
"""Log-probs of vLLM and of the learner in float32; the defect is larger than 0.1."""


def drive(folder: Path, model: Path, kernels: str) -> Any:
    result = folder / "result.json"
    script = str(HERE / "drive_adapters.py")
    run(folder / "log.txt", script, str(model), str(result), kernels, seconds=900)
    return json.loads(result.read_text())


def test_policies_of_one_engine_do_not_disturb_each_other(tiny: Path, tmp_path: Path) -> None:
    found = drive(tmp_path, tiny, "ours")
    print(found)
    for how, gaps in found["together"].items():
        assert max(gaps.values()) < CLOSE, how
    replaced = found["replaced"]
    assert replaced["under_way"], "the long reply ended before its adapter was replaced"
    assert replaced["version"] == 1
    assert max(replaced["gaps"]) < CLOSE, "a reply changed its adapter under way"
    assert replaced["num_folders"] == [3, 2], "files of versions: a in use, a now, b; then two"
    assert len(replaced["loaded"]) == 2


def test_vllms_own_kernels_give_a_base_request_an_adapter(tiny: Path, tmp_path: Path) -> None:
    """If this fails, vLLM has fixed the defect, and our kernels only improve speed."""
    found = drive(tmp_path, tiny, "stock")["together"]
    print(found)
    assert max(found["alone"].values()) < CLOSE
    assert found["sampled"]["frozen"] > 0.1
    assert found["scored"] == "EngineDiedError"


def cpu_seconds(works: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The least CPU time that each took, one after the other in every round."""
    least = [math.inf] * len(works)
    for _ in range(rounds):
        for at, work in enumerate(works):
            start = time.process_time()
            work()
            least[at] = min(least[at], time.process_time() - start)
    return least


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A second thread that waits for a busy core counts as CPU time."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grouped_kernels_equal_vllms_and_take_less(dtype: str) -> None:
    """576 -> 1536 at rank 16, two adapters; CPU time, as the machine may be busy."""
    torch = pytest.importorskip("torch")
    from vllm.lora.ops.torch_ops import lora_ops

    from pettingllms.inference import lora_kernels

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    a, b = torch.randn(2, 1, 16, 576) / 24, torch.randn(2, 1, 1536, 16) / 4
    a, b = a.to(kind), b.to(kind)
    for num_tokens, at_least in ((64, 1.2), (2048, 4.0)):
        x = torch.randn(num_tokens, 576).to(kind)
        index = torch.arange(num_tokens) % 2

        def apply(shrink: Any, expand: Any, x: Any = x, index: Any = index) -> Any:
            middle = torch.zeros(len(x), 16)
            out = torch.zeros(len(x), 1536, dtype=kind)
            shrink(x, a, middle, index, 2.0)
            expand(middle, b, out, index, 0, 1536, True)
            return out

        stock = (lora_ops.bgmv_shrink, lora_ops.bgmv_expand_slice)
        ours = (lora_kernels.shrink, lora_kernels.expand_slice)
        expected, found = apply(*stock), apply(*ours)
        scale = float(expected.float().abs().max())
        off = float((found - expected).float().abs().max()) / scale
        assert off <= (1e-6 if dtype == "float32" else 4e-3), f"{num_tokens} tokens: {off:.2g}"
        rounds = 3 if num_tokens > 64 else 20
        slow, fast = cpu_seconds([partial(apply, *stock), partial(apply, *ours)], rounds)
        print(
            f"{dtype} {num_tokens} tokens: {1e3 * slow:.1f} -> {1e3 * fast:.1f} ms, off {off:.1g}"
        )
        assert slow > at_least * fast


@pytest.fixture
def installed() -> Iterator[None]:
    """Our kernels in this process, for one test."""
    pytest.importorskip("vllm")
    from pettingllms.inference import lora_kernels

    yield
    lora_kernels.uninstall()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.usefixtures("one_thread", "installed")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_adapters", [1, 8])
def test_packed_adapters_equal_vllms_and_take_less(dtype: str, num_adapters: int) -> None:
    """The packed q, k and v of SmolLM2, 64 rows, through vLLM's wrapper; CPU time."""
    torch = pytest.importorskip("torch")
    from vllm.lora.layers import LoRAMapping
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    from pettingllms.inference import lora_kernels
    from pettingllms.inference.packed_adapters import pack

    torch.manual_seed(0)
    kind, outputs = getattr(torch, dtype), (576, 192, 192)
    layer = SimpleNamespace(
        lora_a_stacked=[torch.randn(num_adapters, 1, 16, 576).to(kind) / 24 for _ in outputs],
        lora_b_stacked=[torch.randn(num_adapters, 1, n, 16).to(kind) / 4 for n in outputs],
    )
    x = torch.randn(64, 576).to(kind)
    rows = tuple(at % num_adapters + 1 for at in range(64))
    mapping = LoRAMapping(rows, rows, is_prefill=True)

    def prepared() -> Callable[[], Any]:
        wrapper = PunicaWrapperCPU(64, max_batches=64, device="cpu")
        ids = [*range(1, num_adapters + 1)]
        wrapper.update_metadata(mapping, ids, num_adapters + 1, 1000)
        a, b = layer.lora_a_stacked, layer.lora_b_stacked

        def apply() -> Any:
            y = torch.zeros(64, sum(outputs), dtype=kind)
            wrapper.add_lora_linear(y, x, a, b, 1.0, outputs)
            return y

        return apply

    stock = prepared()
    expected, (slow,) = stock(), cpu_seconds([stock], 20)
    lora_kernels.install()
    pack(layer)
    ours = prepared()
    found, (fast,) = ours(), cpu_seconds([ours], 20)
    off = float((found - expected).float().abs().max() / expected.float().abs().max())
    print(f"{dtype} {num_adapters}: {1e3 * slow:.2f} -> {1e3 * fast:.2f} ms, off {off:.1g}")
    assert off <= (1e-6 if dtype == "float32" else 8e-3)
    assert slow > 3 * fast
