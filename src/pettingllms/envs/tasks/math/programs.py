"""The answer that a program prints."""

from pettingllms.envs.toolkit import program_output
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.boxed_answers import checked_answer
from pettingllms.envs.toolkit.program_output import Printed


def run(source: str, seconds: float, memory_mb: int) -> Printed:
    """Run a program; its last line must be an answer."""
    found = program_output.run(source, seconds, memory_mb)
    if found.answer is None:
        return found
    try:
        return Printed(checked_answer(found.answer))
    except BadReply:
        return Printed(None, "printed a last line that is no answer")
