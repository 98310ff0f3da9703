"""Sandboxes the current process after it has loaded its modules.

A sandbox for programs starts empty with the system's interpreter. A grader needs the installed
interpreter and math-verify; only its later input is untrusted. So it restricts itself before it
reads the first request, with the code of the `namespaces` tier: fresh namespaces of every kind, an
empty root, Landlock, no capabilities, the system call filter, no environment. Children cannot start
other processes either. If the kernel denies any step, the process ends.

Only the grader's processes import this module.
"""

import os
import sys

from pettingllms.sandbox.enter import (
    Settings,
    check,
    install_filter,
    isolate,
    libc,
    restrict_process,
)
from pettingllms.sandbox.seccomp import seccomp_filter
from pettingllms.sandbox.tiers import SANDBOX_USER
from pettingllms.sandbox.users import UNPRIVILEGED

PR_SET_DUMPABLE = 4
DISK_MB, NUM_FILES = 1, 16
"""Size of the only folder, which is read-only anyway."""


def close_for_good() -> None:
    """Return as process 1 of an empty sandbox; the original process waits outside."""
    rules = seccomp_filter()
    if not os.geteuid():
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "access to its /proc folder (prctl)")
    settings = Settings(["-1", "-1", "-1", *map(str, (SANDBOX_USER, DISK_MB, NUM_FILES))])
    isolate(settings)
    pid = os.fork()
    if pid:
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    restrict_process(settings, rules)


def close_for_child() -> None:
    """Disallow new processes, threads and `exec` from now on."""
    install_filter(seccomp_filter(alone=True))


def attempt() -> None:
    """Enter the sandbox and print `held`, or the step that the kernel denied."""
    close_for_good()
    close_for_child()
    sys.stdout.write("held")
    sys.stdout.flush()
    os._exit(0)
