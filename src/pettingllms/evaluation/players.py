"""Who may sit at a table: a person, a scripted player, a policy of a run, a model on a server.

An player_spec is named by a word: `human`, the name of a player (`minimax`, or by degrees
`minimax~0.3`), the folder of a run, or the address of an OpenAI-compatible server, with `#MODEL`
behind it where the server has several. A key is never part of an address: it is in an environment
variable, and only that variable's name is written. Whoever names a server for a role that is shown
images knows that its model takes them.
"""

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pettingllms.cluster.inference_team import playing_team
from pettingllms.config import PolicyConfig, RunConfig
from pettingllms.config.policies import ApiPolicy, ScriptedPolicy
from pettingllms.config.vision import image_problem
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, SamplerError, UnknownNameError, describe, nearest
from pettingllms.inference.http import HttpSampler, JsonRenderer
from pettingllms.models import find_model
from pettingllms.rollout import Player
from pettingllms.rollout.scripted import scripted_player
from pettingllms.runs.folder import CONFIG_FILE, RunFolder
from pettingllms.runtime.http_client import KeyedClient

HUMAN = "human"
LOOK_SECONDS = 20.0
"""How long a server may take to say which models it has."""
NUM_TRIES = 3
"""How often a server that is busy is asked for one reply."""
Env = Environment[Any, Any]


@dataclass(frozen=True, slots=True)
class PlayerSpec:
    """Somebody who plays."""

    kind: Literal["human", "player", "run", "server"]
    name: str
    """A player, a run's folder, or a server's model."""
    url: str = ""
    """Of the server."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How servers are asked."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """By URL: name of the environment variable that holds the key, which goes there alone."""
    temperature: float = 1.0


def parse_player(text: str, env: Env) -> PlayerSpec:
    """Whom a word names; a server's model is still to be found if the address does not have it."""
    if text == HUMAN:
        return PlayerSpec("human", HUMAN)
    if (found := parse_external_player(text, env)) is not None:
        return found
    if (Path(text) / CONFIG_FILE).is_file():
        return PlayerSpec("run", text)
    known = nearest(text, [HUMAN, *env.players])
    raise ConfigError(
        text,
        [f"'{text}' is no player, no run's folder and no http://HOST:PORT/v1; {known}"],
    )


def parse_external_player(text: str, env: Env) -> PlayerSpec | None:
    """The server or the scripted player that a word names; None if it names neither."""
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
    """The server, and its model if the address names one."""
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ConfigError(
            shown,
            ["an address has no user, password or query; put a key into a variable, give --key"],
        )
    if not parts.hostname:
        raise ConfigError(text, ["has no host; write http://HOST:PORT/v1"])
    path = parts.path.rstrip("/") or "/v1"
    return PlayerSpec("server", parts.fragment, f"{parts.scheme}://{parts.netloc}{path}")


def parse_keys(texts: Sequence[str], player_specs: Iterable[PlayerSpec]) -> dict[str, str]:
    """Which variable holds the key of which server: VARIABLE if there is one, ADDRESS=VARIABLE."""
    urls = sorted({player_spec.url for player_spec in player_specs if player_spec.kind == "server"})
    keys = {}
    for text in texts:
        address, equals, variable = text.rpartition("=")
        if not equals and len(urls) != 1:
            raise ConfigError(
                f"--key {text}",
                [f"there are {len(urls)} servers; say whose it is, --key http://HOST/v1={text}"],
            )
        url = parse_address(address).url if equals else urls[0]
        if url not in urls:
            raise ConfigError(f"--key {text}", [f"nobody plays at {url}; {nearest(url, urls)}"])
        keys[url] = variable
    return keys


@asynccontextmanager
async def open_players(
    env: Env,
    player_specs: Mapping[str, PlayerSpec],
    options: ServerOptions,
    notify: Callable[[str], None],
) -> AsyncIterator[dict[str, Player]]:
    """A player for every role but those of people; engines run and connections are open inside."""
    async with AsyncExitStack() as stack:
        teams: dict[str, Any] = {}
        players = {}
        for role, player_spec in player_specs.items():
            match player_spec.kind:
                case "player":
                    players[role] = scripted_player(env, player_spec.name)
                case "server":
                    players[role] = server_player(stack, player_spec, options)
                case "run":
                    if player_spec.name not in teams:
                        teams[player_spec.name] = await _start_run(
                            stack, env, player_spec.name, notify
                        )
                    team = teams[player_spec.name]
                    policy = _policy_of(team.config, player_spec.name, role)
                    if role in env.image_roles:
                        require_image_support(env, player_spec.name, team.config.policies[policy])
                    players[role] = team.player(env, policy, None, frozenset())
                case "human":
                    pass
        yield players


def require_image_support(env: Env, name: str, policy: PolicyConfig) -> None:
    """Refuse a run's policy for a role that is shown images, if its model only reads."""
    if unseen := not_seen_by(env, policy):
        raise ConfigError(name, [unseen])


def not_seen_by(env: Env, policy: PolicyConfig) -> str:
    """Why a policy cannot play a role that is shown images; empty if it can."""
    model = None
    if not isinstance(policy, ScriptedPolicy | ApiPolicy):
        model = find_model(policy.model)
    reason = image_problem(policy, model)
    return f"'{env.id}' shows images, and {reason}" if reason else ""


def server_player(stack: AsyncExitStack, player_spec: PlayerSpec, options: ServerOptions) -> Player:
    """The player of a server's model; the stack lets go of its connections."""
    key = options.keys.get(player_spec.url, "")
    policy = ApiPolicy(url=player_spec.url, model=player_spec.name, key=key)
    sampler = HttpSampler(policy, num_tries=NUM_TRIES)
    stack.push_async_callback(sampler.close)
    return Player(
        player_spec.name,
        sampler,
        JsonRenderer(supports_images=True),
        trained=False,
        in_bytes=True,
        temperature=options.temperature,
    )


async def _start_run(
    stack: AsyncExitStack, env: Env, folder: str, notify: Callable[[str], None]
) -> Any:
    """A run's engines with the weights of its newest checkpoint."""
    run = RunFolder(Path(folder))
    config, (_, weights) = run.config(), run.newest(notify)
    trained_on, played = config.env.model_dump(), env.config.model_dump()
    if trained_on["id"] != env.config.id:
        raise ConfigError(folder, [f"plays '{trained_on['id']}', and this is '{env.config.id}'"])
    for key in trained_on.keys() - {"id", "solo", "num_tasks", "opponent"}:
        if trained_on[key] != played.get(key):
            notify(
                f"note: {folder} was trained with {key}={trained_on[key]}, not {played.get(key)}"
            )
    notify(f"starting the engines of {folder}")
    return await stack.enter_async_context(playing_team(config, weights, notify))


def _policy_of(config: RunConfig, folder: str, role: str) -> str:
    """Who plays the role in the run; a run of one role alone plays any."""
    trained = sorted(config.trained_policies())
    policy = config.roles.get(role, trained[0] if len(trained) == 1 else "")
    section = config.policies.get(policy)
    if section is None:
        raise ConfigError(folder, [f"has no policy for '{role}'; it has {', '.join(config.roles)}"])
    if isinstance(section, ScriptedPolicy | ApiPolicy):
        who = section.player if isinstance(section, ScriptedPolicy) else section.url
        raise ConfigError(
            folder, [f"has no model for '{role}'; give that player to '{who}' itself"]
        )
    return policy


def with_model(player_spec: PlayerSpec, options: ServerOptions) -> PlayerSpec:
    """The same player_spec; a server whose address names no model is asked which one it has."""
    if player_spec.kind != "server":
        return player_spec
    if importlib.util.find_spec("httpx") is None:
        raise ConfigError(player_spec.url, ["asking a server needs httpx; `pip install httpx`"])
    if player_spec.name:
        return player_spec
    names = _models_at(player_spec.url, options)
    if len(names) != 1:
        several = f"has {len(names)} models: {', '.join(names[:8])}" if names else "names no model"
        raise ConfigError(player_spec.url, [f"{several}; write {player_spec.url}#MODEL"])
    return PlayerSpec("server", names[0], player_spec.url)


def _models_at(url: str, options: ServerOptions) -> list[str]:
    import httpx

    client = KeyedClient(f"{url}/models", options.keys.get(url, ""), f"policy at {url}")
    try:
        answer = httpx.get(
            client.url,
            headers=client.headers,
            timeout=LOOK_SECONDS,
            trust_env=not client.is_here,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SamplerError(
            f"{url} cannot be reached ({describe(error)}); is the server running, and is this its "
            "address?"
        ) from None
    if answer.status_code != httpx.codes.OK:
        raise SamplerError(
            f"{url}/models answers HTTP {answer.status_code}; is a key needed (--key), or is the "
            f"model's name ({url}#MODEL)?"
        )
    try:
        names = [str(model["id"]) for model in answer.json()["data"]]
    except (ValueError, LookupError, TypeError):
        return []
    return [name for name in names if name.isprintable()]
