"""The texts that the designer and the executors read."""

from collections.abc import Mapping, Sequence

from pettingllms.envs.tasks.team_design.graph import (
    LABELS,
    PROMPTS,
    TOOLS,
    Executor,
    Limits,
    executor_role,
)
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER
from pettingllms.envs.toolkit.talk import HOW_TO_TALK

UNUSED = "You are not in the team."
EXAMPLE = (
    '{"team": [{"role": "executor_1", "reads": ["a"]}, {"role": "executor_2", "hears": '
    '["executor_1"], "prompt": "sum"}], "answers": "executor_2"}'
)


def designer_part(limits: Limits, base: int) -> str:
    """The system message of the designer."""
    ids = ", ".join(f"'{name}' ({text[:-1].lower()})" for name, text in PROMPTS.items())
    return (
        "You design a team that answers a question about numbers that you do not see: what "
        f"remains if the sum of all numbers is divided by {base}. The numbers are in parts. Each "
        "executor sees the parts that it reads and the replies of the executors that it hears. "
        "The more numbers it adds, the more often it errs. Each turn of an executor costs a "
        "little.\n"
        f"The team has 1 to {limits.max_executors} executors, called {executor_role(1)} to "
        f"{executor_role(limits.max_executors)}. An executor reads at most "
        f"{min(limits.max_reads, limits.num_parts)} of the parts "
        f"{', '.join(LABELS[: limits.num_parts])}. No executor hears itself, and they do not hear "
        f"each other in a cycle. Prompts: {ids}, or your own text of {HOW_TO_TALK}. Tools: "
        f"{', '.join(TOOLS)}. 'rounds' is at most {limits.max_rounds}. Write the graph as JSON, "
        f"for example {EXAMPLE}\n{HOW_TO_ANSWER}"
    )


def for_designer(num_parts: int, part_size: int) -> str:
    """The task, as the designer sees it."""
    labels = ", ".join(LABELS[:num_parts])
    return f"The task has {num_parts} parts: {labels}. Each has {part_size} numbers."


def executor_part(role: str, base: int) -> str:
    """The system message of an executor."""
    return (
        f"You are {role} in a team that adds numbers. You see some of them, and replies of others "
        "in the team. Follow the instruction. Your reply is one digit: what remains if the result "
        f"is divided by {base}. {HOW_TO_ANSWER}"
    )


def for_executor(
    one: Executor, numbers: Sequence[int | None], heard: Mapping[str, int | None]
) -> str:
    """The instruction of an executor, the numbers it reads and the replies it hears."""
    lines = [
        f"Instruction: {PROMPTS.get(one.prompt, one.prompt)}",
        f"Numbers: {' '.join(map(str, numbers)) or 'none'}",
        *(f"Reply of {role}: {_digit(heard.get(role))}" for role in one.hears),
    ]
    if "tally" in one.tools:
        lines.append(f"Tally: {_tally(list(heard.values()))}")
    return "\n".join(lines)


def terse_executor(one: Executor, numbers: Sequence[int | None]) -> str:
    """The same in a few tokens: an instruction other than to add, then all numbers."""
    start = {"sum": "", "vote": "v"}.get(one.prompt, one.prompt)
    return " ".join(filter(None, [start, "".join(map(_digit, numbers))])) or "0"


def _digit(value: int | None) -> str:
    return "?" if value is None else str(value)


def _tally(values: Sequence[int | None]) -> str:
    counts = {value: values.count(value) for value in values if value is not None}
    return ", ".join(f"{value} ({count})" for value, count in sorted(counts.items())) or "none"
