"""Attempts to observe or signal others through shared files, to use vulnerable features of local
sockets, and to read packages that contain answers.

Each is the body of a function that returns a true value on success.
"""

SHARED = "/usr/bin/env"
"""A file in every sandbox. The driver holds a lock on it."""

FILES = {
    "watch what others do with files": f"""
        watch = call('inotify_init1', 0)
        return call('inotify_add_watch', watch, b'{SHARED}', 0xfff) > 0""",
    "be told when others use a folder": """
        import fcntl
        folder = os.open('/usr/bin', os.O_RDONLY)
        return fcntl.fcntl(folder, 1026, 0x80000001) == 0  # F_NOTIFY, DN_ACCESS""",
    "lock a file that others have": f"""
        import fcntl
        shared = open('{SHARED}')
        fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True""",
    "lock a file that others have by its open file": f"""
        import fcntl
        shared = open('{SHARED}')
        fcntl.fcntl(shared, 37, struct.pack('hhqqi4x', 0, 0, 0, 0, 0))  # F_OFD_SETLK
        return True""",
    "see the locks of others": f"""
        import fcntl
        shared = open('{SHARED}')
        found = fcntl.fcntl(shared, 5, struct.pack('hhqqi4x', 1, 0, 0, 0, 0))  # F_GETLK
        return struct.unpack('hhqqi4x', found)[0] != 2  # F_UNLCK""",
    "make pipes that hold more": """
        import fcntl
        _, write = os.pipe()
        return fcntl.fcntl(write, 1031, 1 << 20)""",
    "read installed packages": """
        import glob
        return [one for kind in ('site', 'dist') for top in ('/usr', '/usr/local')
                for one in glob.glob(f'{top}/lib*/python3*/{kind}-packages/*')]""",
}

SOCKETS = {
    "send out of band": """
        one, other = socket.socketpair()
        one.send(b'x', socket.MSG_OOB)
        return other.recv(1, socket.MSG_OOB) == b'x'""",
    "pass an open file": """
        one, other = socket.socketpair()
        socket.send_fds(one, [b'x'], [0])
        return socket.recv_fds(other, 1, 1)[1]""",
    "pass an open file among many messages": """
        one, other = socket.socketpair()
        word = ctypes.create_string_buffer(b'x')
        part = struct.pack('<QQ', ctypes.addressof(word), 1)
        parts = ctypes.create_string_buffer(part)
        right = ctypes.create_string_buffer(struct.pack('<QiiI4x', 20, 1, 1, 0))
        head = struct.pack('<QQQQQQi4xI4x', 0, 0, ctypes.addressof(parts), 1,
                           ctypes.addressof(right), 24, 0, 0)
        call('sendmmsg', one.fileno(), head, 1, 0)
        return socket.recv_fds(other, 1, 1)[1]""",
    "have the kernel run a packet filter": """
        one, _ = socket.socketpair()
        step = ctypes.create_string_buffer(struct.pack('<HBBI', 6, 0, 0, 0))
        program = struct.pack('<H6xQ', 1, ctypes.addressof(step))
        one.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER
        return True""",
    "let more wait in a socket": """
        one, _ = socket.socketpair()
        before = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        return one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before""",
}

SHARING = {**FILES, **SOCKETS}
