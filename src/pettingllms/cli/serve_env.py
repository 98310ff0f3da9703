"""`serve-env`: an environment behind OpenEnv's server."""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from pettingllms.cli.console import console, no_port
from pettingllms.cli.options import EnvName, EnvOptions
from pettingllms.errors import ConfigError

VARIABLE = "PETTINGLLMS_OPENENV"
"""Environment variable with the folder of a virtual environment that has `openenv`."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve_env(
    env: EnvName,
    options: EnvOptions = None,
    openenv: Annotated[
        bool, typer.Option("--openenv", help="Serve by the protocol of OpenEnv. Required.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    max_sessions: Annotated[
        int, typer.Option(min=1, max=100_000, help="Concurrent episodes.")
    ] = 256,
    session_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which an idle episode is dropped.")
    ] = 3600,
) -> None:
    """Serve an environment to OpenEnv clients, with all roles, until Ctrl-C."""
    if not openenv:
        raise ConfigError("serve-env", ["no protocol is given; add --openenv"])
    if not _has_openenv():
        _continue_elsewhere()
    from pettingllms.cli.envs import env_with
    from pettingllms.envs.openenv.served import Served
    from pettingllms.envs.openenv.server import serve

    served = Served(env_with(env, options or []))
    listening = _listen(host, port)
    at = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host

    def ready() -> None:
        roles = escape(", ".join(served.info.roles))
        console.print(f"{escape(served.info.env)}: roles {roles}")
        if host not in LOOPBACK:
            console.print("Anyone who reaches this address can play, without a key.")
        console.print(
            f"serving at http://{shown}:{at}; press Ctrl-C to stop", markup=False, soft_wrap=True
        )

    serve(served, listening, max_sessions, session_timeout, ready)


def _has_openenv() -> bool:
    """Whether the package is installed; a folder of that name in the working directory is not."""
    try:
        return find_spec("openenv.core") is not None
    except ModuleNotFoundError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise no_port(host, port, error) from None


def _continue_elsewhere() -> NoReturn:
    """Run the same command with the Python of the environment that has `openenv`."""
    folder = os.environ.get(VARIABLE, "")
    python = Path(folder) / "bin" / "python"
    if not folder:
        what = (
            "openenv is not installed here; run `scripts/openenv.sh FOLDER`, which makes a "
            f"virtual environment for it, then set {VARIABLE}=FOLDER"
        )
        raise ConfigError("serve-env", [what])
    if not python.exists() or Path(sys.prefix).resolve() == Path(folder).resolve():
        what = f"{VARIABLE}={folder} has no openenv; run `scripts/openenv.sh {folder}`"
        raise ConfigError("serve-env", [what])
    sys.stdout.flush()
    os.execv(python, [str(python), "-m", "pettingllms", *sys.argv[1:]])  # noqa: S606
