"""Run a program in a separate process, as part of a workflow.

It is the user's program, not model-generated code: it runs with the user's rights, outside the
sandbox.
"""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pettingllms.envs.workflow import Agents
from pettingllms.errors import PettingError

SHOWN = 2000


class CommandError(PettingError):
    """A program that failed or printed no result."""


async def command(
    words: Sequence[str], agents: Agents, given: Any = None, rewards: bool = False
) -> Any:
    """Run a program to its end; return the last line of its output, parsed as JSON.

    `given` is written to its standard input as JSON. Environment variables point it to its roles,
    so a program that creates an OpenAI or Anthropic client without arguments needs no change. With
    `rewards` it also gets the key for posting rewards. Its process group is killed when the episode
    ends.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **agents.environment(rewards)},
        start_new_session=True,
    )
    try:
        stdout, stderr = await process.communicate(json.dumps(given).encode())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        tail = stderr.decode(errors="replace")[-SHOWN:].strip()
        raise CommandError(f"{words[0]} ended with code {process.returncode}: {tail}")
    lines = stdout.decode(errors="replace").strip().splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except ValueError:
        raise CommandError(
            f"the last line that {words[0]} printed is no JSON: {lines[-1][:200]!r}"
        ) from None
