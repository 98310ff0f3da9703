"""Log-probs and entropies in chunks: equal to plain autograd, without logits of all tokens."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensor_bytes import TensorBytes
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pettingllms.learners import output_head
from pettingllms.learners.output_head import token_logprobs

NUM_TOKENS, HIDDEN, VOCABULARY = 50, 64, 1201
KINDS = ["frozen", "trained", "hooked", "replaced", "wrapped"]


class Wrapped(nn.Module):
    """An output layer with an adapter, as PEFT would wrap it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer, self.out_features = layer.requires_grad_(False), layer.out_features
        self.a = nn.Parameter(torch.randn(3, HIDDEN) / 8)
        self.b = nn.Parameter(torch.randn(VOCABULARY, 3))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.layer(hidden) + (hidden @ self.a.T) @ self.b.T


def made(kind: str, bias: bool = False) -> nn.Module:
    torch.manual_seed(1)
    layer = nn.Linear(HIDDEN, VOCABULARY, bias=bias)
    with torch.no_grad():
        layer.weight.mul_(8)  # distributions that are neither flat nor certain
    if kind == "wrapped":
        return Wrapped(layer)
    if kind == "hooked":
        layer.register_forward_hook(lambda _module, _args, logits: logits * 1.5)
    if kind == "replaced":
        plain = layer.forward
        layer.forward = lambda hidden: plain(hidden) * 1.5
    return layer.requires_grad_(kind == "trained")


def computed(
    layer: nn.Module,
    chunk_tokens: int,
    entropy: bool = True,
    temperature: float = 0.7,
    autocast: bool = False,
    weigh: Callable[[Tensor, Tensor | None], Any] | None = None,
) -> dict[str, Tensor]:
    """Values and gradients of a loss with a factor per token."""
    torch.manual_seed(2)
    hidden = torch.randn(NUM_TOKENS, HIDDEN, requires_grad=True)
    targets = torch.randint(VOCABULARY, (NUM_TOKENS,))
    factors = torch.randn(2, NUM_TOKENS)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logp, entropies = token_logprobs(
            layer, hidden * 1.0, targets, temperature, entropy, chunk_tokens
        )
    if weigh is not None:
        loss = weigh(logp, entropies)
    else:
        loss = (logp * factors[0]).sum()
        loss = loss if entropies is None else loss + (entropies * factors[1]).sum()
    loss.backward()
    found = {"logp": logp.detach(), "hidden": hidden.grad}
    if entropies is not None:
        found["entropy"] = entropies.detach()
    named = layer.named_parameters()
    return found | {name: p.grad for name, p in named if p.grad is not None}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], relative: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        error = float((found[name] - tensor).norm() / tensor.norm())
        assert error <= relative, f"{name}: {error}"


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_token_logprobs_in_chunks_equal_plain_autograd(
    kind: str, temperature: float, bias: bool, entropy: bool
) -> None:
    options = {"entropy": entropy, "temperature": temperature}
    whole, chunked = (computed(made(kind, bias), n, **options) for n in (NUM_TOKENS, 7))
    assert_close(chunked, whole, 1e-6)
    assert ("weight" in whole) == (kind == "trained")


@pytest.mark.parametrize("kind", KINDS)
def test_token_logprobs_under_autocast_keep_its_precision(kind: str) -> None:
    exact = computed(made(kind, bias=True), NUM_TOKENS)
    whole, chunked = (computed(made(kind, bias=True), n, autocast=True) for n in (NUM_TOKENS, 7))
    # The same logits in bfloat16, and everything after them in float32.
    assert_close({n: chunked[n] for n in ("logp", "entropy")},
                 {n: whole[n] for n in ("logp", "entropy")}, 1e-6)  # fmt: skip
    for name, tensor in exact.items():
        errors = [float((found[name] - tensor).norm()) for found in (chunked, whole)]
        assert errors[0] <= 1.2 * errors[1], f"{name}: {errors}"


@pytest.mark.parametrize("kind", KINDS)
def test_token_logprobs_with_bfloat16_weights_take_and_return_bfloat16(kind: str) -> None:
    """As FSDP computes: weights and hidden states in bfloat16, without autocast."""

    def found(chunk_tokens: int) -> dict[str, Tensor]:
        torch.manual_seed(3)
        layer = made(kind).to(torch.bfloat16)
        hidden = torch.randn(NUM_TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        targets = torch.randint(VOCABULARY, (NUM_TOKENS,))
        logp, entropy = token_logprobs(layer, hidden, targets, 0.7, True, chunk_tokens)
        assert logp.dtype == torch.float32
        (logp.sum() - 2 * entropy.sum()).backward()
        trained = {n: p.grad for n, p in layer.named_parameters() if p.grad is not None}
        return {"logp": logp.detach(), "hidden": hidden.grad, **trained}

    assert_close(found(7), found(NUM_TOKENS), 1e-2)


@pytest.mark.parametrize("kind", ["frozen", "trained"])
@pytest.mark.parametrize("used", ["logp", "entropy"])
def test_token_logprobs_need_only_one_output_in_the_loss(kind: str, used: str) -> None:
    def weigh(logp: Tensor, entropy: Tensor) -> Tensor:
        return (logp if used == "logp" else entropy).square().sum()

    whole, chunked = (computed(made(kind), n, weigh=weigh) for n in (NUM_TOKENS, 7))
    assert_close(chunked, whole, 1e-6)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_token_logprobs_have_the_same_bits_with_and_without_gradients(
    kind: str, autocast: bool
) -> None:
    """Old log-probs come from a pass without gradients: their ratio must be exactly 1."""
    layer = made(kind)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        torch.manual_seed(2)
        hidden, targets = torch.randn(NUM_TOKENS, HIDDEN), torch.randint(VOCABULARY, (NUM_TOKENS,))
        logp, entropy = token_logprobs(layer, hidden, targets, 0.7, True, 7)
    found = computed(layer, 7, autocast=autocast)
    assert torch.equal(logp, found["logp"])
    assert torch.equal(entropy, found["entropy"])


@pytest.mark.parametrize("kind", ["frozen", "trained"])
def test_token_logprobs_without_gradients_compute_no_gradients(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_head, "FrozenHead", None)
    monkeypatch.setattr(output_head, "TrainedHead", None)
    layer, hidden = made(kind), torch.randn(NUM_TOKENS, HIDDEN, requires_grad=True)
    targets = torch.zeros(NUM_TOKENS, dtype=torch.int64)
    with torch.no_grad():
        logp, _ = token_logprobs(layer, hidden, targets, 1.0, False, 7)
    assert not logp.requires_grad
    with pytest.raises(AttributeError):
        token_logprobs(layer, hidden, targets, 1.0, False, 7)


@pytest.mark.parametrize("kind", KINDS)
def test_token_logprobs_never_hold_all_logits(kind: str) -> None:
    layer = made(kind)
    with TensorBytes(*layer.parameters()) as sizes:
        computed(layer, 4)
    chunk, hidden = 4 * 4 * VOCABULARY, 4 * NUM_TOKENS * HIDDEN
    weight = 4 * HIDDEN * VOCABULARY if kind == "trained" else 0
    assert sizes.largest <= max(chunk, hidden, weight)
    assert sizes.peak < 4 * NUM_TOKENS * VOCABULARY + 2 * weight
    with TensorBytes(*layer.parameters()) as sizes:
        computed(layer, NUM_TOKENS)
    assert sizes.largest >= 4 * NUM_TOKENS * VOCABULARY, "the measurement misses logits"


def qwen3_8b_head(kind: str, num_tokens: int, entropy: bool) -> TensorBytes:
    """Bytes of the output layer of Qwen3-8B: forward and backward pass, gradients included."""
    with FakeTensorMode():
        layer = nn.Linear(4096, 151936, bias=False, dtype=torch.bfloat16)
        layer.requires_grad_(kind == "trained")
        hidden = torch.empty(num_tokens, 4096, dtype=torch.bfloat16, requires_grad=True)
        targets = torch.empty(num_tokens, dtype=torch.int64)
        size = output_head.CHUNK_BYTES // (4 * 151936)  # as on a GPU
        with TensorBytes(layer.weight, hidden, targets) as sizes:
            logp, entropies = token_logprobs(layer, hidden, targets, 1.0, entropy, size)
            (logp.sum() if entropies is None else logp.sum() + entropies.sum()).backward()
    return sizes


@pytest.mark.parametrize("entropy", [False, True])
def test_head_of_qwen3_8b_takes_2_gb_at_32k_tokens(entropy: bool) -> None:
    sizes = qwen3_8b_head("frozen", 32768, entropy)
    assert 1e9 < sizes.peak <= 2e9
    # A trained layer has the gradient of its weight besides: float32, a chunk's part, the sum.
    weight = 2 * 4096 * 151936
    assert qwen3_8b_head("trained", 32768, entropy).peak <= 2e9 + 4 * weight
