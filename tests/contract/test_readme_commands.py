"""The script that follows the README takes its commands from there, and stops where one fails."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
from follow_readme import KEYS, chosen, read_commands, script_of

README = (ROOT / "README.md").read_text()


def test_every_command_of_the_readme_is_followed_by_some_choice() -> None:
    sections = re.findall(r"^## (.+)$", README, re.MULTILINE)
    followed = {line for n in range(3) for line in read_commands(README, sections, n)}
    written = {
        line
        for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
        for line in block.splitlines()
    }
    assert followed == written
    assert sum("pettingllms" in line for line in followed) > 5


def test_of_alternatives_one_is_taken() -> None:
    lines = ["a", "b  # the core", "c  # or: engines", "d  #or: more", "", "e"]
    assert chosen(lines, 0) == ["a", lines[1], "e"]
    assert chosen(lines, 1) == ["a", lines[2], "e"]
    assert chosen(lines, 9) == ["a", lines[3], "e"]


def test_it_goes_from_install_to_a_run_that_is_trained_and_viewed() -> None:
    commands = read_commands(README, ["Install", "First steps"], 1)
    steps = ("venv", "install_cpu.sh", "quickstart", "view runs/quickstart-1")
    order = [next(n for n, line in enumerate(commands) if words in line) for words in steps]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        (["x=1 && export x", "test $x = 1  # holds", "read typed; test $typed = 5"], 0),
        (["true", "false", "touch after"], 1),
        (["false && true", "touch after"], 1),
    ],
)
def test_commands_share_a_shell_and_the_first_that_fails_ends_it(
    tmp_path: Path, commands: list[str], code: int
) -> None:
    (tmp_path / "typed").write_text(KEYS)
    (tmp_path / "clone").mkdir()
    done = subprocess.run(
        ["bash", "-c", script_of(commands)],  # noqa: S607
        cwd=tmp_path / "clone",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert not (tmp_path / "clone/after").exists()
    assert all(f"$ {line}" in done.stdout for line in commands) == (code == 0)
    assert ("All of 3 commands" in done.stdout) == (code == 0)
