"""Attempts to reach resources outside: files, processes, networks, privileges, the kernel.

Each is the body of a function that returns a true value on success. `WORLD` holds the targets that
the driver has put outside. As its control, each must succeed in a process without a sandbox.
"""

FILES = {
    "read a file that anyone may read": "return open(WORLD['secret']).read() == 'secret'",
    "read it by a way through the parent folders": (
        "return open('../' * 9 + WORLD['secret'][1:]).read() == 'secret'"
    ),
    "read it through a symbolic link": """
        os.symlink(WORLD['secret'], 'a-link')
        return open('a-link').read() == 'secret'""",
    "read it through a hard link": """
        import shutil, tempfile
        shutil.copy(WORLD['secret'], WORLD['folder'] + '/linked')
        os.link(WORLD['secret'], WORLD['folder'] + '/hard')
        return open(WORLD['folder'] + '/hard').read() == 'secret'""",
    "list the folder that it is in": "return os.listdir(WORLD['folder'])",
    "write beside it": "return open(WORLD['folder'] + '/written', 'w').write('x')",
    "delete a file beside it": """
        os.close(os.open(WORLD['folder'] + '/mine', os.O_CREAT | os.O_WRONLY))
        os.remove(WORLD['folder'] + '/mine')
        return True""",
    "read the accounts": "return open('/etc/passwd').read()",
    "read the name of the machine": "return os.listdir('/etc').__len__() > 5",
    "see home": "return os.path.isdir(WORLD['home'])",
    "see the source of this package": "return os.path.isdir(WORLD['source'])",
    "see /var": "return os.listdir('/var')",
    "see /run": "return os.path.isdir('/run')",
    "see /sys": "return os.listdir('/sys')",
    "see another disk": "return os.path.isdir('/mnt') or os.path.isdir('/opt')",
    "write into /etc": "return os.open('/etc', os.O_TMPFILE | os.O_WRONLY)",
    "write into the installed software": "return os.open('/usr', os.O_TMPFILE | os.O_WRONLY)",
    "write into the root": "return os.open('/', os.O_TMPFILE | os.O_WRONLY)",
    "make software writable": "os.chmod('/usr/bin/env', 0o755); return True",
    "give a file away": "open('mine', 'w'); os.chown('mine', 1, 1); return True",
    "make a device": "os.mknod('null', 0o20666, os.makedev(1, 3)); return True",
    "read the disk as a device": (
        "return any(os.path.exists('/dev/' + d) for d in ('vda', 'sda', 'nvme0n1', 'kmsg'))"
    ),
    "read the kernel's messages": "return os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)",
    "open a new terminal": "return os.open('/dev/ptmx', os.O_RDWR)",
    "leave something in shared memory": """
        open('/dev/shm/' + WORLD['token'], 'w')
        return os.path.realpath('/dev/shm') == '/dev/shm'""",
    "use an open file of the parent": "return any(is_open(number) for number in range(3, 1024))",
    "open a file by its handle": """
        handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
        mount = ctypes.c_int()
        return call('name_to_handle_at', -100, b'/usr', handle, ctypes.byref(mount), 0) == 0""",
}

PROC = {
    "read the environment of its parent": (
        "return open(f'/proc/{os.getppid()}/environ', 'rb').read() is not None"
    ),
    "read its own memory map": "return open('/proc/self/maps').read()",
    "leave through /proc/self/root": "return os.listdir('/proc/self/root')",
    "open a file again through /proc": "return os.open('/proc/self/fd/1', os.O_WRONLY)",
    "see what other processes run": (
        "return [n for n in os.listdir('/proc') if n.isdigit() and n != str(os.getpid())]"
    ),
    "change settings of the kernel": "return os.access('/proc/sys/vm/swappiness', os.W_OK)",
    "have crashes handled by a program": (
        "return os.access('/proc/sys/kernel/core_pattern', os.W_OK)"
    ),
    "be spared when memory runs out": "return os.access('/proc/self/oom_score_adj', os.W_OK)",
    "mount /proc": """
        os.mkdir('proc')
        return inside_child(lambda: call('unshare', 0x20000) == 0
                            and call('mount', b'proc', b'proc', b'proc', 0, 0) == 0)""",
}

PROCESSES = {
    "see a process outside": "os.kill(WORLD['victim'], 0); return True",
    "end a process outside": "os.kill(WORLD['spare'], 9); return True",
    "get a handle on it": "return call('pidfd_open', WORLD['victim'], 0) >= 0",
    "slow it down": "os.setpriority(os.PRIO_PROCESS, WORLD['victim'], 5); return True",
    "move it to another core": "return os.sched_getaffinity(WORLD['victim'])",
    "change its limits": "import resource; return resource.prlimit(WORLD['sibling'], 7)",
    "attach to it": """
        attached = call('ptrace', 16, WORLD['victim'], 0, 0) == 0
        os.waitpid(WORLD['victim'], 0x40000000)
        call('ptrace', 17, WORLD['victim'], 0, 0)
        return attached""",
    "be traced": "return inside_child(lambda: call('ptrace', 0, 0, 0, 0) == 0)",
    "read memory of a process": """
        text = ctypes.create_string_buffer(b'secret')
        into = ctypes.create_string_buffer(6)
        return read_memory(os.getpid(), text, into) == 6""",
    "take an open file out of a process": """
        handle = call('pidfd_open', os.getpid(), 0)
        return call('pidfd_getfd', handle, 1, 0) > 0""",
    "compare two processes": "return call('kcmp', os.getpid(), os.getpid(), 2, 0, 1) >= 0",
    "change limits of process 1": "import resource; return resource.prlimit(1, 7)",
    "see who started it": "return os.getppid() > 1",
    "see the session that it was started in": "return os.getsid(1) != 1 or os.getpid() > 1000",
}

NETWORK = {
    "connect to a local server": (
        "socket.create_connection(('127.0.0.1', WORLD['port']), 2); return True"
    ),
    "connect to it over IPv6's form": """
        one = socket.socket(socket.AF_INET6)
        one.connect(('::ffff:127.0.0.1', WORLD['port']))
        return True""",
    "send a datagram": """
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return one.sendto(b'x', ('127.0.0.1', WORLD['port']))""",
    "listen": """
        one = socket.socket()
        one.bind(('127.0.0.1', 0))
        one.listen()
        return True""",
    "send raw packets": "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "see every packet": "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "ask the kernel about the network": (
        "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"
    ),
    "list the network's interfaces": "return len(socket.if_nameindex()) > 0",
    "talk to the host of a virtual machine": (
        "return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"
    ),
    "connect to a Unix socket": (
        "one = socket.socket(socket.AF_UNIX); one.connect(WORLD['unix']); return True"
    ),
    "connect to an abstract Unix socket": """
        one = socket.socket(socket.AF_UNIX)
        one.connect(WORLD['abstract'])
        return True""",
    "reach it from one end of a pair": """
        one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        return one.sendto(b'x', WORLD['abstract_datagrams'])""",
    "find out an address": "return socket.getaddrinfo('localhost', 80, 0, socket.SOCK_STREAM)",
    "see the name of the machine": "return os.uname().nodename == WORLD['machine']",
}

PRIVILEGES = {
    "become root": "os.setuid(0); return os.getuid() == 0",
    "join root's group": "os.setgid(0); return os.getgid() == 0",
    "join other groups": "os.setgroups([0, 6]); return True",
    "be root already": "return os.getuid() == 0",
    "have a capability": """
        header = struct.pack('<Ii', 0x20080522, 0)
        into = ctypes.create_string_buffer(24)
        call('capget', header, into)
        return any(into.raw)""",
    "keep capabilities within reach": (
        "return any(libc.prctl(23, number, 0, 0, 0) == 1 for number in range(40))"
    ),
    "gain privileges by a set-uid program": "return libc.prctl(39, 0, 0, 0, 0) == 0",
    "raise a limit": """
        import resource
        resource.setrlimit(resource.RLIMIT_NPROC, (256, 256))
        return True""",
    "raise the limit on memory": """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        return True""",
    "leave a core dump": """
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))
        return True""",
    "go before all others": "os.setpriority(os.PRIO_PROCESS, 0, -5); return True",
    "run in real time": ("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); return True"),
    "find a secret in the environment": "return os.environ['PETTINGLLMS_TEST_SECRET']",
    "find more in the environment than the sandbox's own": (
        "return set(os.environ) - {'HOME', 'LANG', 'PATH', 'PYTHONDONTWRITEBYTECODE', "
        "'PYTHONHASHSEED', 'TMPDIR', 'LC_CTYPE'}"
    ),
}

NAMESPACES = {
    f"unshare its {kind} namespace": f"return inside_child(lambda: call('unshare', {flag}) == 0)"
    for kind, flag in {
        "user": 0x10000000, "mount": 0x20000, "process": 0x20000000, "network": 0x40000000,
        "IPC": 0x08000000, "name": 0x04000000, "cgroup": 0x02000000, "time": 0x80,
    }.items()
}  # fmt: skip
NAMESPACES |= {
    "clone into a user namespace": """
        pid = libc.syscall(number('clone'), 0x10000000 | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        return pid > 0""",
    "clone3 into a user namespace": """
        given = struct.pack('<8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
        pid = libc.syscall(number('clone3'), given, len(given))
        if pid == 0:
            os._exit(0)
        return pid > 0""",
    "start a sandbox of its own": """
        import subprocess
        command = ['/usr/bin/unshare', '--user', '--map-root-user', '/usr/bin/true']
        return subprocess.run(command, capture_output=True).returncode == 0""",
    "join a namespace": "return reaches('setns', -1, 0)",
    "change the root": "return inside_child(lambda: call('chroot', b'.') == 0)",
}

KERNEL = {
    f"call {name}": f"return reaches({name!r}, {arguments})"
    for name, arguments in {
        "mount": "1, 1, 1, 0, 0", "umount2": "1, 0", "pivot_root": "1, 1", "open_tree": "-1, 1, 0",
        "move_mount": "-1, 1, -1, 1, 0", "fsopen": "1, 0", "fsmount": "-1, 0, 0",
        "mount_setattr": "-1, 1, 0, 1, 32", "bpf": "-1, 0, 0", "perf_event_open": "1, 0, 0, 0, 0",
        "userfaultfd": "0x7fff0000", "io_uring_setup": "1, 1", "io_uring_register": "-1, 0, 0, 0",
        "add_key": "1, 1, 1, 0, 0", "request_key": "1, 1, 1, 0", "keyctl": "-1, 0, 0, 0, 0",
        "fanotify_init": "-1, 0", "open_by_handle_at": "-1, 1, 0",
        "process_madvise": "-1, 1, 1, 0, 0",
        "reboot": "0, 0, 0, 0", "swapon": "1, 0", "swapoff": "1",
        "settimeofday": "1, 0", "clock_settime": "-1, 0", "clock_adjtime": "-1, 1",
        "sethostname": "1, -1", "setdomainname": "1, -1", "acct": "1", "syslog": "99, 0, 0",
        "quotactl": "-1, 0, 0, 0", "personality": "0xffffffff", "memfd_create": "1, 0",
        "memfd_secret": "-1", "shmget": "0, 0, 0", "shmctl": "-1, 0, 0", "msgget": "0, 0o1000",
        "semget": "0, -1, 0", "mq_open": "1, 0, 0, 0", "splice": "-1, 0, -1, 0, 1, 0",
        "vmsplice": "-1, 1, 1, 0", "io_setup": "1, 1", "move_pages": "0, 1, 1, 1, 1, 0",
        "mbind": "0, 0, -1, 0, 0, 0", "modify_ldt": "99, 0, 0",
    }.items()
}  # fmt: skip
KERNEL |= {
    "type into a terminal": "return reaches('ioctl', 1, 0x5412, 0)",
    "paste into a console": "return reaches('ioctl', 1, 0x541C, 0)",
    "make a call that is newer than the filter": "return reaches('newest', 0, 0, 0)",
}

FOREIGN = {
    "call by the old 32-bit gate": """
        import mmap
        # mov eax, 20 (getpid); int 0x80; ret
        page = mmap.mmap(-1, 4096, flags=0x22, prot=7)
        page.write(bytes.fromhex('b814000000cd80c3'))
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        return ctypes.CFUNCTYPE(ctypes.c_int)(address)() != 0""",
}
"""Only on x86-64; the kernel kills the process."""

ROOT_ONLY = {
    *KERNEL, "write into /etc", "write into the installed software", "write into the root",
    "make software writable", "give a file away", "make a device", "read the kernel's messages",
    "open a file by its handle", "change settings of the kernel",
    "have crashes handled by a program", "mount /proc", "send raw packets", "see every packet",
    "become root", "join root's group", "join other groups", "be root already",
    "have a capability", "go before all others", "run in real time",
    "change the root", "change limits of process 1",
    *(name for name in NAMESPACES if name.startswith("unshare") and "user" not in name),
}  # fmt: skip
"""Attempts that need root outside, so that only root can run the control."""

REACHING = {
    **FILES, **PROC, **PROCESSES, **NETWORK, **PRIVILEGES, **NAMESPACES, **KERNEL, **FOREIGN,
}  # fmt: skip
