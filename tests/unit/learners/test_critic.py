"""Value heads and critics on a tiny model: what they fit, what they leave alone, what is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from plays import linear, overwrite, rewards

from pettingllms.config import CriticConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item, JointAction, joint_actions_of
from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.value_head import explained_variance, squared_errors
from pettingllms.learners.weights import from_bytes
from pettingllms.models import make_tiny
from pettingllms.policies.files import (
    ADAPTER_CONFIG,
    ADAPTER_FILE,
    CRITIC_FILE,
    MODEL_FILE,
    OPTIMIZER_FILE,
)

LORA = {"a": LoraPolicy(model="m", rank=4, lr=1e-2), "b": LoraPolicy(model="m", rank=8, lr=1e-2)}
FULL = {"f": FullPolicy(model="m", lr=1e-3)}
KINDS = {"lora": LORA, "full": FULL}
ROLES = ("x", "y", "z")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def learner(model: Path, policies: dict, critic: dict | None = None, **config: object) -> Learner:
    return Learner(
        LearnerSpec(
            model, policies, LearnerConfig(**config), loss_config(), 16, 5,
            critic=CriticConfig(kind="head", **(critic or {})),
        )
    )  # fmt: skip


def critic(
    model: Path, mixer: str | None = None, options: dict | None = None, **config: object
) -> Critic:
    made = CriticConfig(kind="model", **{"lr": 1e-3, "mixer_lr": 1e-2, **(options or {})})
    return Critic(CriticSpec(model, made, LearnerConfig(**config), 5, mixer, ROLES))


def replies(seed: int = 0, count: int = 6, target: float | None = None) -> list[Item]:
    """Replies that advantages say nothing about, with a target at each place or at random."""
    rng = np.random.default_rng(seed)
    items = []
    for _ in range(count):
        prompt, reply = (rng.integers(5, 60, n).astype(np.int32) for n in rng.integers(2, 12, 2))
        targets = rng.normal(size=len(reply) + 1) if target is None else [target] * (len(reply) + 1)
        values = np.zeros(len(reply) + 1, np.float32)
        nothing = np.zeros(len(reply), np.float32)
        items.append(Item(prompt, reply, nothing, 0.0, None, values, np.array(targets, np.float32)))
    return items


def alone(items: list[Item]) -> list[JointAction]:
    return [JointAction(("x",), (item,)) for item in items]


def rounds(seed: int = 0, count: int = 5, target: float | None = None) -> list[JointAction]:
    """Joints of three, two and one roles, each with one target."""
    rng = np.random.default_rng(seed)
    joint_actions = []
    for at in range(count):
        roles = ROLES[at % 3 :]
        items = replies(
            100 * seed + at, len(roles), float(rng.normal()) if target is None else target
        )
        joint_actions.append(JointAction(roles, tuple(items)))
    return joint_actions


def with_logprobs(made: Learner, policy: str, items: list[Item]) -> list[Item]:
    logps = made.logprobs(policy, items)
    return [replace(item, logprobs=logp) for item, logp in zip(items, logps, strict=True)]


def flat(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(rows)


# Heads


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_expects_nothing_at_first_and_fits_a_constant(model: Path, kind: str) -> None:
    policies = KINDS[kind]
    policy = next(iter(policies))
    made = learner(model, policies)
    items = with_logprobs(made, policy, replies(target=2.0))
    first = made.values(policy, items)
    assert [len(row) for row in first] == [len(item.response_ids) + 1 for item in items]
    assert not flat(first).any()
    losses = [made.train(policy, items, step)["value_loss"] for step in range(60)]
    assert losses[0] == pytest.approx(4.0)
    assert losses[-1] < 0.1
    assert flat(made.values(policy, items)) == pytest.approx(2.0, abs=0.7)


@pytest.mark.parametrize(("given", "rate"), [({}, 1e-2), ({"head_lr": 3e-2}, 3e-2)])
def test_a_head_has_its_own_learning_rate(model: Path, given: dict, rate: float) -> None:
    """The first step of Adam is as long as the rate: a head begins with zeros."""
    made = learner(model, FULL, given, weight_decay=0.0)
    before = from_bytes(made.files("f")[0][MODEL_FILE])
    items = with_logprobs(made, "f", replies(target=2.0))
    made.train("f", [replace(item, advantage=1.0) for item in items], 0)
    head = from_bytes(made.state("f")[CRITIC_FILE])
    after = from_bytes(made.files("f")[0][MODEL_FILE])
    assert max(float(weights.abs().max()) for weights in head.values()) == pytest.approx(rate)
    steps = [float((after[name] - before[name]).abs().max()) for name in before]
    assert max(steps) == pytest.approx(FULL["f"].lr, rel=1e-3)


def test_values_stand_where_they_should(model: Path) -> None:
    """The value after k tokens is the value at the end of a prompt with those tokens."""
    made = learner(model, FULL)
    items = with_logprobs(made, "f", replies())
    for step in range(5):
        made.train("f", items, step)
    for item, row in zip(items, made.values("f", items), strict=True):
        for k in range(len(item.response_ids) + 1):
            longer = replace(
                item,
                prompt_ids=np.concatenate([item.prompt_ids, item.response_ids[:k]]),
                response_ids=item.response_ids[:1],
                logprobs=item.logprobs[:1],
            )
            (again,) = made.values("f", [longer])
            assert again[0] == pytest.approx(row[k], abs=1e-5)
        assert np.ptp(row) > 1e-4


def test_without_a_critic_there_is_no_head_and_nothing_changes(model: Path) -> None:
    plain = Learner(LearnerSpec(model, FULL, LearnerConfig(), loss_config(), 16, 5))
    headed = learner(model, FULL)
    items = with_logprobs(plain, "f", replies())
    pushed = [replace(item, advantage=1.0 - at, targets=None) for at, item in enumerate(items)]
    one, two = plain.train("f", pushed, 1), headed.train("f", pushed, 1)
    assert "value_loss" not in one
    del one["seconds"]
    assert {key: two[key] for key in one} == pytest.approx(one, rel=1e-4, abs=1e-6)
    for name, parameter in plain._parameters("f").items():
        torch.testing.assert_close(parameter, headed._parameters("f")[name], atol=1e-5, rtol=0)
    assert CRITIC_FILE not in plain.state("f")


def test_a_head_moves_its_own_policy_alone(model: Path) -> None:
    made = learner(model, LORA)
    items = with_logprobs(made, "a", replies())
    other = made.files("b")[1], made.state("b")[CRITIC_FILE]
    mine = made.files("a")[1], made.state("a")[CRITIC_FILE]
    for step in range(2):  # in the first one the head is all zeros, and pulls at nothing below it
        made.train("a", items, step)
    assert (made.files("b")[1], made.state("b")[CRITIC_FILE]) == other
    assert made.files("a")[1] != mine[0]
    assert made.state("a")[CRITIC_FILE] != mine[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_was_saved_goes_on_bit_for_bit(model: Path, kind: str) -> None:
    policies = KINDS[kind]
    policy = next(iter(policies))
    made = learner(model, policies, num_minibatches=2)
    items = with_logprobs(made, policy, replies(1))
    made.train(policy, items, 1)
    given, state = made.files(policy)[0], made.state(policy)
    assert CRITIC_FILE not in given, "samplers are given no head"
    if kind == "lora":
        assert set(given) == {ADAPTER_FILE, ADAPTER_CONFIG}
    again = learner(model, policies, num_minibatches=2)
    again.load(policy, {**given, **state})
    for one in (made, again):
        one.train(policy, items, 2)
    assert again.files(policy)[1] == made.files(policy)[1]
    assert again.state(policy) == made.state(policy)
    assert (flat(again.values(policy, items)) == flat(made.values(policy, items))).all()


@pytest.mark.parametrize("max_batch_tokens", [16, 40])
def test_how_a_batch_is_cut_changes_no_value_loss(model: Path, max_batch_tokens: int) -> None:
    found = []
    for size in (max_batch_tokens, 10_000):
        made = learner(model, FULL, max_batch_tokens=size)
        items = with_logprobs(made, "f", replies())
        made.train("f", items, 0)
        numbers = made.train("f", items, 1)
        found.append((numbers["value_loss"], numbers["grad_norm"]))
    assert found[0] == pytest.approx(found[1], rel=1e-3)


# Separate critics


def test_a_critic_expects_nothing_at_first_and_fits_a_constant(model: Path) -> None:
    made = critic(model)
    joint_actions = alone(replies(target=-1.5))
    assert not any(row.any() for row, _ in made.values(joint_actions))
    losses = [made.train(joint_actions, step)["value_loss"] for step in range(40)]
    assert losses[0] == pytest.approx(2.25)
    assert losses[-1] < 0.05
    assert flat([row for row, _ in made.values(joint_actions)]) == pytest.approx(-1.5, abs=0.5)


def test_places_without_a_target_are_not_trained(model: Path) -> None:
    made = critic(model)
    items = replies()
    for item in items:
        item.targets[1:] = np.nan
    numbers = made.train(alone(items), 0)
    firsts = np.array([item.targets[0] for item in items])
    assert numbers["value_loss"] == pytest.approx(float((firsts**2).mean()), rel=1e-5)


@pytest.mark.parametrize("mixer", ["sum", "monotonic"])
def test_a_mix_fits_the_returns_of_the_team(model: Path, mixer: str) -> None:
    made = critic(model, mixer)
    joint_actions = rounds()
    first = made.values(joint_actions)
    assert {mixed for _, mixed in first} == {0.0}
    losses = [made.train(joint_actions, step)["value_loss"] for step in range(80)]
    targets = np.array([joint_action.items[0].targets[0] for joint_action in joint_actions])
    assert losses[0] == pytest.approx(float((targets**2).mean()), rel=1e-5)
    assert losses[-1] < losses[0] / 10
    assert made.train(joint_actions, 99)["explained_variance"] > 0.8


def test_the_sum_is_the_sum_of_what_its_roles_add(model: Path) -> None:
    made = critic(model, "sum")
    joint_actions = rounds()
    for step in range(3):
        made.train(joint_actions, step)
    found = iter(made.values(joint_actions))
    for joint_action in joint_actions:
        rows = [next(found) for _ in joint_action.items]
        added = sum(row[-1] for row, _ in rows)
        for row, expected in rows:
            assert expected == pytest.approx(added - row[-1] + row[0], abs=1e-5)


def test_what_is_expected_but_for_a_reply_does_not_depend_on_it(model: Path) -> None:
    """Or a critic that is wrong would turn advantages round."""
    made = critic(model, "monotonic")
    joint_actions = [joint_action for joint_action in rounds() if len(joint_action.roles) > 1]
    for step in range(3):
        made.train(joint_actions, step)
    said = joint_actions[0].items[0].response_ids.copy()
    before = made.values(joint_actions[:1])
    joint_actions[0].items[0].response_ids[:] = said[::-1] + 1
    after = made.values(joint_actions[:1])
    joint_actions[0].items[0].response_ids[:] = said
    assert before[0][1] == pytest.approx(after[0][1], abs=1e-6), "of the reply itself"
    assert before[1][1] != pytest.approx(after[1][1], abs=1e-6), "of the other's"


@pytest.mark.parametrize("mixer", ["sum", "monotonic"])
def test_a_mixed_loss_has_the_gradients_of_one_plain_pass(model: Path, mixer: str) -> None:
    """Found in two goes over passes of a few replies, against autograd through all at once."""
    made = critic(model, mixer, max_batch_tokens=24, max_grad_norm=1e9)
    joint_actions = rounds()
    for step in range(2):
        made.train(joint_actions, step)
    numbers, grads = made._accumulate(joint_actions, made._value_gradients(joint_actions)), {}
    for part in made._parts:
        grads |= {name: p.grad.clone() for name, p in part.parameters.items()}
        part.optimizer.zero_grad()
    total, lm = torch.zeros(()), made._model
    for joint_action in joint_actions:
        v, q = torch.zeros(1, 3), torch.zeros(1, 3)
        spoke, state = torch.zeros(1, 3, dtype=torch.bool), torch.zeros(1, 64)
        for role, item in zip(joint_action.roles, joint_action.items, strict=True):
            at = ROLES.index(role)
            ids = torch.from_numpy(np.concatenate([item.prompt_ids, item.response_ids])).long()
            hidden = lm.decoder(input_ids=ids[None], use_cache=False).last_hidden_state[0]
            end = len(item.prompt_ids) - 1
            v[0, at], q[0, at] = lm.head(hidden[end]), lm.head(hidden[-1])
            spoke[0, at] = True
            state += hidden[end].detach() / len(joint_action.roles)
        target = joint_action.items[0].targets[0]
        total = total + (made._mixer(q, spoke, state) - target).square().sum() / (
            2 * len(joint_actions)
        )
        for role in joint_action.roles:
            one = q.clone()
            one[0, ROLES.index(role)] = v[0, ROLES.index(role)]
            error = (made._mixer(one, spoke, state) - target).square().sum()
            total = total + error / (2 * len(joint_actions) * len(joint_action.roles))
    total.backward()
    assert numbers == pytest.approx(total.item(), rel=1e-4)
    for part in made._parts:
        for name, parameter in part.parameters.items():
            torch.testing.assert_close(grads[name], parameter.grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("mixer", [None, "sum", "monotonic"])
def test_a_critic_that_was_saved_goes_on_bit_for_bit(model: Path, mixer: str | None) -> None:
    made = critic(model, mixer, num_minibatches=2, warmup_steps=3)
    joint_actions = alone(replies(1)) if mixer is None else rounds(1)
    made.train(joint_actions, 1)
    files = made.saved()
    assert set(files) == {CRITIC_FILE, OPTIMIZER_FILE}
    again = critic(model, mixer, num_minibatches=2, warmup_steps=3)
    again.load(files)
    numbers = [{**one.train(joint_actions, 2), "seconds": 0} for one in (made, again)]
    assert numbers[0] == numbers[1]
    assert again.saved() == made.saved()
    with pytest.raises(LearnerError, match="saved weights of a critic belong to another model"):
        critic(model, None if mixer == "monotonic" else "monotonic").load(files)


def test_a_step_that_is_not_finite_is_skipped(model: Path) -> None:
    made = critic(model)
    before = made.saved()[CRITIC_FILE]
    (bad, *_) = items = replies()
    bad.targets[0] = 1e30
    assert made.train(alone(items), 1)["skipped_updates"] == 1
    assert made.saved()[CRITIC_FILE] == before


# Numbers


def test_a_clipped_value_gains_nothing_by_moving_on() -> None:
    value = torch.tensor([[0.3, 0.3, 5.0]], requires_grad=True)
    old, target = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[1.0, -1.0, torch.nan]])
    errors = squared_errors(value, old, target, 0.2)
    assert errors.item() == pytest.approx(0.8**2 + 1.3**2)
    errors.backward()
    assert value.grad.tolist() == [pytest.approx([0, 2.6, 0])]
    assert squared_errors(value, old, target, None).item() == pytest.approx(0.7**2 + 1.3**2)


def test_explained_variance() -> None:
    targets = np.array([1.0, 3.0, 5.0])
    assert explained_variance(targets, targets) == 1
    assert explained_variance(np.array([9.0, 9.0, 9.0]), targets) == 0
    assert explained_variance(np.array([1.0, 3.0, 2.0]), targets) == pytest.approx(1 - 2 / (8 / 3))
    assert explained_variance(targets, np.array([2.0, 2.0, 2.0])) == 0


def test_a_critic_of_the_team_reads_what_the_team_saw() -> None:
    (turn,) = linear("t", 0, ("a", rewards(team=1.0))).turns
    overwrite(turn, centralized_ids=np.array([7, 8, 9], dtype=np.int32))
    ((own,), (centralized,)) = (joint_actions_of([[turn]], read)[0].items for read in (False, True))
    assert own.prompt_ids is turn.prompt_ids
    assert centralized.prompt_ids is turn.centralized_ids
    assert centralized.response_ids is turn.response_ids
    overwrite(turn, centralized_ids=None)
    with pytest.raises(LearnerError, match="without a centralized observation"):
        joint_actions_of([[turn]], True)
    turn.credit.returns = np.zeros(3, dtype=np.float32)
    with pytest.raises(LearnerError, match="has value targets but no values"):
        joint_actions_of([[turn]], False)


def test_a_critic_follows_the_learners_settings(model: Path) -> None:
    made = critic(model, mixer="qmix", momentum=0.3, weight_decay=0.1)
    for part in made._parts:
        assert part.optimizer.defaults["betas"] == (0.3, 0.999)
        assert {group["weight_decay"] for group in part.optimizer.param_groups} == {0.0, 0.1}
