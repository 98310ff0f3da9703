"""Follow the README as a person would who has nothing: its own commands, in a fresh folder.

python scripts/follow_readme.py                  # Install and First steps, with engines for a CPU
python scripts/follow_readme.py --sections Install 'First steps' Train

The commands are read from the README's blocks and run one after the other in one shell; none is
written down here. Where lines are alternatives ("# or: ..."), --choice says which. The clone is a
copy of the files that git has. Every command's time is printed; the first that fails ends it.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEYS = "\n".join("512346789" * 3) + "\n"
"""What is typed where a person is asked: every cell of a board, until the game is over."""
STEP = """\
printf '\\n$ %s\\n' {quoted}
began=$SECONDS
{{ {line}
}} < ../typed || {{ printf '\\nThe README does not hold: exit code %s\\n' $?; exit 1; }}
printf '    %s s\\n' $((SECONDS - began))
"""
END = """\
printf '\\nAll of {count} commands: %s min %s s\\n' $((SECONDS / 60)) $((SECONDS % 60))
"""


def read_commands(text: str, sections: list[str], choice: int) -> list[str]:
    """The lines of the bash blocks of some sections, in order."""
    found: list[str] = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if part.partition("\n")[0].strip() in sections:
            for block in re.findall(r"```bash\n(.*?)```", part, re.DOTALL):
                found += chosen(block.splitlines(), choice)
    return found


def chosen(lines: list[str], choice: int) -> list[str]:
    """The lines, of alternatives one: those whose comment begins with "or:", and the one before."""
    kept: list[list[str]] = []
    for line in filter(str.strip, lines):
        if re.search(r"#\s*or:", line):
            kept[-1].append(line)
        else:
            kept.append([line])
    return [among[min(choice, len(among) - 1)] for among in kept]


def script_of(commands: list[str]) -> str:
    """One shell for all, so that an environment that one command enters holds for the next."""
    steps = [STEP.format(quoted=shlex.quote(line), line=line) for line in commands]
    return "".join(steps) + END.format(count=len(commands))


def clone(folder: Path) -> None:
    """What git has of the working tree, as a clone would have it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())


def main() -> None:
    """Follow the README."""
    parser = argparse.ArgumentParser(description="Follow the README's own commands.")
    parser.add_argument("--sections", nargs="+", default=["Install", "First steps"])
    parser.add_argument("--choice", type=int, default=1, help="of alternatives, counted from 0")
    parser.add_argument("--list", action="store_true", help="print the commands, and run none")
    given = parser.parse_args()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = read_commands(text, given.sections, given.choice)
    if given.list:
        print("\n".join(commands))
        return
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        clone(top / "clone")
        (top / "typed").write_text(KEYS, encoding="utf-8")
        (top / "follow.sh").write_text(script_of(commands), encoding="utf-8")
        sys.exit(
            subprocess.run(["bash", top / "follow.sh"], cwd=top / "clone", check=False).returncode
        )


if __name__ == "__main__":
    main()
