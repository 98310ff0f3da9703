"""One sandbox, used once: started early, given a program when there is one, and gone after it.

All that is said of a program is seen from here: what it wrote, capped; the clock; the memory of all
its processes; and how it ended, which process 1 of the sandbox reports with the nonce of this run
over a socket that the program does not have. A box is over when the last of its processes is.
"""

import json
import math
import os
import secrets
import select
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import cache

from pettingllms.errors import SandboxError
from pettingllms.sandbox.blocked_calls import Listener, note
from pettingllms.sandbox.cgroup import Place
from pettingllms.sandbox.memory_limit import make_meter
from pettingllms.sandbox.process_usage import descendants, num_files
from pettingllms.sandbox.program import End, Limits, Outcome, Program
from pettingllms.sandbox.seccomp import passing_filter, seccomp_filter
from pettingllms.sandbox.tiers import ENVIRONMENT, NUM_FILES, WORK, Descriptors, Setup, Tier
from pettingllms.sandbox.users import give_back, take_user

START_SECONDS = 20.0
"""How long a sandbox may take to be ready, on a machine that is busy."""
END_SECONDS = 20.0
"""How long processes that were killed may take to be gone."""
LOOK_SECONDS = 0.02
"""How often the memory of a program is looked at."""
SPARE_MB = 256
"""Addresses beyond the memory limit that one process may have: libraries, and stacks of threads."""
BESIDES = 4 << 20
"""Of the kernel's own memory for the processes of a program, which a control group counts too."""
FOREIGN = "call_of_another_architecture"
PART = 1 << 16


class Box:
    """A sandbox that waits for its one program. It dies with the thread that started it."""

    def __init__(self, tier: Tier, disk_mb: int, place: Place | None = None) -> None:
        """With a `place`, the sandbox gets a control group there."""
        self.disk_mb = disk_mb
        self._tier = tier
        self._lock = threading.RLock()
        self._control, theirs = socket.socketpair()
        self._info, info = os.pipe()
        rules, rules_in = os.pipe()
        with ExitStack() as ours, ExitStack() as given_away:
            self._meter = make_meter(place)
            ours.callback(self._meter.close)
            self._user = take_user()
            ours.callback(give_back, self._user)
            ours.callback(self._control.close)
            ours.callback(os.close, self._info)
            given_away.callback(theirs.close)
            for descriptor in (info, rules, rules_in):
                given_away.callback(os.close, descriptor)
            os.write(rules_in, _filters())
            given = Descriptors(theirs.fileno(), rules, info, self._meter.entrance)
            self._process = subprocess.Popen(  # noqa: S603 - the sandbox itself
                tier.command(Setup(disk_mb, given, self._user)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=[number for number in given if number >= 0],
                cwd="/",
                env=ENVIRONMENT,
                start_new_session=True,
            )
            ours.pop_all()
        self._ended = os.pidfd_open(self._process.pid)
        self._first: int | None = None
        """The number out here of process 1 of the sandbox."""
        self._handle: int | None = None
        """The same as something that can be killed, and that no other process can become."""
        self._listener: Listener | None = None
        """Where the kernel tells of refused calls; None if it cannot on this machine."""

    @property
    def is_logged(self) -> bool:
        """Whether refused system calls are counted; known once it is ready."""
        return self._listener is not None

    def wait_until_ready(self) -> None:
        """Wait until the program could start; the reason is raised if that never comes."""
        if not self._hear_ready():
            self.kill()
            said = _left_in(_number(self._process, 2)).decode(errors="replace").strip()
            self.close()
            raise SandboxError(f"the {self._tier.name} sandbox did not start: {said or 'silence'}")
        self._first = int(json.loads(os.read(self._info, PART))["child-pid"])
        self._handle = os.pidfd_open(self._first)
        for pid in (self._first, *descendants(self._first)):
            with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:  # noqa: PTH123
                file.write("1000")  # if the machine runs out of memory, it is this that goes

    def _hear_ready(self) -> bool:
        """Take the listener of the filter, which comes first, and wait for the last word."""
        heard = b""
        while not heard.endswith(b"ready\n"):
            if not _comes(self._control, START_SECONDS):
                return False
            part, descriptors, _, _ = socket.recv_fds(self._control, 64, 1)
            self._listener = next(map(Listener, descriptors), self._listener)
            heard += part
            if not part:
                return False
        return heard == b"closed\nready\n"

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run the one program to its end or to a limit; nothing of it is left after that."""
        try:
            return self._run(program, limits)
        finally:
            self.close()

    def _run(self, program: Program, limits: Limits) -> Outcome:
        assert self._first is not None  # noqa: S101 - it was waited for
        start = time.monotonic()
        self._meter.begin(self._first, limits.memory_mb << 20, _disk(self.disk_mb))
        exchange = _Exchange(
            self._process, self._control, _job(program, limits), limits, self._listener
        )
        exchange.nonce = secrets.token_hex(16).encode()
        self._control.sendall(exchange.nonce)
        next_look = start
        while not (end := exchange.go_on(LOOK_SECONDS)):
            now = time.monotonic()
            if now - start > limits.seconds:
                end = "timeout"
                break
            if now >= next_look:
                next_look = now + LOOK_SECONDS
                if self._takes_too_much():
                    end = "memory"
                    break
        seconds = time.monotonic() - start
        if end in ("exited", "killed") and self._meter.is_over():
            end = "memory"
        self.kill()
        exchange.drain()
        outcome = exchange.outcome(end, seconds)
        if self._listener is not None:
            note(outcome.refused)
        return outcome

    def kill(self) -> None:
        """End every process of the sandbox, and wait until they are gone."""
        with self._lock:
            if self._control.fileno() < 0:
                return
            if self._handle is None:
                self._process.kill()
            else:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            if not _comes(self._ended, END_SECONDS):
                self._process.kill()
                message = f"process {self._first} of a sandbox was killed {END_SECONDS:.0f} s ago"
                raise SandboxError(f"{message} and is still there")
            self._process.wait()

    def close(self) -> None:
        """End it, whatever it is doing."""
        with self._lock:
            if self._control.fileno() < 0:
                return
            self.kill()
            self._control.close()
            self._meter.close()
            give_back(self._user)
            if self._listener is not None:
                self._listener.close()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            for descriptor in (self._info, self._ended, self._handle):
                if descriptor is not None:
                    os.close(descriptor)

    def _takes_too_much(self) -> bool:
        assert self._first is not None  # noqa: S101 - it was waited for
        return self._meter.is_over() or num_files(self._first, WORK) > NUM_FILES


class _Exchange:
    """What goes in and comes out while a program runs."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        control: socket.socket,
        job: bytes,
        limits: Limits,
        listener: Listener | None,
    ) -> None:
        self.nonce = b""
        self._control = control
        self._listener = listener
        self._foreign = False
        """Whether the kernel ended it for a call of another architecture."""
        self._job = memoryview(job)
        self._report = b""
        self._cap = limits.output_kb * 1024
        self._outputs = {_number(process, 1): bytearray(), _number(process, 2): bytearray()}
        self._stdin = process.stdin
        self._selector = selectors.DefaultSelector()
        self._selector.register(_number(process, 0), selectors.EVENT_WRITE)
        for descriptor in (*self._outputs, control.fileno()):
            self._selector.register(descriptor, selectors.EVENT_READ)
        if listener is not None:
            self._selector.register(listener.descriptor, selectors.EVENT_READ)
        for descriptor in (_number(process, 0), *self._outputs):
            os.set_blocking(descriptor, False)

    def go_on(self, seconds: float) -> End | None:
        """Move what can be moved; how the program ended, once it has."""
        for key, _ in self._selector.select(seconds):
            if self._listener is not None and key.fd == self._listener.descriptor:
                self._refuse(self._listener)
            elif key.fd in self._outputs:
                self._take(key.fd)
            elif key.fd == self._control.fileno():
                return self._hear()
            else:
                self._give(key.fd)
        return "output" if self._too_much() else None

    def drain(self) -> None:
        """Take what is left of a program that is gone, up to the cap."""
        for descriptor in self._outputs:
            while len(self._outputs[descriptor]) <= self._cap and self._take(descriptor):
                pass
        self._selector.close()

    def outcome(self, end: End, seconds: float) -> Outcome:
        """All that was seen."""
        out, err = (
            bytes(part[: self._cap]).decode(errors="replace") for part in self._outputs.values()
        )
        if end == "exited" and self._too_much():
            end = "output"
        code = os.waitstatus_to_exitcode(self._status) if end == "exited" else None
        refused = Counter() if self._listener is None else self._listener.counts
        if self._foreign:
            refused = refused + Counter({FOREIGN: 1})
        return Outcome(end, code, out, err, seconds, refused)

    def _too_much(self) -> bool:
        return any(len(part) > self._cap for part in self._outputs.values())

    def _take(self, descriptor: int) -> bool:
        try:
            part = os.read(descriptor, PART)
        except BlockingIOError:
            return False
        if not part and descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        self._outputs[descriptor] += part
        return bool(part)

    def _give(self, descriptor: int) -> None:
        try:
            self._job = self._job[os.write(descriptor, self._job[:PART]) :]
        except BrokenPipeError:  # it reads no more
            self._job = self._job[:0]
        if not self._job and self._stdin is not None:
            self._selector.unregister(descriptor)
            self._stdin.close()

    def _refuse(self, listener: Listener) -> None:
        descriptor = listener.descriptor
        if not listener.answer():
            self._selector.unregister(descriptor)
            listener.close()

    def _hear(self) -> End | None:
        """Read the report. One that does not carry this run's nonce is none."""
        part = self._control.recv(256)
        self._report += part
        if part and not self._report.endswith(b"\n"):
            return None
        nonce, _, status = self._report.partition(b" ")
        if not secrets.compare_digest(nonce, self.nonce):
            return "killed"
        self._status = int(status)
        self._foreign = os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) == signal.SIGSYS
        return "exited" if os.WIFEXITED(self._status) else "killed"


@cache
def _filters() -> bytes:
    """The system call filters as `inside` reads them, each after its length."""
    parts = (seccomp_filter(logged=True), passing_filter(), seccomp_filter())
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _disk(disk_mb: int) -> int:
    return (disk_mb << 20) + BESIDES


def _job(program: Program, limits: Limits) -> bytes:
    """The program as the runner reads it: a header, the files, then what it will read itself."""
    memory, disk = limits.memory_mb << 20, limits.disk_mb << 20
    each = {
        "AS": memory + (SPARE_MB << 20),
        "CORE": 0,
        "CPU": math.ceil(limits.seconds) + 1,
        "FSIZE": disk,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NOFILE": 256,
        "NPROC": limits.num_processes + 1,  # process 1 counts
        "RTPRIO": 0,
        "SIGPENDING": 1024,
    }
    sizes = {name: len(content) for name, content in program.files.items()}
    fields = [str(len(program.command)), *program.command]
    for table in (each, sizes):
        fields += [str(2 * len(table)), *(str(part) for pair in table.items() for part in pair)]
    head = "\0".join(fields).encode()
    return b"".join((len(head).to_bytes(8, "big"), head, *program.files.values(), program.stdin))


def _number(process: "subprocess.Popen[bytes]", standard: int) -> int:
    pipe = (process.stdin, process.stdout, process.stderr)[standard]
    assert pipe is not None  # noqa: S101 - started with pipes
    return pipe.fileno()


def _comes(source: int | socket.socket, seconds: float) -> bool:
    """Whether there is something to read before the time is over."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _left_in(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        return os.read(descriptor, PART)
    return b""
