"""Team graphs: which executor reads which part, which others it hears, and which one answers.

A graph is JSON that a model wrote. The parser limits its size before reading it, takes linear time,
accepts known names only, and nothing in a graph is ever executed. Two notations are read: an object
with all fields, and a list of short strings for tiny models, such as `["a","b","12"]`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.talk import checked_words

LABELS = "abcdefgh"
"""Labels of the parts of a task, in order."""
PROMPTS = {
    "sum": "Add all the numbers that you see.",
    "vote": "Reply with the number that occurs most often.",
}
"""Prompts by id. A graph may also contain its own text."""
TOOLS = ("tally",)
"""Tools that a graph may give to an executor. `tally` counts the replies that it hears."""
MAX_LETTERS = 4000
MAX_DEPTH = 4
"""Nesting of brackets: an object, its list, an executor, its list."""
SHORT = re.compile(rf"(v?)([{LABELS}]*)([1-9]*)")
"""Executor in the short notation: `v` for a vote, the parts it reads, the executors it hears."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an environment for its graphs."""

    num_parts: int
    max_executors: int
    max_rounds: int
    max_reads: int


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor: the parts it reads, the roles it hears, its prompt and its tools."""

    role: str
    reads: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()
    prompt: str = "sum"
    """Id of a prompt, or the text of one."""
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TeamGraph:
    """A team: its executors in the order of their turns, and the role that answers."""

    executors: tuple[Executor, ...]
    answers: str
    rounds: int = 1

    @property
    def num_turns(self) -> int:
        """Executor turns of an episode."""
        return len(self.executors) * self.rounds

    def executor(self, role: str) -> Executor | None:
        """The executor of that role; None if the graph does not use the role."""
        return next((one for one in self.executors if one.role == role), None)


def executor_role(number: int) -> str:
    """Name of the executor with that number, from 1."""
    return f"executor_{number}"


def parse_graph(text: str, limits: Limits) -> TeamGraph:
    """The graph in a text of JSON; BadReply with the reason if it is not valid."""
    data = _json_in(text)
    if isinstance(data, list):
        data = _long_form(data)
    fields = _fields(data, "the graph", required=("team", "answers"), optional=("rounds",))
    executors = _executors(fields["team"], limits)
    answers, rounds = fields["answers"], fields.get("rounds", 1)
    if not isinstance(answers, str) or answers not in {one.role for one in executors}:
        raise BadReply("'answers' must name a role of the team")
    if type(rounds) is not int or not 1 <= rounds <= limits.max_rounds:
        raise BadReply(f"'rounds' must be a whole number from 1 to {limits.max_rounds}")
    return TeamGraph(_in_order(executors), answers, rounds)


def graph_text(graph: TeamGraph) -> str:
    """The graph as JSON in the notation with all fields."""
    team = [
        {
            "role": one.role,
            "reads": list(one.reads),
            "hears": list(one.hears),
            "prompt": one.prompt,
            "tools": list(one.tools),
        }
        for one in graph.executors
    ]
    return json.dumps({"team": team, "answers": graph.answers, "rounds": graph.rounds})


def short_text(graph: TeamGraph) -> str:
    """The graph as JSON in the short notation, or with all fields if that cannot express it."""
    roles = tuple(executor_role(at) for at in range(1, len(graph.executors) + 1))
    fits = (
        tuple(one.role for one in graph.executors) == roles
        and graph.answers == roles[-1]
        and graph.rounds == 1
        and all(one.prompt in PROMPTS and not one.tools for one in graph.executors)
    )
    if not fits:
        return graph_text(graph)
    team = [
        "v" * (one.prompt == "vote")
        + "".join(one.reads)
        + "".join(str(roles.index(heard) + 1) for heard in one.hears)
        for one in graph.executors
    ]
    return json.dumps(team, separators=(",", ":"))


def _json_in(text: str) -> Any:
    if len(text) > MAX_LETTERS:
        raise BadReply(f"a graph has at most {MAX_LETTERS} letters")
    depth = deepest = 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise BadReply(f"a graph nests brackets at most {MAX_DEPTH} deep")
    try:
        return json.loads(text, object_pairs_hook=_distinct_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # brackets within text hide the depth of others
        raise BadReply("the graph is not valid JSON") from None


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadReply("a key occurs twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise BadReply(f"{name} is not JSON")


def _long_form(short: list[Any]) -> dict[str, Any]:
    """The notation with all fields of a list of short strings; the last executor answers."""
    team = []
    for number, text in enumerate(short, 1):
        found = (
            SHORT.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_LETTERS else None
        )
        if found is None:
            raise BadReply("an executor is written as in 'ab', '12' or 'v123'")
        vote, reads, hears = found.groups()
        team.append(
            {
                "role": executor_role(number),
                "reads": list(reads),
                "hears": [executor_role(int(heard)) for heard in hears],
                "prompt": "vote" if vote else "sum",
            }
        )
    return {"team": team, "answers": executor_role(len(team))}


def _fields(
    value: Any, what: str, required: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """The fields of an object that has all required and no unknown ones."""
    if not isinstance(value, dict):
        raise BadReply(f"{what} must be an object")
    if missing := [name for name in required if name not in value]:
        raise BadReply(f"{what} has no '{missing[0]}'")
    if not value.keys() <= {*required, *optional}:
        raise BadReply(f"{what} has an unknown field")
    return value


def _executors(team: Any, limits: Limits) -> list[Executor]:
    if not isinstance(team, list) or not 1 <= len(team) <= limits.max_executors:
        raise BadReply(f"'team' must be a list of 1 to {limits.max_executors} executors")
    roles = [executor_role(number + 1) for number in range(limits.max_executors)]
    found = [_executor(one, roles, limits) for one in team]
    used = {one.role for one in found}
    if len(used) != len(found):
        raise BadReply("a role occurs twice in the team")
    if any(not used.issuperset(one.hears) for one in found):
        raise BadReply("an executor hears a role that is not in the team")
    return found


def _executor(value: Any, roles: Sequence[str], limits: Limits) -> Executor:
    fields = _fields(
        value, "an executor", required=("role",), optional=("reads", "hears", "prompt", "tools")
    )
    (role,) = _names([fields["role"]], "role", roles)
    reads = _names(fields.get("reads", []), "reads", LABELS[: limits.num_parts])
    hears = _names(fields.get("hears", []), "hears", roles)
    tools = _names(fields.get("tools", []), "tools", TOOLS)
    if len(reads) > limits.max_reads:
        raise BadReply(f"an executor reads at most {limits.max_reads} parts")
    prompt = fields.get("prompt", "sum")
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadReply("'prompt' must be text")
    return Executor(role, reads, hears, checked_words(prompt), tools)


def _names(value: Any, field: str, known: Sequence[str]) -> tuple[str, ...]:
    """Distinct known names, in the order of `known`."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadReply(f"'{field}' must be a list of names")
    given = set(value)
    if len(given) != len(value):
        raise BadReply(f"'{field}' has a name twice")
    if not given.issubset(known):
        raise BadReply(f"'{field}' has an unknown name; known are {', '.join(known)}")
    return tuple(name for name in known if name in given)


def _in_order(executors: Sequence[Executor]) -> tuple[Executor, ...]:
    """The executors so that each acts after those it hears; BadReply if they form a cycle."""
    ordered: list[Executor] = []
    waiting = list(executors)
    while waiting:
        done = {one.role for one in ordered}
        ready = next((one for one in waiting if done.issuperset(one.hears)), None)
        if ready is None:
            raise BadReply("executors hear each other in a cycle")
        ordered.append(ready)
        waiting.remove(ready)
    return tuple(ordered)
