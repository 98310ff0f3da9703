"""The sandbox's own walls, closed around a process that has already loaded what it needs.

A sandbox for programs shows the system's interpreter and starts with nothing. A grader is another
matter: the interpreter and the algebra are ours, wherever they are installed, and only what it
reads later is not. So the doors are closed from within, by the code that makes the `namespaces`
tier, before the first request is read: fresh namespaces of every kind, an empty root, Landlock, no
capabilities, the system call filter, no environment. A child that reads may not begin another
process either. Any step that the kernel refuses ends the process.

Imported by the grader's processes alone.
"""

import os
import sys

from pettingllms.sandbox.enter import Settings, check, close_doors, forbid, isolate, libc
from pettingllms.sandbox.seccomp import seccomp_filter
from pettingllms.sandbox.tiers import NOBODY
from pettingllms.sandbox.users import UNPRIVILEGED

PR_SET_DUMPABLE = 4
DISK_MB, NUM_FILES = 1, 16
"""Of the one folder there is; nothing can be written to it all the same."""


def close_for_good() -> None:
    """Come back as process 1 of a sandbox with nothing in it; who called waits outside for it."""
    rules = seccomp_filter()
    if not os.geteuid():
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        check(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "its own folder in /proc")
    settings = Settings(["-1", "-1", "-1", *map(str, (NOBODY, DISK_MB, NUM_FILES))])
    isolate(settings)
    pid = os.fork()
    if pid:
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    close_doors(settings, rules)


def close_for_child() -> None:
    """Begin no process and no thread, and become no other program, from here on."""
    forbid(seccomp_filter(alone=True))


def attempt() -> None:
    """Close the doors and end with what is printed: `held`, or what the kernel refused."""
    close_for_good()
    close_for_child()
    sys.stdout.write("held")
    sys.stdout.flush()
    os._exit(0)
