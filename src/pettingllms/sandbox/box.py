"""One sandbox, which starts early, runs a single program and is then destroyed.

Everything in the outcome is measured from outside the sandbox: capped output, wall-clock time and
the memory of all processes. Process 1 of the sandbox reports the exit status with the nonce of this
run over a socket that the program does not have. A box ends when its last process ends.
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
from dataclasses import replace
from functools import cache

from pettingllms.errors import SandboxError
from pettingllms.sandbox.blocked_calls import Listener, record
from pettingllms.sandbox.cgroup import Place
from pettingllms.sandbox.memory_limit import make_meter
from pettingllms.sandbox.process_usage import cpu_seconds, descendants, num_files
from pettingllms.sandbox.program import End, Limits, Outcome, Program
from pettingllms.sandbox.seccomp import passing_filter, seccomp_filter
from pettingllms.sandbox.tiers import ENVIRONMENT, NUM_FILES, WORK, Descriptors, Setup, Tier
from pettingllms.sandbox.users import give_back, take_user

START_SECONDS = 20.0
"""Startup timeout of a sandbox; generous for busy machines."""
END_SECONDS = 20.0
"""Timeout for killed processes to end."""
POLL_SECONDS = 0.02
"""Interval between two memory checks."""
SPARE_MB = 256
"""Address space per process beyond the memory limit, for libraries and thread stacks."""
KERNEL_BYTES = 4 << 20
"""Kernel memory for the processes of a program in bytes, which a control group also counts."""
FOREIGN = "call_of_another_architecture"
PART = 1 << 16


class Box:
    """A sandbox for one program. The kernel ends it with the thread that started it."""

    def __init__(self, tier: Tier, disk_mb: int, place: Place | None = None) -> None:
        """With a `place`, create a control group there for the sandbox."""
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
        """Process id, outside the sandbox, of its process 1."""
        self._handle: int | None = None
        """A pidfd of the same process, which stays valid if the process id is reused."""
        self._listener: Listener | None = None
        """Receives blocked calls from the kernel; None if this machine does not support it."""

    @property
    def is_logged(self) -> bool:
        """Whether blocked system calls are counted; known once the sandbox is ready."""
        return self._listener is not None

    def wait_until_ready(self) -> None:
        """Wait until a program can start; raise SandboxError with the reason on failure."""
        if not self._receive_ready():
            self.kill()
            stderr = _read_available(_number(self._process, 2)).decode(errors="replace").strip()
            self.close()
            reason = stderr or "it printed no error"
            raise SandboxError(f"the {self._tier.name} sandbox did not start: {reason}")
        self._first = int(json.loads(os.read(self._info, PART))["child-pid"])
        self._handle = os.pidfd_open(self._first)
        for pid in (self._first, *descendants(self._first)):
            with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:  # noqa: PTH123
                file.write("1000")  # the first to be killed if the machine runs out of memory

    def _receive_ready(self) -> bool:
        """Receive the listener of the filter, then wait for the `ready` message."""
        received = b""
        while not received.endswith(b"ready\n"):
            if not _is_readable(self._control, START_SECONDS):
                return False
            part, descriptors, _, _ = socket.recv_fds(self._control, 64, 1)
            self._listener = next(map(Listener, descriptors), self._listener)
            received += part
            if not part:
                return False
        return received == b"closed\nready\n"

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run the program to its end or to a limit, then destroy the sandbox."""
        try:
            return self._run(program, limits)
        finally:
            self.close()

    def _run(self, program: Program, limits: Limits) -> Outcome:
        assert self._first is not None  # noqa: S101 - set by wait_until_ready
        start = time.monotonic()
        self._meter.begin(self._first, limits.memory_mb << 20, _disk(self.disk_mb))
        exchange = _Exchange(
            self._process, self._control, _encode_job(program, limits), limits, self._listener
        )
        exchange.nonce = secrets.token_hex(16).encode()
        self._control.sendall(exchange.nonce)
        next_check = start
        while not (end := exchange.poll(POLL_SECONDS)):
            now = time.monotonic()
            if now - start > limits.seconds:
                end = "timeout"
                break
            if now >= next_check:
                next_check = now + POLL_SECONDS
                if self._exceeds_limits():
                    end = "memory"
                    break
        seconds = time.monotonic() - start
        if end in ("exited", "killed") and self._meter.is_over():
            end = "memory"
        used = cpu_seconds(self._first) if end == "timeout" else None
        self.kill()
        exchange.drain()
        outcome = replace(exchange.outcome(end, seconds), cpu_seconds=used)
        if self._listener is not None:
            record(outcome.refused)
        return outcome

    def kill(self) -> None:
        """Kill every process of the sandbox and wait until they have ended."""
        with self._lock:
            if self._control.fileno() < 0:
                return
            if self._handle is None:
                self._process.kill()
            else:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            if not _is_readable(self._ended, END_SECONDS):
                self._process.kill()
                message = f"process {self._first} of a sandbox is still running"
                raise SandboxError(f"{message} {END_SECONDS:.0f} s after SIGKILL")
            self._process.wait()

    def close(self) -> None:
        """Kill all processes and release all resources."""
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

    def _exceeds_limits(self) -> bool:
        assert self._first is not None  # noqa: S101 - set by wait_until_ready
        return self._meter.is_over() or num_files(self._first, WORK) > NUM_FILES


class _Exchange:
    """Input, output and status report of a running program."""

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
        """Whether the kernel killed the program for a system call of another architecture."""
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

    def poll(self, seconds: float) -> End | None:
        """Process pending input and output; return how the program ended once it has."""
        for key, _ in self._selector.select(seconds):
            if self._listener is not None and key.fd == self._listener.descriptor:
                self._answer_call(self._listener)
            elif key.fd in self._outputs:
                self._read_output(key.fd)
            elif key.fd == self._control.fileno():
                return self._read_report()
            else:
                self._write_input(key.fd)
        return "output" if self._exceeds_cap() else None

    def drain(self) -> None:
        """Read the remaining output of an ended program, up to the cap."""
        for descriptor in self._outputs:
            while len(self._outputs[descriptor]) <= self._cap and self._read_output(descriptor):
                pass
        self._selector.close()

    def outcome(self, end: End, seconds: float) -> Outcome:
        """The outcome, from everything that was observed."""
        out, err = (
            bytes(part[: self._cap]).decode(errors="replace") for part in self._outputs.values()
        )
        if end == "exited" and self._exceeds_cap():
            end = "output"
        code = os.waitstatus_to_exitcode(self._status) if end == "exited" else None
        refused = Counter() if self._listener is None else self._listener.counts
        if self._foreign:
            refused = refused + Counter({FOREIGN: 1})
        return Outcome(end, code, out, err, seconds, refused)

    def _exceeds_cap(self) -> bool:
        return any(len(part) > self._cap for part in self._outputs.values())

    def _read_output(self, descriptor: int) -> bool:
        try:
            part = os.read(descriptor, PART)
        except BlockingIOError:
            return False
        if not part and descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        self._outputs[descriptor] += part
        return bool(part)

    def _write_input(self, descriptor: int) -> None:
        try:
            self._job = self._job[os.write(descriptor, self._job[:PART]) :]
        except BrokenPipeError:  # the program closed its input
            self._job = self._job[:0]
        if not self._job and self._stdin is not None:
            self._selector.unregister(descriptor)
            self._stdin.close()

    def _answer_call(self, listener: Listener) -> None:
        descriptor = listener.descriptor
        if not listener.answer():
            self._selector.unregister(descriptor)
            listener.close()

    def _read_report(self) -> End | None:
        """Read the status report. Without the nonce of this run, the program counts as killed."""
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
    """The system call filters in the format that `inside` reads: each with a length prefix."""
    parts = (seccomp_filter(logged=True), passing_filter(), seccomp_filter())
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _disk(disk_mb: int) -> int:
    return (disk_mb << 20) + KERNEL_BYTES


def _encode_job(program: Program, limits: Limits) -> bytes:
    """The job in the format that the runner reads: header, files, then the standard input."""
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


def _is_readable(source: int | socket.socket, seconds: float) -> bool:
    """Whether data arrives within the timeout."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _read_available(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        return os.read(descriptor, PART)
    return b""
