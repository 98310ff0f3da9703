"""A first sandbox on bubblewrap, for building on; not yet the one that holds."""

import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from pettingllms.sandbox.program import Limits, Outcome, Program, Sandbox


class Bubblewrap:
    """Every program in a fresh sandbox."""

    def run(self, program: Program, limits: Limits = Limits()) -> Outcome:  # noqa: B008
        """Run to the end, or to the time limit."""
        command = (
            ("/usr/bin/python3", "-I") if program.command[0] == "python" else program.command[:1]
        )
        with tempfile.TemporaryDirectory() as folder:
            for name, content in program.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            start = time.monotonic()
            try:
                done = subprocess.run(  # noqa: S603
                    [
                        "/usr/bin/bwrap",
                        "--unshare-all",
                        "--die-with-parent",
                        "--clearenv",
                        "--ro-bind",
                        "/usr",
                        "/usr",
                        "--symlink",
                        "usr/bin",
                        "/bin",
                        "--symlink",
                        "usr/lib",
                        "/lib",
                        "--symlink",
                        "usr/lib64",
                        "/lib64",
                        "--proc",
                        "/proc",
                        "--dev",
                        "/dev",
                        "--bind",
                        folder,
                        "/work",
                        "--chdir",
                        "/work",
                        *command,
                        *program.command[1:],
                    ],
                    input=program.stdin,
                    capture_output=True,
                    timeout=limits.seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Outcome("timeout", None, "", "", time.monotonic() - start)
        cut = limits.output_kb * 1024
        out, err = (part[:cut].decode(errors="replace") for part in (done.stdout, done.stderr))
        return Outcome("exited", done.returncode, out, err, time.monotonic() - start)


@cache
def open_sandbox() -> Sandbox:
    """The best sandbox that this machine can give."""
    return Bubblewrap()
