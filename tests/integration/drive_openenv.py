"""Serves many environments at once by OpenEnv's server, each under a path; runs in its virtual
environment. Prints the port, then what could not be created."""

import json
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from pettingllms.envs import make_env
from pettingllms.envs.openenv.served import Served
from pettingllms.envs.openenv.server import make_app
from pettingllms.errors import PettingError


def main(wanted: list[dict[str, Any]]) -> None:
    app, refused = FastAPI(), {}
    for options in wanted:
        path = options.pop("path")
        try:
            app.mount(f"/{path}", make_app(Served(make_env(**options)), 64, 600.0))
        except PettingError as error:
            refused[path] = str(error)
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1], "refused": refused}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
