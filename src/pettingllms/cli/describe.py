"""`init --describe`: an LLM drafts an environment; the contract's checks decide."""

import asyncio
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.markup import escape
from rich.syntax import Syntax

from pettingllms.cli.console import console
from pettingllms.cli.init import TEMPLATE, require_empty
from pettingllms.envs.drafts import DraftReport, check_draft
from pettingllms.envs.toolkit.fences import blocks_in
from pettingllms.errors import ConfigError, NoAnswerError
from pettingllms.runtime.http_client import JsonClient

EXAMPLE = TEMPLATE / "signals.py"
FILE = "env.py"
MAX_TOKENS = 8192
RULES = """\
You write environments for PettingLLMs, which trains teams of language models with reinforcement
learning. Reply with one Python file in one ```python block.

- Define one class derived from pl.Environment, with id = "NAME-v1", roles, and players that has at
  least 'random': a function of env, state, role and a random.Random.
- State is a frozen dataclass of numbers, strings and tuples. Methods return new states and change
  nothing. All randomness comes from the task and the seed of reset, or from the generator.
- tasks(split) gives at least 100 tasks with different ids for 'train' and for 'test'.
- observe(state, role) returns messages that a language model can understand without other
  documentation: the rules, what the role knows, and the format of a reply. It shows nothing that
  the role may not know.
- step accepts any string as a reply. An invalid reply gets a worse reward than a valid one.
- Rewards are pl.Scored numbers: process (this reply), agent (one role), team (all roles). Set
  late_rewards = True if a reply is rewarded in a later step. limit_reward, for an episode that is
  truncated, must not exceed the reward of losing.
- Import only pettingllms and Python's standard library. No files, network or processes.

An example:
"""
CONFIG = """\
[env]
id = "{file}:{name}"

[algo]
type = "at_grpo"

# One policy answers for all roles. For one policy per role, map roles to policies under [roles].
[policies.shared]
kind = "lora"
model = "HuggingFaceTB/SmolLM2-135M-Instruct"

[rollout]
num_tasks = 8
num_samples = 8
max_reply_tokens = 128
"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server that drafts."""

    url: str
    model: str
    key: str = ""
    """Environment variable of the API key."""
    seconds: float = 300.0
    """Timeout of a request."""

    def ask(self, messages: list[dict[str, str]]) -> str:
        """The reply to a chat; raises NoAnswerError."""
        return asyncio.run(self._ask(messages))

    async def _ask(self, messages: list[dict[str, str]]) -> str:
        address = self.url.rstrip("/") + "/chat/completions"
        client = JsonClient(address, self.key, "init --describe", num_tries=3)
        body = {"model": self.model, "messages": messages, "max_tokens": MAX_TOKENS}
        try:
            answer = await asyncio.wait_for(client.post(body), self.seconds)
            return str(answer["choices"][0]["message"]["content"] or "")
        except TimeoutError:
            raise NoAnswerError(f"{address} did not answer within {self.seconds:g} s") from None
        except (LookupError, TypeError) as error:
            raise NoAnswerError(f"{address} returned no chat completion: {error!r}") from None
        finally:
            await client.close()


@dataclass(frozen=True, slots=True)
class Draft:
    """One attempt: the source code, and what the checks found."""

    source: str
    report: DraftReport


def describe_project(folder: Path, description: str, endpoint: Endpoint, num_tries: int) -> None:
    """Write a project with an environment that keeps the contract, or the last draft; exit code 1
    if no draft kept it."""
    require_empty(folder)
    if not description.strip():
        raise ConfigError("--describe", ["the description is empty"])
    draft = None
    for number, draft in enumerate(drafts(description, endpoint, num_tries), 1):
        num = len(draft.report.faults)
        found = {0: "no faults", 1: "1 fault"}.get(num, f"{num} faults")
        console.print(f"draft {number}/{num_tries}: {found}", highlight=False)
        for fault in draft.report.faults:
            console.print(f"  - {escape(str(fault))}", highlight=False, soft_wrap=True)
    assert draft is not None  # noqa: S101 - there is at least one try
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(draft.source, encoding="utf-8", errors="replace")
    where = escape(str(folder / FILE))
    if draft.report.faults:
        console.print(Syntax(draft.source, "python", line_numbers=True))
        console.print(
            f"No draft kept the contract. The last one is in [bold]{where}[/]; correct it by hand, "
            "or call the command again with a more detailed description."
        )
        raise typer.Exit(1)
    _write_project(folder, draft.report, description)
    name = f"{FILE}:{draft.report.class_name}"
    console.print(
        f"Created a project in [bold]{escape(str(folder))}[/]. An LLM wrote [bold]{where}[/], and "
        "it ran only in a sandbox so far: read it before you run it. Next:"
    )
    for command in (f"cd {folder}", f"pettingllms check-env {name}", f"pettingllms play {name}"):
        console.out(f"  {command}", highlight=False)


def drafts(description: str, endpoint: Endpoint, num_tries: int) -> Iterator[Draft]:
    """Drafts until one has no faults. The endpoint sees the faults of its last draft."""
    messages = [
        {"role": "system", "content": f"{RULES}\n```python\n{EXAMPLE.read_text()}```"},
        {"role": "user", "content": f"Write this environment:\n\n{description}"},
    ]
    for _ in range(num_tries):
        with console.status("waiting for a draft"):
            reply = endpoint.ask(messages)
        source = source_in(reply)
        with console.status("checking the draft in a sandbox"):
            draft = Draft(source, check_draft(source))
        yield draft
        if not draft.report.faults:
            return
        faults = "\n".join(f"- {fault}" for fault in draft.report.faults)
        messages = [
            *messages[:2],
            {"role": "assistant", "content": reply},
            {"role": "user", "content": f"Its checks found:\n{faults}\n\nReply with the whole "
             "corrected file."},
        ]  # fmt: skip


def source_in(reply: str) -> str:
    """The longest Python block of a reply, or the whole reply."""
    blocks = [text for language, text in blocks_in(reply) if language in ("python", "py", "")]
    return max(blocks, key=len, default=reply)


def _write_project(folder: Path, report: DraftReport, description: str) -> None:
    """A config of one policy for all roles, and a test of the contract."""
    name = report.class_name
    config = CONFIG.format(file=FILE, name=name)
    (folder / "config.toml").write_text(config, encoding="utf-8")
    quoted = "\n".join(f"# {line}" for line in textwrap.wrap(" ".join(description.split()), 96))
    (folder / "test_env.py").write_text(
        f'"""The environment keeps the contract."""\n\n{quoted}\n\nimport pettingllms as pl\n'
        f"from env import {name}\n\n\ndef test_environment_keeps_the_contract() -> None:\n"
        f"    pl.check_env({name}())\n",
        encoding="utf-8",
    )
