"""Attempts to exceed the memory limit with memory that polling processes does not show.

Each prints how many megabytes it holds, and holds them long enough to be measured.
"""

from attacks.cases import Case, at_least, at_most

HOLD = """
def held(megabytes):
    print(megabytes, flush=True)
    time.sleep(0.06)  # three looks
"""
START = "import ctypes, mmap, os, socket, threading, time\nlibc = ctypes.CDLL(None)\n" + HOLD
ADDRESS = """
def address(part):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(part)))
kept = []
"""
UNMAPPED = (
    START
    + ADDRESS
    + """
for number in range({most}):
    part = mmap.mmap(-1, 16 << 20)
    for at in range(0, 16 << 20, 4096):
        part[at] = 1
    where = address(part)
    libc.munmap(ctypes.c_void_p(where.value + 4096), ctypes.c_size_t((16 << 20) - 4096))
    kept.append((part, where))
    held(16 * (number + 1))
os._exit(0)
"""
)
RELEASED = (
    START
    + ADDRESS
    + """
for number in range({most}):
    part = mmap.mmap(-1, 16 << 20)
    for at in range(0, 16 << 20, 4096):
        part[at] = 1
    part.madvise(mmap.MADV_DONTNEED)
    kept.append(part)
    held(16 * (number + 1))
os._exit(0)
"""
)
PIECES = (
    START
    + ADDRESS
    + """
for number in range({most} * 16):
    part = mmap.mmap(-1, 1 << 20)
    for at in range(0, 1 << 20, 4096):
        part[at] = 1
    part.madvise(mmap.MADV_DONTNEED)
    kept.append(part)
    if number % 16 == 15:
        held(number + 1)
os._exit(0)
"""
)
DEVICE = (
    START
    + ADDRESS
    + """
zero = os.open('/dev/zero', os.O_RDWR)
for number in range({most}):
    part = mmap.mmap(zero, 16 << 20)
    for at in range(0, 16 << 20, 4096):
        part[at] = 1
    part.madvise(mmap.MADV_DONTNEED)
    kept.append(part)
    held(16 * (number + 1))
os._exit(0)
"""
)
HEADLESS = (
    START
    + """
def eat():
    time.sleep(0.1)
    parts = []
    for number in range({most}):
        parts.append(b'x' * (16 << 20))
        held(16 * (number + 1))
    os._exit(0)
threading.Thread(target=eat).start()
libc.syscall({{'x86_64': 60, 'aarch64': 93}}[os.uname().machine], 0)  # of this thread alone
"""
)
SOCKETS = (
    START
    + """
total = 0
def fill():
    pairs, size = [], 0
    try:
        while len(pairs) < 100:
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                end.setblocking(False)
                try:
                    while True: size += end.send(bytes(1 << 15))
                except BlockingIOError: pass
    except OSError: pass
    return pairs, size
for number in range({most}):
    pairs, size = fill()
    total += size
    held(total >> 20)
    if os.fork():
        time.sleep(5)
        os._exit(0)
    for one, other in pairs: one.close(); other.close()
os._exit(0)
"""
)


def hoard(source: str, tried: int, outside: int, least: int) -> Case:
    return Case(
        source.format(most=tried), at_most(110), source.format(most=outside), at_least(least)
    )


HOARDING = {
    "shared memory that is mapped no more": hoard(UNMAPPED, 20, 8, 128),
    "shared memory that was released": hoard(RELEASED, 15, 8, 128),
    "shared memory in small pieces": hoard(PIECES, 15, 8, 128),
    "a device of zeros as shared memory": hoard(DEVICE, 15, 8, 128),
    "memory of a process without its first thread": hoard(HEADLESS, 15, 8, 128),
    "memory in sockets": hoard(SOCKETS, 10, 3, 60),
}
