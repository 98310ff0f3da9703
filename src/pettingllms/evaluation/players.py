"""Players for a role: a person, a scripted player, a policy of a run, or a model on a server.

A player is given as `human`, the name of a scripted player (`minimax`, or the noisy
`minimax~0.3`), a run folder, or the URL of an OpenAI-compatible server, with `#MODEL` if the server
has several. API keys are never part of a URL: they are read from environment variables by name. A
server that plays a role with images is assumed to serve a VLM.
"""

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pettingllms.cluster.inference_team import inference_team
from pettingllms.config import PolicyConfig, RunConfig
from pettingllms.config.policies import ApiPolicy, ScriptedPolicy, image_problem
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, SamplerError, UnknownNameError, describe, nearest
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.models import find_model
from pettingllms.rollouts import Player
from pettingllms.rollouts.scripted import scripted_player
from pettingllms.runs.folder import CONFIG_FILE, RunFolder
from pettingllms.runtime.http_client import JsonClient

HUMAN = "human"
MODELS_TIMEOUT = 20.0
"""Seconds to wait for a server's list of models."""
NUM_TRIES = 3
"""Attempts per reply if a server is busy."""
Env = Environment[Any, Any]


@dataclass(frozen=True, slots=True)
class PlayerSpec:
    """A player as named on the command line."""

    kind: Literal["human", "player", "run", "server"]
    name: str
    """Name of a scripted player, run folder, or model of the server."""
    url: str = ""
    """URL of the server."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How servers are called."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """By URL: environment variable with the API key, which is sent to that server only."""
    temperature: float = 1.0


def parse_player(text: str, env: Env) -> PlayerSpec:
    """Parse a player. The model of a server without `#MODEL` is resolved by `with_model`."""
    if text == HUMAN:
        return PlayerSpec("human", HUMAN)
    if (found := parse_external_player(text, env)) is not None:
        return found
    if (Path(text) / CONFIG_FILE).is_file():
        return PlayerSpec("run", text)
    known = nearest(text, [HUMAN, *env.players])
    raise ConfigError(
        text,
        [f"'{text}' is not a player, a run folder or http://HOST:PORT/v1; {known}"],
    )


def parse_external_player(text: str, env: Env) -> PlayerSpec | None:
    """Parse a server or a scripted player; None if the text is neither."""
    if text.startswith(("http://", "https://")):
        return parse_address(text)
    if text.partition("~")[0] not in env.players:
        return None
    try:
        env.player(text)
    except UnknownNameError as error:
        raise ConfigError(text, [str(error)]) from None
    return PlayerSpec("player", text)


def parse_address(text: str) -> PlayerSpec:
    """Parse the URL of a server, with its model if given."""
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ConfigError(
            shown,
            ["a URL must have no user, password or query; pass the API key with --key VARIABLE"],
        )
    if not parts.hostname:
        raise ConfigError(text, ["has no host; expected http://HOST:PORT/v1"])
    path = parts.path.rstrip("/") or "/v1"
    return PlayerSpec("server", parts.fragment, f"{parts.scheme}://{parts.netloc}{path}")


def parse_keys(texts: Sequence[str], specs: Iterable[PlayerSpec]) -> dict[str, str]:
    """Parse --key options: VARIABLE for a single server, else URL=VARIABLE."""
    urls = sorted({spec.url for spec in specs if spec.kind == "server"})
    keys = {}
    for text in texts:
        address, equals, variable = text.rpartition("=")
        if not equals and len(urls) != 1:
            raise ConfigError(
                f"--key {text}",
                [f"{len(urls)} servers are used; name one with --key http://HOST/v1={text}"],
            )
        url = parse_address(address).url if equals else urls[0]
        if url not in urls:
            raise ConfigError(f"--key {text}", [f"no player uses {url}; {nearest(url, urls)}"])
        keys[url] = variable
    return keys


@asynccontextmanager
async def open_players(
    env: Env,
    specs: Mapping[str, PlayerSpec],
    options: ServerOptions,
    notify: Callable[[str], None],
) -> AsyncIterator[dict[str, Player]]:
    """Players for all roles except human ones; engines and connections stay open inside."""
    async with AsyncExitStack() as stack:
        teams: dict[str, Any] = {}
        players = {}
        for role, spec in specs.items():
            match spec.kind:
                case "player":
                    players[role] = scripted_player(env, spec.name)
                case "server":
                    players[role] = server_player(stack, spec, options)
                case "run":
                    if spec.name not in teams:
                        teams[spec.name] = await _start_run(stack, env, spec.name, notify)
                    team = teams[spec.name]
                    policy = _policy_of(team.config, spec.name, role)
                    if role in env.image_roles:
                        require_image_support(env, spec.name, team.config.policies[policy])
                    players[role] = team.player(env, policy, None, frozenset())
                case "human":
                    pass
        yield players


def require_image_support(env: Env, name: str, policy: PolicyConfig) -> None:
    """Raise ConfigError if a role has images and the policy's model is text-only."""
    if reason := no_image_support(env, policy):
        raise ConfigError(name, [reason])


def no_image_support(env: Env, policy: PolicyConfig) -> str:
    """Why a policy cannot play a role with images; empty if it can."""
    model = None
    if not isinstance(policy, ScriptedPolicy | ApiPolicy):
        model = find_model(policy.model)
    reason = image_problem(policy, model)
    return f"'{env.id}' shows images, and {reason}" if reason else ""


def server_player(stack: AsyncExitStack, spec: PlayerSpec, options: ServerOptions) -> Player:
    """The player for a server's model; the stack closes its connections."""
    key = options.keys.get(spec.url, "")
    policy = ApiPolicy(url=spec.url, model=spec.name, key=key)
    sampler = HttpSampler(policy, num_tries=NUM_TRIES)
    stack.push_async_callback(sampler.close)
    return Player(
        spec.name,
        sampler,
        JsonRenderer(supports_images=True),
        trained=False,
        in_bytes=True,
        temperature=options.temperature,
    )


async def _start_run(
    stack: AsyncExitStack, env: Env, folder: str, notify: Callable[[str], None]
) -> Any:
    """Start a run's engines with the weights of its latest checkpoint."""
    run = RunFolder(Path(folder))
    config, (_, weights) = run.config(), run.newest(notify)
    trained_on, played = config.env.model_dump(), env.config.model_dump()
    if trained_on["id"] != env.config.id:
        raise ConfigError(
            folder,
            [f"was trained on '{trained_on['id']}', but the environment is '{env.config.id}'"],
        )
    for key in trained_on.keys() - {"id", "solo", "num_tasks", "opponent"}:
        if trained_on[key] != played.get(key):
            notify(
                f"note: {folder} was trained with {key}={trained_on[key]}, not {played.get(key)}"
            )
    notify(f"starting the engines of {folder}")
    return await stack.enter_async_context(inference_team(config, weights, notify))


def _policy_of(config: RunConfig, folder: str, role: str) -> str:
    """The run's policy for a role; a run with one trained policy plays any role."""
    trained = sorted(config.trained_policies())
    policy = config.roles.get(role, trained[0] if len(trained) == 1 else "")
    section = config.policies.get(policy)
    if section is None:
        raise ConfigError(folder, [f"has no policy for '{role}'; it has {', '.join(config.roles)}"])
    if isinstance(section, ScriptedPolicy | ApiPolicy):
        source = section.player if isinstance(section, ScriptedPolicy) else section.url
        raise ConfigError(
            folder, [f"has no model for '{role}'; name '{source}' as the player instead"]
        )
    return policy


def with_model(spec: PlayerSpec, options: ServerOptions) -> PlayerSpec:
    """Resolve the model of a server: a URL without `#MODEL` needs a server with one model."""
    if spec.kind != "server":
        return spec
    if importlib.util.find_spec("httpx") is None:
        raise ConfigError(spec.url, ["calling a server needs httpx; `pip install httpx`"])
    if spec.name:
        return spec
    names = _list_models(spec.url, options)
    if len(names) != 1:
        several = f"has {len(names)} models: {', '.join(names[:8])}" if names else "lists no model"
        raise ConfigError(spec.url, [f"{several}; set {spec.url}#MODEL"])
    return PlayerSpec("server", names[0], spec.url)


def _list_models(url: str, options: ServerOptions) -> list[str]:
    import httpx

    client = JsonClient(f"{url}/models", options.keys.get(url, ""), f"policy at {url}")
    try:
        response = httpx.get(
            client.url,
            headers=client.headers,
            timeout=MODELS_TIMEOUT,
            trust_env=not client.is_local,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SamplerError(
            f"cannot reach {url} ({describe(error)}); check the URL and that the server is running"
        ) from None
    if response.status_code != httpx.codes.OK:
        raise SamplerError(
            f"{url}/models returned HTTP {response.status_code}; pass an API key with --key, or "
            f"name the model with {url}#MODEL"
        )
    try:
        names = [str(model["id"]) for model in response.json()["data"]]
    except (ValueError, LookupError, TypeError):
        return []
    return [name for name in names if name.isprintable()]
