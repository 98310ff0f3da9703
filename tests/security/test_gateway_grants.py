"""A key that calls cannot reward, and a key that rewards cannot call."""

import json
import sys
from typing import Any

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from gateways import Served, served
from programs import Two, play
from test_gateway_access import CHAT, ROUTES

from pettingllms.envs import Agents, command
from pettingllms.types import Rewards, Scored, Task

KEYS = {
    "the episode's": lambda gate: gate.agents.key,
    "its own": lambda gate: gate.agents.keys["planner"],
    "a teammate's": lambda gate: gate.agents.keys["worker"],
    "of the environment": lambda gate: gate.agents.environment()["OPENAI_API_KEY"],
}
REWARDS = [
    {"level": "process", "role": "planner", "value": 1.0},
    {"level": "agent", "role": "planner", "value": 1.0},
    {"level": "team", "value": 1.0},
]


async def posted(http: Any, gate: Served, path: str, key: str, body: Any) -> Any:
    headers = {"authorization": f"Bearer {key}"}
    return await http.post(gate.gateway.url + path, json=body, headers=headers)


@pytest.mark.parametrize("path", ["/v1/rewards", "/roles/planner/v1/rewards"])
@pytest.mark.parametrize("whose", KEYS)
def test_a_key_that_calls_cannot_reward(whose: str, path: str) -> None:
    async def work(gate: Served) -> Any:
        key, statuses = KEYS[whose](gate), []
        async with httpx.AsyncClient() as http:
            url = "/roles/planner/v1/chat/completions"
            await posted(http, gate, url, gate.agents.keys["planner"], CHAT)
            for body in REWARDS:
                answer = await posted(http, gate, path, key, body)
                statuses.append(answer.status_code)
        return statuses, gate.close()

    statuses, episode = served(work)
    assert statuses == [403, 403, 403]
    assert [step.rewards for step in episode.steps] == [Rewards()]


@pytest.mark.parametrize("route", [*ROUTES, "/v1/models"])
@pytest.mark.parametrize("prefix", ["", "/roles/planner"])
def test_the_reward_key_cannot_call(route: str, prefix: str) -> None:
    async def work(gate: Served) -> Any:
        key = {"authorization": f"Bearer {gate.agents.reward_key}"}
        url = gate.gateway.url + prefix + route
        async with httpx.AsyncClient() as http:
            if route == "/v1/models":
                answer = await http.get(url, headers=key)
            else:
                answer = await http.post(url, json=ROUTES[route], headers=key)
        return answer, gate.close()

    answer, episode = served(work)
    # No reply to reward yet (409), and the path of a role cannot reward the team (403).
    wanted = (403, 409) if route == "/v1/rewards" else (403,)
    assert answer.status_code in wanted
    assert episode.turns == []
    assert "pl-" not in answer.text


def test_both_keys_in_one_request_are_rejected() -> None:
    async def work(gate: Served) -> int:
        headers = {
            "authorization": f"Bearer {gate.agents.key}",
            "x-api-key": gate.agents.reward_key,
        }
        async with httpx.AsyncClient() as http:
            url = f"{gate.gateway.url}/v1/rewards"
            return (await http.post(url, json=REWARDS[2], headers=headers)).status_code

    assert served(work) == 401


def test_the_reward_key_rewards_every_level() -> None:
    async def work(gate: Served) -> Any:
        async with httpx.AsyncClient() as http:
            url = "/roles/planner/v1/chat/completions"
            await posted(http, gate, url, gate.agents.keys["planner"], CHAT)
            for body in REWARDS:
                answer = await posted(http, gate, "/v1/rewards", gate.agents.reward_key, body)
                assert answer.status_code == 200, answer.text
        return gate.close()

    (step,) = served(work).steps
    one = Scored(1.0)
    assert step.rewards == Rewards({"planner": one}, {"planner": one}, one)


def test_a_program_does_not_receive_the_reward_key() -> None:
    async def work(gate: Served) -> Any:
        return gate.agents, gate.agents.environment(), gate.agents.environment(rewards=True)

    agents, plain, trusted = served(work)
    assert agents.reward_key not in plain.values()
    assert agents.reward_key not in repr(agents)
    access = [agents.openai(), agents.openai("planner"), agents.anthropic("worker")]
    assert agents.reward_key not in {one["api_key"] for one in access}
    assert trusted["PETTINGLLMS_REWARD_KEY"] == agents.reward_key
    assert trusted["PETTINGLLMS_REWARD_URL"] == f"{agents.url}/v1/rewards"


SELFISH = """
import json, os, sys, urllib.error, urllib.request

def post(url, key, body):
    headers = {"authorization": "Bearer " + key}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code

url = os.environ["PETTINGLLMS_URL_A"]
body = {"model": "any", "messages": [{"role": "user", "content": "hi"}]}
post(url + "/chat/completions", os.environ["PETTINGLLMS_KEY_A"], body)
keys = [value for name, value in os.environ.items() if value.startswith("pl-")]
urls = [url + "/rewards", os.environ["OPENAI_BASE_URL"] + "/rewards"]
reward = {"level": "agent", "role": "a", "value": 99.0}
print(json.dumps([post(one, key, reward) for one in urls for key in keys]))
"""


class Selfish(Two):
    """A program whose agent tries all keys in its environment."""

    id = "selfish-v1"
    trusted = False

    async def run(self, task: Task, agents: Agents) -> Any:
        return await command([sys.executable, "-c", SELFISH], agents, rewards=self.trusted)

    def score(self, task: Task, result: Any) -> Rewards:
        return Rewards(team=Scored(float(json.dumps(result).count("200"))))


def test_a_program_cannot_reward_itself_with_the_keys_it_finds() -> None:
    (episode,) = play(Selfish(), num_tasks=1, num_samples=1)
    assert episode.failure is None
    assert episode.steps[-1].rewards == Rewards(team=Scored(0.0))


class Trusted(Selfish):
    """The same, with the reward key in its environment."""

    id = "trusted-v1"
    trusted = True


def test_a_trusted_program_posts_rewards() -> None:
    (episode,) = play(Trusted(), num_tasks=1, num_samples=1)
    assert episode.failure is None
    assert episode.steps[-1].rewards == Rewards(agent={"a": Scored(198.0)}, team=Scored(2.0))
