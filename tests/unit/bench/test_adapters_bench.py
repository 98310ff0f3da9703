"""What `bench adapters` compares: two runs that differ only in their policies."""

from pathlib import Path

import pytest

pytest.importorskip("ray")

from pettingllms.bench.adapters_bench import PhaseClock, Round, run_config, summary
from pettingllms.bench.parallel_roles import ParallelRoles
from pettingllms.envs import make_env_for


def rounds(*costs: tuple[float, float]) -> list[tuple[Round, Round]]:
    """Rounds in which learning costs as given, the rest 1 CPU-second, and one side samples twice
    the tokens."""

    def side(num_tokens: int, learning: float) -> Round:
        phases = {"sampling": 1.0, "learning": learning, "publishing": 1.0}
        return Round(num_tokens, {**phases, "step": sum(phases.values())})

    return [(side(1000, one), side(2000, several)) for one, several in costs]


def test_costs_are_compared_per_token_and_by_round() -> None:
    found = summary("m", "float32", 8, rounds((1, 2), (2, 8), (4, 24)))
    assert found.ratios["learning"] == (1.0, 2.0, 3.0)
    assert found.ratio["learning"] == 2.0
    assert found.ratio["sampling"] == 0.5
    assert found.ratios["step"][0] == pytest.approx(4 / 3 / 2, abs=1e-3)
    assert (found.one["learning"], found.several["learning"]) == (2.0, 4.0)
    assert found.num_tokens == (3000, 6000)
    assert (found.num_replies, found.repeats) == (64, 3)


def test_sides_have_the_same_prompts_and_differ_in_their_policies() -> None:
    one, several = (run_config(Path("m"), "bfloat16", 8, count) for count in (1, 8))
    assert set(one.roles.values()) == {"policy0"}
    assert sorted(several.roles.values()) == sorted(several.policies)
    assert one.roles.keys() == several.roles.keys()
    assert len(several.policies) == 8
    same = one.model_copy(update={"policies": several.policies, "roles": several.roles})
    assert same == several
    env = make_env_for(one.env)
    prompts = {env.observe(env.reset(env.tasks("train")[0], 0), role)[0].text for role in env.roles}
    assert len(prompts) == 8, "no prompt may be shared by policies"


def test_all_roles_reply_once_and_rewards_differ() -> None:
    env = ParallelRoles()
    state = env.reset(env.tasks("train")[0], 0)
    assert env.acting(state) == env.roles
    result = env.step(state, {role: f"reply of {role}" for role in env.roles})
    assert env.acting(result.state) == ()
    assert len({reward.value for reward in result.rewards.agent.values()}) == 8


def test_the_clock_measures_each_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 3.0, 3.0, 10.0])
    monkeypatch.setattr("pettingllms.bench.adapters_bench.cpu_seconds", lambda: next(times))
    clock = PhaseClock()
    clock.on_phase("sampling")
    clock.on_phase("learning")
    clock.stop()
    clock.stop()
    assert clock.seconds == {"sampling": 2.0, "learning": 7.0}
