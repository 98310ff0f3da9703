"""The learner on a tiny model: what moves, what does not, and what is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny

LORA = {"a": LoraPolicy(model="m", rank=4, lr=1e-2), "b": LoraPolicy(model="m", rank=8, lr=1e-2)}
FULL = {"f": FullPolicy(model="m", lr=1e-3, temperature=0.7)}
KINDS = {"lora": LORA, "full": FULL}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def learner(model: Path, policies: dict, loss: dict | None = None, **config: object) -> Learner:
    spec = LearnerSpec(model, policies, LearnerConfig(**config), loss_config(**(loss or {})), 16, 5)
    return Learner(spec)


def batch(made: Learner, policy: str, seed: int = 0, count: int = 6) -> list[Item]:
    """Replies with the log-probs that the learner itself gives them."""
    rng = np.random.default_rng(seed)
    items = []
    for _ in range(count):
        prompt, reply = (rng.integers(5, 60, n).astype(np.int32) for n in rng.integers(2, 12, 2))
        items.append(Item(prompt, reply, np.zeros(len(reply), np.float32), float(rng.normal())))
    logps = made.logprobs(policy, items)
    return [replace(item, logprobs=logp) for item, logp in zip(items, logps, strict=True)]


def weight_hashes(made: Learner, policies: dict) -> dict[str, str]:
    return {policy: made.files(policy)[1] for policy in policies}


def test_log_probs_are_those_of_the_plain_model(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    made = learner(model, FULL, max_batch_tokens=16)
    plain = AutoModelForCausalLM.from_pretrained(model)
    for item in batch(made, "f"):
        ids = torch.tensor(np.concatenate([item.prompt_ids, item.response_ids])).long()
        with torch.no_grad():
            logp = torch.log_softmax(plain(ids[None]).logits[0] / 0.7, -1)
        start = len(item.prompt_ids)
        wanted = logp[start - 1 : -1].gather(1, ids[start:, None])[:, 0].numpy()
        np.testing.assert_allclose(item.logprobs, wanted, atol=1e-5)


def test_training_one_adapter_leaves_the_other_bit_identical(model: Path) -> None:
    made = learner(model, LORA)
    before = weight_hashes(made, LORA)
    made.train("a", batch(made, "a"), 1)
    after = weight_hashes(made, LORA)
    assert after["b"] == before["b"]
    assert after["a"] != before["a"]
    made.train("b", batch(made, "b"), 1)
    assert weight_hashes(made, LORA)["a"] == after["a"]


def test_each_policy_has_its_own_learning_rate(model: Path) -> None:
    """The first step of AdamW moves a weight by the learning rate, whatever its gradient."""
    from safetensors.numpy import load

    rates = {"a": 1e-2, "b": 1e-4}
    policies = {name: LoraPolicy(model="m", rank=4, lr=lr) for name, lr in rates.items()}
    made = learner(model, policies)
    for policy, lr in rates.items():
        made.train(policy, batch(made, policy), 1)
        weights = load(made.files(policy)[0]["adapter_model.safetensors"])
        moved = max(abs(weight).max() for name, weight in weights.items() if "lora_B" in name)
        assert moved == pytest.approx(lr, rel=0.01), "lora_B begins at 0"


def test_what_is_liked_becomes_likelier(model: Path) -> None:
    for policy, policies in (("a", LORA), ("f", FULL)):
        made = learner(model, policies)
        items = [replace(item, advantage=1.0) for item in batch(made, policy)]
        for step in range(3):
            made.train(policy, items, step)
        for item, logp in zip(items, made.logprobs(policy, items), strict=True):
            assert logp.sum() > item.logprobs.sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [{}, {"kl_coef": 0.1, "entropy_coef": 0.01}, {"type": "gspo"}])
def test_how_a_batch_is_cut_changes_nothing(model: Path, kind: str, loss: dict) -> None:
    policy = next(iter(KINDS[kind]))
    found = []
    for max_batch_tokens in (16, 10_000):
        made = learner(model, KINDS[kind], loss, max_batch_tokens=max_batch_tokens)
        numbers = made.train(policy, batch(made, policy), 1)
        logps = np.concatenate(made.logprobs(policy, batch(made, policy, seed=9)))
        found.append((numbers["loss"], numbers["grad_norm"], logps))
    (loss1, norm1, logp1), (loss2, norm2, logp2) = found
    assert loss1 == pytest.approx(loss2, rel=1e-4, abs=1e-6)
    assert norm1 == pytest.approx(norm2, rel=1e-3)
    np.testing.assert_allclose(logp1, logp2, atol=2e-3)


@pytest.mark.parametrize("num_epochs", [1, 2])
def test_weights_that_have_not_moved_clip_nothing_in_bfloat16(model: Path, num_epochs: int) -> None:
    """Siblings that share a prompt are read in another shape by minibatches than all at once."""
    rng, items = np.random.default_rng(0), []
    for _ in range(8):
        prompt = rng.integers(5, 60, 40).astype(np.int32)
        for _ in range(4):
            reply = rng.integers(5, 60, rng.integers(3, 12)).astype(np.int32)
            logprobs = np.full(len(reply), -4.0, np.float32)
            items.append(Item(prompt, reply, logprobs, float(rng.normal())))
    still = {"a": LoraPolicy(model="m", rank=4, lr=1e-12)}
    settings = {"dtype": "bfloat16", "num_minibatches": 8, "num_epochs": num_epochs}
    made = learner(model, still, {"type": "gspo"}, **settings)
    numbers = made.train("a", items, 1)
    assert numbers["clip_share"] == 0
    assert numbers["kl"] == 0


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_that_was_saved_goes_on_bit_for_bit(
    model: Path, kind: str, optimizer: str
) -> None:
    policies = KINDS[kind]
    policy = next(iter(policies))
    options = {"num_minibatches": 2, "warmup_steps": 3, "optimizer": optimizer, "weight_decay": 0.1}
    made = learner(model, policies, **options)
    made.train(policy, batch(made, policy, 1), 1)
    files = {**made.files(policy)[0], **made.state(policy)}
    second = batch(made, policy, 2)
    numbers = made.train(policy, second, 2)
    assert numbers["learning_rate"] == pytest.approx(policies[policy].lr)
    again = learner(model, policies, **options)
    again.load(policy, files)
    repeated = again.train(policy, second, 2)
    assert weight_hashes(again, {policy: 0}) == weight_hashes(made, {policy: 0})
    assert {k: v for k, v in repeated.items() if k != "seconds"} == {
        k: v for k, v in numbers.items() if k != "seconds"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_learning_leaves_nothing_to_chance(model: Path, kind: str) -> None:
    """Checkpoints hold no state of PyTorch's random numbers, so training may not draw any."""
    policy = next(iter(KINDS[kind]))
    made = learner(model, KINDS[kind], {"kl_coef": 0.1, "entropy_coef": 0.01}, num_minibatches=2)
    before = torch.get_rng_state()
    made.train(policy, batch(made, policy), 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_state_with_what_earlier_ones_had_more_is_taken_up(model: Path) -> None:
    """Optimizers were once saved with the state of PyTorch's random numbers."""
    from pettingllms.learners.weights import from_bytes, to_bytes
    from pettingllms.policies.files import OPTIMIZER_FILE

    made, again = learner(model, FULL), learner(model, FULL)
    made.train("f", batch(made, "f", 1), 1)
    files = {**made.files("f")[0], **made.state("f")}
    tensors = from_bytes(files[OPTIMIZER_FILE])
    files[OPTIMIZER_FILE] = to_bytes({**tensors, "rng": torch.get_rng_state()})
    again.load("f", files)
    second = batch(made, "f", 2)
    assert made.train("f", second, 2)["loss"] == again.train("f", second, 2)["loss"]
    assert weight_hashes(made, FULL) == weight_hashes(again, FULL)


def test_a_step_that_is_not_finite_is_skipped_counted_and_kept(model: Path) -> None:
    made = learner(model, LORA)
    items = batch(made, "a")
    bad = [replace(items[0], advantage=float("inf")), *items[1:]]
    before = weight_hashes(made, LORA)
    numbers = made.train("a", bad, 1)
    assert numbers["skipped_updates"] == 1
    assert weight_hashes(made, LORA) == before
    other = "b"
    assert made.train(other, [replace(items[0], advantage=float("inf"))], 1)["skipped_updates"] == 1
    assert {id(item) for item in made.take_skipped("a")} == {id(item) for item in bad}
    assert made.take_skipped("a") == []
    assert len(made.take_skipped(other)) == 1, "of another policy on the same base"
    assert made.train("a", items, 2)["skipped_updates"] == 0
    assert np.isfinite(np.concatenate(made.logprobs("a", items))).all()


def test_the_gap_to_the_sampler_is_measured_and_weighed(model: Path) -> None:
    made = learner(model, FULL)
    items = batch(made, "f")
    off = [replace(item, logprobs=item.logprobs - np.float32(0.25)) for item in items]
    numbers = made.train("f", off, 1)
    assert numbers["mismatch"] == pytest.approx(0.25, abs=1e-4)
    assert numbers["weight"] == pytest.approx(np.exp(0.25), abs=1e-3)


def test_old_log_probs_are_those_before_the_first_update(model: Path) -> None:
    made = learner(model, FULL, num_minibatches=2, num_epochs=2)
    numbers = made.train("f", batch(made, "f"), 1)
    assert numbers["mismatch"] < 1e-5, "the gap was measured after the weights had moved"
    assert numbers["kl"] > 0
    assert numbers["updates"] == 4


def test_the_reference_is_the_policy_before_training(model: Path) -> None:
    for policy, policies in (("a", LORA), ("f", FULL)):
        made = learner(model, policies, {"kl_coef": 0.1})
        items = batch(made, policy)
        assert made.train(policy, items, 1)["ref_kl"] == pytest.approx(0, abs=1e-6)
        assert made.train(policy, items, 2)["ref_kl"] > 1e-6


def test_weights_of_another_model_are_refused(model: Path) -> None:
    made = learner(model, LORA)
    with pytest.raises(LearnerError, match="does not train 'c'"):
        made.train("c", [], 1)
    other = learner(model, {"a": LoraPolicy(model="m", rank=2)})
    with pytest.raises(ValueError, match="shape"):
        made.load("a", other.files("a")[0])


def test_a_rate_that_has_fallen_moves_weights_less(model: Path) -> None:
    def moved(step: int) -> float:
        made = learner(model, FULL, decay_steps=10)
        before = {name: p.detach().clone() for name, p in made._parameters("f").items()}
        made.train("f", batch(made, "f"), step)
        after = made._parameters("f")
        return max(float((after[name].detach() - before[name]).abs().max()) for name in before)

    assert moved(11) == pytest.approx(moved(1) / 10, rel=0.01)


def test_a_rate_and_a_bonus_fall_by_sampled_tokens(model: Path) -> None:
    """With a token budget the step says nothing about how much of the run is over."""

    def pull(num_tokens: int) -> tuple[float, float]:
        made = learner(model, FULL, {"entropy_coef": 0.5}, decay_tokens=1000)
        items = [replace(item, advantage=0.0) for item in batch(made, "f")]
        found = made.train("f", items, 50, num_tokens=num_tokens)
        return found["grad_norm"], made._optimizers["f"].optimizer.param_groups[0]["lr"]

    (bonus, rate), (last_bonus, last_rate) = pull(0), pull(1000)
    assert last_bonus == pytest.approx(bonus / 10, rel=1e-3)
    assert last_rate == pytest.approx(rate / 10)


def test_without_momentum_a_step_goes_where_its_own_batch_points(model: Path) -> None:
    """A batch without advantages has no gradient: only what was kept of the last one can move."""

    def moved(**options: float) -> bool:
        made = learner(model, FULL, **options)
        items = batch(made, "f")
        made.train("f", items, 1)
        before = weight_hashes(made, FULL)
        made.train("f", [replace(item, advantage=0.0) for item in items], 2)
        return weight_hashes(made, FULL) != before

    assert moved()
    assert not moved(momentum=0.0)


def test_a_bonus_for_entropy_falls_with_the_rate(model: Path) -> None:
    def pull(step: int, **options: bool) -> float:
        made = learner(model, FULL, {"entropy_coef": 0.5}, decay_steps=10, **options)
        items = [replace(item, advantage=0.0) for item in batch(made, "f")]
        return made.train("f", items, step)["grad_norm"]

    assert pull(1) > 0
    assert pull(11) == pytest.approx(pull(1) / 10, rel=1e-3)
    assert pull(11, decay_entropy=False) == pull(1)


@pytest.mark.parametrize("num_minibatches", [1, 3])
def test_log_probs_from_before_the_update_are_kept_if_asked(
    model: Path, num_minibatches: int
) -> None:
    made = learner(model, LORA, num_minibatches=num_minibatches, max_batch_tokens=32)
    items = batch(made, "a")
    made.train("a", items, 1, True)
    for item, found in zip(items, made.take_logprobs(), strict=True):
        np.testing.assert_allclose(found, item.logprobs, atol=1e-5)
    after = made.logprobs("a", items)
    moved = [abs(x.logprobs - y).max() for x, y in zip(items, after, strict=True)]
    assert max(moved) > 1e-3, "else this test would not see the difference"
