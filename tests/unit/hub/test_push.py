"""`push` through the real client to a hub on loopback, and what others load from there."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hub_server import TOKEN, Hub, faults, hub_running, metadata

pytest.importorskip("torch")
pytest.importorskip("peft")

from huggingface_hub import ModelCard
from pushed_runs import NUM_STEPS, make_base, make_run
from safetensors import safe_open

from pettingllms.config import load_config, parse_config

LOAD = {
    "full": """\
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained("lab/planner")
AutoTokenizer.from_pretrained("lab/planner")
""",
    "lora": """\
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer
model = AutoPeftModelForCausalLM.from_pretrained("lab/planner")
AutoTokenizer.from_pretrained("lab/tiny")
""",
}
SAVE = """\
import sys
from safetensors.torch import save_file
named = {name: value.detach().clone() for name, value in model.named_parameters()}
save_file(named, sys.argv[1])
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def runs(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("runs")
    return {kind: make_run(top / f"team_{kind}", base, kind) for kind in ("full", "lora")}


@pytest.fixture
def hub(base: Path):
    with hub_running() as found:
        files = {file.name: file.read_bytes() for file in base.iterdir()}
        card = b"---\nlicense: apache-2.0\n---\n# tiny\n"
        found.add("lab/tiny", {**files, "README.md": card})
        yield found


def environment(hub: Hub, home: Path, token: str = TOKEN) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    source = str(Path(__file__).parents[3] / "src")
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home / "hf"), "HOME": str(home)}
    own |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
    own |= {"HF_TOKEN": token} if token else {}
    return {**kept, "PYTHONPATH": source, **own, "NO_PROXY": "*"}


def push(hub: Hub, home: Path, run: Path, *words: str, token: str = TOKEN):
    command = [sys.executable, "-m", "pettingllms", "push", str(run), *words]
    return subprocess.run(
        command,
        env=environment(hub, home, token),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def tensors(file: Path) -> dict:
    with safe_open(file, "np") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


PLANNER = ("lab/planner", "--policy", "planner")


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_what_is_pushed_loads_back_with_the_same_weights(
    kind: str, runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    own = ("--base", "lab/tiny") if kind == "lora" else ()
    done = push(hub, tmp_path, runs[kind], *PLANNER, *own)
    assert done.returncode == 0, done.stderr
    assert f"Pushed to {hub.url}/lab/planner" in done.stdout
    code = f"{LOAD[kind]}\n{SAVE}"
    loaded = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "loaded.safetensors")],
        env=environment(hub, tmp_path, token=""),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert loaded.returncode == 0, loaded.stderr
    found = tensors(tmp_path / "loaded.safetensors")
    name = "adapter_model.safetensors" if kind == "lora" else "model.safetensors"
    saved = tensors(runs[kind] / "trained-planner" / name)
    if kind == "lora":
        found = {key.replace(".default.", "."): value for key, value in found.items()}
        found = {key: value for key, value in found.items() if "lora" in key}
    assert set(saved) <= set(found) | {"lm_head.weight"}
    assert all((found[key] == saved[key]).all() for key in saved if key in found)
    assert len(found) > 4
    everything = b"".join(hub.repos["models/lab/planner"].files.values())
    assert str(tmp_path.parent).encode() not in everything
    assert str(runs[kind].parent).encode() not in everything, "a folder of this machine"


def test_card_is_valid_and_says_what_was_trained(
    runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    done = push(hub, tmp_path, runs["lora"], *PLANNER, "--base", "lab/tiny")
    assert done.returncode == 0, done.stderr
    repo = hub.repos["models/lab/planner"]
    text = repo.files["README.md"].decode()
    card = ModelCard(text)
    assert card.data.base_model == "lab/tiny"
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "peft"
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_value) == ("plan_path-v1", 0.6)
    for needed in (
        'AutoPeftModelForCausalLM.from_pretrained("lab/planner")',
        "vllm serve lab/tiny --enable-lora",
        "`planner`",
        "(`at_grpo`)",
        f"| steps | {NUM_STEPS} of 8 |",
        "| 30.0% (step 3) | 60.0% (step 6) |",
        "pettingllms train training_config.toml",
    ):
        assert needed in text, needed
    assert repo.files["learning_curve.png"].startswith(b"\x89PNG")
    assert "optimizer.safetensors" not in repo.files
    adapter = json.loads(repo.files["adapter_config.json"])
    assert adapter["base_model_name_or_path"] == "lab/tiny"


def test_a_wrong_card_is_refused_by_this_hub() -> None:
    """The server checks cards, so that a passing push says something."""
    good = "---\nlicense: mit\nbase_model: a/b\n---\n"
    assert faults("model", good) == []
    assert faults("model", good.replace("mit", "free")) != []
    assert faults("model", good.replace("a/b", "/home/me/model")) != []
    assert faults("model", "# no metadata") == ["no metadata"]


def test_episodes_are_a_dataset(runs: dict[str, Path], hub: Hub, tmp_path: Path) -> None:
    from pettingllms.types import read_episodes

    done = push(hub, tmp_path, runs["full"], *PLANNER, "--episodes", "--private")
    assert done.returncode == 0, done.stderr
    repo = hub.repos["datasets/lab/planner-episodes"]
    assert repo.private
    assert hub.repos["models/lab/planner"].private
    for name in ("step-000001-000", f"step-{NUM_STEPS:06d}-000"):
        shard = repo.files[f"episodes/{name}.zip"]
        assert shard == (runs["full"] / "episodes" / f"{name}.zip").read_bytes()
        lines = [json.loads(line) for line in repo.files[f"turns/{name}.jsonl"].splitlines()]
        (tmp_path / f"{name}.zip").write_bytes(shard)
        turns = [t for e in read_episodes(tmp_path / f"{name}.zip") for t in e.turns]
        assert [line["reply"] for line in lines] == [turn.text for turn in turns]
        assert [line["advantage"] for line in lines] == [t.credit.advantage for t in turns]
    card = metadata(repo.files["README.md"].decode())
    assert card["configs"][0]["data_files"][0]["path"] == "turns/*.jsonl"
    assert card["size_categories"] == ["n<1K"]
    assert "lab/planner-episodes" in hub.repos["models/lab/planner"].files["README.md"].decode()


def test_token_is_only_in_the_header(runs: dict[str, Path], hub: Hub, tmp_path: Path) -> None:
    hub.broken = "commit"
    done = push(hub, tmp_path, runs["full"], *PLANNER)
    assert done.returncode == 2
    assert "the hub refused or did not answer" in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert TOKEN not in "".join(path for _, path, _ in hub.seen)
    assert any(TOKEN in header for _, _, header in hub.seen)
    storage = [header for _, path, header in hub.seen if "/storage/" in path]
    assert storage
    assert not any(storage)
    assert [one.name for one in runs["full"].iterdir() if one.name.startswith(".push-")] == []


def test_without_a_token_nothing_is_asked(runs: dict[str, Path], hub: Hub, tmp_path: Path) -> None:
    done = push(hub, tmp_path, runs["full"], *PLANNER, token="")
    assert done.returncode == 2
    assert "not logged in to the hub; log in with `hf auth login`" in done.stderr
    assert hub.seen == []


def test_a_wrong_token_is_explained(runs: dict[str, Path], hub: Hub, tmp_path: Path) -> None:
    done = push(hub, tmp_path, runs["full"], *PLANNER, token="hf_wrongTokenOfATest")  # noqa: S106
    assert done.returncode == 2
    assert "HF_TOKEN to a token that may write" in done.stderr
    assert "hf_wrongTokenOfATest" not in done.stdout + done.stderr
    assert "models/lab/planner" not in hub.repos


def test_repositories_of_others_are_not_overwritten(
    runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    hub.add("lab/planner", {"README.md": b"---\ntags: [mine]\n---\n", "weights.bin": b"w"})
    done = push(hub, tmp_path, runs["full"], *PLANNER)
    assert done.returncode == 2
    assert "has files that `pettingllms push` did not write" in done.stderr
    hub.repos["models/lab/planner"].files = {}
    private = push(hub, tmp_path, runs["full"], *PLANNER, "--private")
    assert "lab/planner exists and is public" in private.stderr
    assert hub.repos["models/lab/planner"].files == {}


def test_dry_run_writes_the_card_and_asks_no_hub(
    runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    out = tmp_path / "card"
    done = push(hub, tmp_path, runs["full"], *PLANNER, "--dry-run", "--out", str(out), token="")
    assert done.returncode == 0, done.stderr
    assert "nothing was uploaded" in " ".join(done.stdout.split())
    names = {"README.md", "learning_curve.png", "training_config.toml"}
    assert {file.name for file in out.iterdir()} == names
    shown = parse_config(tomllib.loads((out / "training_config.toml").read_text()))
    assert shown.policies["planner"].model == "tiny"
    assert shown.env == load_config(runs["full"] / "config.toml").env
    assert hub.seen == []


def test_an_adapter_of_an_unknown_base_is_refused(
    runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    done = push(hub, tmp_path, runs["lora"], *PLANNER)
    assert done.returncode == 2
    assert "is an adapter of the folder 'tiny'" in done.stderr
    assert "give it with --base OWNER/NAME" in done.stderr
    assert "models/lab/planner" not in hub.repos


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lab/planner",), "several were trained: planner, checker; name one"),
        (("lab/planner", "--policy", "planer"), "'planer' was not trained; did you mean"),
        (("planner", "--policy", "planner"), "'planner' is no name of a repository"),
        (("lab/../x", "--policy", "planner"), "is no name of a repository"),
    ],
)
def test_mistakes_are_explained(
    words: tuple[str, ...], message: str, runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    done = push(hub, tmp_path, runs["full"], *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert all(method == "GET" for method, _, _ in hub.seen)
