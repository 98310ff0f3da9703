"""`gateway`: serve models to the agents of a program, and record their calls."""

import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pettingllms.cli.console import console, no_port
from pettingllms.errors import ConfigError, nearest

FILE = "episodes.jsonl"
SHOWN = 100
FORMS = {
    "--role": "ROLE=MODEL or ROLE=http://HOST/v1",
    "--rule": "ROLE:system=TEXT, ROLE:model=NAME or ROLE:header=VALUE",
    "--price": "ROLE=PROMPT,REPLY",
}
SERVER = ("httptools", "starlette", "uvicorn")


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the command."""

    roles: Mapping[str, str]
    """Address or model per role."""
    rules: Sequence[str]
    prices: Sequence[str]
    host: str
    port: int
    out: Path | None
    keys: Sequence[str]
    max_tokens: int
    max_model_len: int
    spans: str
    spans_text: bool


def gateway(
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="ROLE=http://HOST/v1#MODEL or ROLE=MODEL (folder or name); once per role."
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Identify calls of a role: ROLE:system=TEXT, ROLE:model=NAME or ROLE:header=VALUE."
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(help="ROLE=PROMPT,REPLY: price per million prompt and reply tokens."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder to write the recording to.")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment variable with a server's API key: VARIABLE or ADDRESS=VARIABLE."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens per reply.")] = 2048,
    max_model_len: Annotated[
        int, typer.Option(min=16, help="Maximum tokens of prompt and reply.")
    ] = 8192,
    spans: Annotated[str, typer.Option(help="OTLP/HTTP address for OpenTelemetry spans.")] = "",
    spans_text: Annotated[
        bool, typer.Option("--spans-text", help="Include texts in spans, with secrets removed.")
    ] = False,
) -> None:
    """Serve models to a program, and record every call of its agents."""
    given = [_pair(text, "=", "--role") for text in role or []]
    roles, counts = dict(given), Counter(name for name, _ in given)
    if not roles:
        raise ConfigError("gateway", ["no --role is given; try --role agent=MODEL"])
    if twice := [name for name, number in counts.items() if number > 1]:
        raise ConfigError("gateway", [f"--role {name}=... is given twice" for name in twice])
    if missing := [name for name in SERVER if find_spec(name) is None]:
        what = f"needs {', '.join(missing)}, not installed; pip install 'pettingllms[gateway]'"
        raise ConfigError("gateway", [what])
    if out is not None and (out / FILE).exists():
        raise ConfigError(str(out), ["already holds a recording; give another folder with --out"])
    settings = Settings(
        roles, rule or [], price or [], host, port, out, key or [], max_tokens, max_model_len,
        spans, spans_text,
    )  # fmt: skip
    import asyncio  # not at the top: it takes a fifth of `pettingllms --help`

    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from pettingllms.evaluation.players import ServerOptions, parse_address, parse_keys
    from pettingllms.gateway.gateway import Gateway
    from pettingllms.gateway.roles import RoleMap
    from pettingllms.gateway.session import Limits
    from pettingllms.types import Episode, Task, write_episodes

    rules = [_rule(text) for text in settings.rules]
    RoleMap(tuple(settings.roles), rules)  # rejects ambiguous rules
    prices = dict(_price(text, settings.roles) for text in settings.prices)
    servers = {
        role: parse_address(name)
        for role, name in settings.roles.items()
        if name.startswith(("http://", "https://"))
    }
    options = ServerOptions(parse_keys(settings.keys, servers.values()))
    exported = _spans(settings)
    async with _players(settings, servers, options) as players:
        try:
            served = await Gateway.start(console.print, host=settings.host, port=settings.port)
        except OSError as error:
            raise no_port(settings.host, settings.port, error) from None
        served.check(players)
        limits = Limits(max_calls=10**9, max_reply_tokens=settings.max_tokens,
                        max_episode_tokens=10**12)  # fmt: skip
        episode = Episode("gateway", "gateway", Task("gateway"), 0)
        session = served.open(episode, players, 0, rules, limits)

        def on_answer(call: Any, answered: Any, start: int, end: int) -> None:
            _show(answered)
            if exported is not None:
                exported.add(session, call, answered, start, end)

        session.on_answer = on_answer
        _print_addresses(served.agents(session))
        await _interrupted()
        served.close(session)
        await served.stop()
    if exported is not None:
        exported.close()
    _print_counts(episode.turns, prices)
    if settings.out is not None:
        settings.out.mkdir(parents=True, exist_ok=True)
        write_episodes(settings.out / FILE, [episode])
        console.print(f"written to {settings.out / FILE}", markup=False, soft_wrap=True)


@asynccontextmanager
async def _players(
    settings: Settings, servers: Mapping[str, Any], options: Any
) -> AsyncIterator[dict[str, Any]]:
    """One player per role, one engine per model, and one connection per server."""
    import asyncio
    from contextlib import AsyncExitStack

    from pettingllms.evaluation.players import server_player, with_model

    found: dict[str, Any] = {}
    engines: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        for role, name in settings.roles.items():
            if role in servers:
                player = await asyncio.to_thread(with_model, servers[role], options)
                found[role] = server_player(stack, player, options)
            else:
                if name not in engines:
                    engines[name] = await _engine(stack, name, settings.max_model_len)
                found[role] = engines[name]
        yield found


async def _engine(stack: Any, name: str, max_model_len: int) -> Any:
    from pettingllms.config import InferenceConfig
    from pettingllms.inference.engines.base import EngineSpec
    from pettingllms.inference.engines.vllm import VllmEngine
    from pettingllms.inference.multimodal_chat import renderer_of
    from pettingllms.models import find_model
    from pettingllms.rollouts.player import Player

    folder = find_model(name)
    if find_spec("vllm") is None:
        what = "needs vLLM, which is not installed; pip install 'pettingllms[cpu]', or [gpu]"
        raise ConfigError(f"--role ...={name}", [what])
    config = InferenceConfig(max_model_len=max_model_len, guided=True)
    console.print(f"loading {folder.name}", markup=False)
    engine = VllmEngine(EngineSpec(folder, config, (folder.name,)))
    await engine.start()
    stack.callback(engine.stop)
    return Player(folder.name, engine, renderer_of(folder), trained=False)


def _spans(settings: Settings) -> Any:
    if not settings.spans:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from pettingllms.gateway.spans import Spans
    except ImportError as error:
        what = f"cannot be exported ({error}); pip install 'pettingllms[spans]'"
        raise ConfigError("--spans", [what]) from None

    return Spans(OTLPSpanExporter(endpoint=settings.spans), settings.spans_text)


def _print_addresses(agents: Any) -> None:
    console.print("One client for all roles, identified by model name, header or rule:")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"):
        _copied(f"export {name}={agents.environment()[name]}")
    console.print("Or one base URL per role:")
    for role in agents.keys:
        _copied(f"{role}: {agents.url}/roles/{role}/v1")
    console.print("To post rewards, from outside the program:")
    rewards = agents.rewards()
    _copied(f"export PETTINGLLMS_REWARD_URL={rewards['url']}")
    _copied(f"export PETTINGLLMS_REWARD_KEY={rewards['api_key']}")
    console.print("Press Ctrl-C to stop.")


def _copied(text: str) -> None:
    """Print a line to copy without wrapping it."""
    console.print(f"  {text}", markup=False, soft_wrap=True)


async def _interrupted() -> None:
    import asyncio

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    await stop.wait()


def _show(answered: Any) -> None:
    for reply in answered.replies:
        called = "".join(f" [{call.name}]" for call in reply.calls)
        text = " ".join(reply.text.split())
        tokens = f"{reply.turn.num_prompt_tokens} -> {reply.turn.num_tokens}"
        console.print(f"[bold]{escape(answered.role)}[/] {tokens} {escape(text[:SHOWN] + called)}")


def _print_counts(turns: Sequence[Any], prices: Mapping[str, Any]) -> None:
    from pettingllms.gateway.token_counts import count_roles

    table = Table("role", "calls", "failed", "prompt tokens", "reply tokens", "segments", "cost")
    for count in count_roles(turns, prices):
        numbers = (count.num_calls, count.num_failed, count.num_prompt_tokens)
        more = (count.num_reply_tokens, count.num_segments, f"{count.cost:.4f}")
        table.add_row(escape(count.role), *map(str, (*numbers, *more)))
    console.print(table)


def _rule(text: str) -> Any:
    from pettingllms.envs import RoleRule

    role, rest = _pair(text, ":", "--rule")
    where, value = _pair(rest, "=", "--rule")
    if where not in ("system", "header", "model"):
        raise ConfigError("gateway", [f"--rule {text}: '{where}' is not system, header or model"])
    return RoleRule(role, where, value)  # type: ignore[arg-type]


def _price(text: str, roles: Mapping[str, str]) -> tuple[str, Any]:
    from pettingllms.gateway.token_counts import Price

    role, numbers = _pair(text, "=", "--price")
    prompt, reply = _pair(numbers, ",", "--price")
    if role not in roles:
        what = f"--price {text}: no role '{role}'; {nearest(role, roles)}"
        raise ConfigError("gateway", [what])
    try:
        return role, Price(float(prompt), float(reply))
    except ValueError:
        what = f"--price {text}: '{numbers}' is not two numbers such as 0.5,1.5"
        raise ConfigError("gateway", [what]) from None


def _pair(text: str, sign: str, option: str) -> tuple[str, str]:
    first, found, second = text.partition(sign)
    if not found or not first or not second:
        what = f"{option} {text}: expected '{sign}' with text on both sides; write {FORMS[option]}"
        raise ConfigError("gateway", [what])
    return first, second
