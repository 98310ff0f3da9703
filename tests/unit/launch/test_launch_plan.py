import pytest
from launch_cases import team

from pettingllms.config import parse_config
from pettingllms.errors import ClusterError, ConfigError
from pettingllms.launch.plan import Request, plan_launch


def sizes(config, **request) -> tuple[int, int]:
    plan = plan_launch(config, "x", Request(**request))
    return plan.num_nodes, plan.gpus_per_node


def one_model(**sections):
    policies = {"p": {"kind": "lora", "model": "m"}}
    data = {"env": {"id": "tic_tac_toe-v1"}, "algo": {"type": "grpo"}, "policies": policies}
    return parse_config({**data, **sections})


def test_resources_come_from_the_placement_plan() -> None:
    assert sizes(team()) == (2, 8)
    assert sizes(team(), num_nodes=4) == (4, 4)
    assert sizes(team(), gpus_per_node=4) == (4, 4)
    assert sizes(team(), num_nodes=3, gpus_per_node=16) == (3, 16)
    assert sizes(one_model()) == (1, 2)
    assert sizes(one_model(cluster={"placement": "colocated"})) == (1, 1)
    assert sizes(one_model(cluster={"device": "cpu"})) == (1, 0)
    assert sizes(one_model(), gpus_per_node=0, num_nodes=2) == (2, 0)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"num_nodes": 1}, "the run needs 14 GPUs .* only 8 were found"),
        ({"num_nodes": 1, "gpus_per_node": 8}, "lower num_replicas or num_ranks"),
        ({"gpus_per_node": 1}, "needs 2 GPUs on one node .*tensor_parallel"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_the_message_of_the_plan(request_, message) -> None:
    with pytest.raises(ClusterError, match=message):
        plan_launch(team(), "x", Request(**request_))


def test_memory_that_does_not_fit_is_refused(tmp_path) -> None:
    big = {"hidden_size": 8192, "num_hidden_layers": 80, "intermediate_size": 28672}
    fields = '"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 151936'
    text = ", ".join(f'"{name}": {value}' for name, value in big.items())
    (tmp_path / "config.json").write_text(
        f'{{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], {text}, {fields}, '
        '"head_dim": 128, "tie_word_embeddings": false}'
    )
    policies = {"p": {"kind": "full", "model": str(tmp_path)}}
    config = one_model(policies=policies)
    with pytest.raises(ClusterError, match=r"(?s)does not fit on 1 node, each with 2 GPUs t4-16"):
        plan_launch(config, "x", Request(gpu="t4-16"))


def test_keys_are_names_of_variables_and_their_values_are_not_read(monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2")
    policies = {
        "p": {"kind": "lora", "model": "m"},
        "q": {"kind": "api", "url": "http://h/v1", "model": "m", "key": "MY_KEY"},
    }
    roles = {"player_x": "p", "player_o": "q"}
    plan = plan_launch(
        one_model(policies=policies, roles=roles, log={"wandb": "w"}), "x", Request()
    )
    assert plan.keys == ("MY_KEY", "WANDB_API_KEY")
    assert "hunter2" not in repr(plan)


def test_a_name_of_a_variable_cannot_be_code() -> None:
    policies = {"p": {"kind": "api", "url": "http://h/v1", "model": "m", "key": "A;rm -rf"}}
    with pytest.raises(ConfigError, match="no name of an environment variable"):
        plan_launch(one_model(policies=policies), "x", Request(gpus_per_node=0))


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r'--gpus: is 2, but cluster.device is "cpu"'):
        plan_launch(one_model(cluster={"device": "cpu"}), "x", Request(gpus_per_node=2))
    with pytest.raises(ConfigError, match="starts its cluster; leave it out"):
        plan_launch(one_model(cluster={"address": "10.0.0.1:6379"}), "x", Request())


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("Team 14", "team-14"),
        ("14_b", "run-14-b"),
        ("a" * 90, "a" * 40),
        ("$(x)", "x"),
        ("", "run"),
    ],
)
def test_names_are_valid_everywhere(name: str, valid: str) -> None:
    assert plan_launch(one_model(), name, Request()).name == valid
