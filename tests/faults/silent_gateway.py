"""Runs in private namespaces: a router asks a gateway on another machine, which falls silent.

The machine loses its network address in the middle of a call: it acknowledges nothing any more and
closes nothing, as after a loss of power.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

from routers import KEY, head, response_of

from pettingllms.gateway import forwarding
from pettingllms.gateway.router import Router

HERE, THERE, PORT = "10.78.0.1", "10.78.0.2", 8000
SECONDS = 15.0


def sh(command: str) -> None:
    subprocess.run(["/bin/sh", "-ec", command], check=True)


async def serve() -> None:
    """A gateway that reads requests and never answers."""

    async def read(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        print("read", flush=True)
        await asyncio.sleep(60)

    await asyncio.start_server(read, THERE, PORT)
    print("serving", flush=True)
    await asyncio.sleep(60)


async def ask() -> None:
    """Print the status of the answer, and the seconds since the machine fell silent."""
    router = Router()
    router.start("127.0.0.1", 0)
    router.add(KEY.split("-")[1], f"http://{THERE}:{PORT}")
    command = ["ip", "netns", "exec", "peer", sys.executable, __file__, "serve"]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    await server.stdout.readline()
    host, port = router.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head("content-length: 0"))
    await server.stdout.readline()
    await asyncio.sleep(0.5)
    sh(f"ip -n peer addr del {THERE}/24 dev eth0")
    start = time.monotonic()
    status, _, _ = await asyncio.wait_for(response_of(reader), SECONDS)
    print(f"answer {status} after {time.monotonic() - start:.1f} s", flush=True)
    writer.transport.abort()
    server.kill()
    await asyncio.to_thread(router.stop)


def main() -> None:
    """Set up both machines, unless this is the one that serves."""
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
        return
    sh("mount -t tmpfs tmpfs /run; mkdir -p /run/netns; ip link set lo up; ip netns add peer")
    sh("ip link add v0 type veth peer name eth0 netns peer; ip link set v0 up")
    sh(f"ip addr add {HERE}/24 dev v0; ip -n peer link set eth0 up; ip -n peer link set lo up")
    sh(f"ip -n peer addr add {THERE}/24 dev eth0")
    assert Path("/run/netns/peer").exists()
    with patch.object(forwarding, "PROBE_SECONDS", 1), patch.object(forwarding, "NUM_PROBES", 3):
        asyncio.run(ask())


if __name__ == "__main__":
    main()
