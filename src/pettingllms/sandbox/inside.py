"""Runs inside a sandbox before the program. The source of this file is passed to `python -c`.

It enters the control group of the sandbox, if there is one, and installs the system call filter.
Then it forks into a supervisor, which is process 1 of the sandbox, and a runner, which waits for a
job and becomes the program. Only the supervisor has the control socket and the nonce of the run; it
reports how the runner ended. No process in the sandbox can stop, signal or read the supervisor.
When it ends, the kernel kills all other processes of the sandbox. The runner is an interpreter that
has already started: it runs Python programs directly, and any other command replaces it.

This file needs only the standard library of Python 3.9 or later.
"""

from __future__ import annotations

import _ctypes
import _signal as signal  # type: ignore[import-not-found]  # `signal` takes longer to import than all other modules here
import _socket
import atexit
import bisect
import collections
import functools
import heapq
import itertools
import math
import os
import resource
import site
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` is slow to import as well
    from typing import NoReturn

    Trace = types.TracebackType | None

WARM = (bisect, collections, functools, heapq, itertools, math)
"""Imported early because many programs need them."""
WORK = "/work"
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_FILTER, NEW_LISTENER = 1, 8
SOL_SOCKET, SCM_RIGHTS = 1, 1


def main(control: int, rules: int, entrance: int) -> None:
    """Fork into supervisor and runner. The runner continues as the program."""
    sys.path[:] = [path for path in sys.path if path]
    os.environ.pop("PWD", None)
    if entrance >= 0:
        os.write(entrance, b"0")
    install_filters(control, rules)
    os.closerange(3, control)
    os.closerange(control + 1, 4096)
    pid = os.fork()
    if pid:
        supervise(control, pid)
    os.close(control)
    os.setsid()
    command, limits, files = read_job()
    os.chdir(WORK)
    for name, size in files:
        os.makedirs(os.path.dirname(os.path.join(WORK, name)), exist_ok=True)
        with open(name, "wb") as file:
            file.write(read(size))
    for limit, value in limits:
        resource.setrlimit(getattr(resource, "RLIMIT_" + limit), (value, value))
    start(command)


def install_filters(control: int, rules: int) -> None:
    """Install the system call filters irrevocably and send the listener out of the sandbox."""
    logged, passing, plain = read_parts(rules)
    listener = install_filter(logged, NEW_LISTENER)
    if listener < 0:  # another listener is active: blocked calls are not logged
        require(install_filter(plain, 0))
        os.write(control, b"closed\n")
        return
    right = (SOL_SOCKET, SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))
    sender = _socket.socket(fileno=control)
    sender.sendmsg([b"closed\n"], [right])
    sender.detach()
    require(install_filter(passing, 0))
    os.close(listener)


def read_parts(rules: int) -> list[bytes]:
    """Read the filters, each with a length prefix."""
    whole, parts = os.read(rules, 1 << 16), []
    while whole:
        size = 4 + int.from_bytes(whole[:4], "big")
        parts.append(whole[4:size])
        whole = whole[size:]
    return parts


def install_filter(steps: bytes, flags: int) -> int:
    """Install one filter. Uses `_ctypes` because `ctypes` is slow to import.

    The kernel reads the number of instructions and their address. The content of a bytes object
    follows its header.
    """
    where = id(steps) + bytes.__basicsize__ - 1
    program = (len(steps) // 8).to_bytes(8, "little") + where.to_bytes(8, "little")
    syscall = _ctypes.dlsym(_ctypes.dlopen(None, 0), "syscall")  # type: ignore[arg-type]
    number = SECCOMP[os.uname().machine]
    result: int = _ctypes.call_function(syscall, (number, SET_FILTER, flags, program))
    return result


def require(result: int) -> None:
    """Exit if a filter was not installed."""
    if result < 0:
        sys.exit("the kernel denied the system call filter (seccomp)")


def supervise(control: int, runner: int) -> NoReturn:
    """Wait for the job and report how the runner ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 receives only signals that it handles
    nothing = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.write(control, b"ready\n")
    nonce = os.read(control, 64)
    while nonce:
        pid, status = os.wait()
        if pid == runner:
            os.write(control, nonce + b" %d\n" % status)
            break
    os._exit(0)


def read(size: int) -> bytes:
    """Read exactly `size` bytes of the job, and nothing of the program's input after it."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            os._exit(0)  # the sandbox was closed without a job
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_job() -> tuple[list[str], list[tuple[str, int]], list[tuple[str, int]]]:
    """Read the command, the resource limits by name, and the files with their sizes.

    They are three lists of fields with length prefixes, because `json` is slow to import.
    """
    fields = iter(read(int.from_bytes(read(8), "big")).decode().split("\0"))
    lists = [[next(fields) for _ in range(int(next(fields)))] for _ in range(3)]
    command, limits, files = lists
    return command, pairs(limits), pairs(files)


def pairs(fields: list[str]) -> list[tuple[str, int]]:
    """Pairs of name and number."""
    return [(name, int(value)) for name, value in zip(fields[::2], fields[1::2])]  # noqa: B905


def start(command: list[str]) -> None:
    """Become the program."""
    name, arguments = command[0], command[1:]
    if name == "python" and arguments and not arguments[0].startswith("-"):
        start_python(arguments)
        return
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    path = sys.executable if name == "python" else os.path.join("/usr/bin", name)
    os.execv(path, command)  # noqa: S606 - this is what the sandbox is for


def start_python(arguments: list[str]) -> None:
    """Run a file like `python FILE ...`."""
    site.setquit()
    site.sethelper()
    path = os.path.abspath(arguments[0])
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    sys.argv[:] = arguments
    sys.path.insert(0, os.path.dirname(path))
    sys.excepthook = show_error
    code = 0
    try:
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except SystemExit as exit_:
        code = exit_code(exit_.code)
    except BaseException:  # noqa: BLE001 - whatever the program raised
        sys.excepthook(*sys.exc_info())
        code = 1
    end(module, code)


def exit_code(asked: object) -> int:
    """The exit code for an argument of `sys.exit`."""
    if asked is None:
        return 0
    if isinstance(asked, int):
        return asked & 0xFF
    print(asked, file=sys.stderr)  # noqa: T201 - like the interpreter
    return 1


def show_error(kind: type[BaseException], error: BaseException, trace: Trace) -> None:
    """Print a traceback without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code is start_python.__code__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def end(module: types.ModuleType, code: int) -> NoReturn:
    """Exit like the interpreter, but skip its teardown, which is faster."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    module.__dict__.clear()  # closes its files
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            code = code or 120
    os._exit(code)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
