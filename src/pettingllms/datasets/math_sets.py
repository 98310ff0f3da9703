"""Math data sets in their published formats: a question and its final answer.

Field names differ between the authors' files and the hub; both are accepted.
"""

import re
from collections import deque

from pettingllms.datasets.problems import Problem
from pettingllms.datasets.rows import Row

HASHES = "####"
BARE = r"-?\(?(?:\.?\d|[A-Za-z](?![A-Za-z])|\\[A-Za-z]+(?![A-Za-z\s]))(?:(?!\\[)\]])[^\s$])*"
"""A box without braces holds the token after it, unless that is a word."""
BOXES = tuple(
    re.compile(rf"\\{box}(?![A-Za-z])\s*(?:\{{|(?P<bare>{BARE}))") for box in ("boxed", "fbox")
)
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
"""A backslash escapes the next character, including a backslash."""
NUMBER = re.compile(r"-?[\d,]*\.?\d+")
DAPO_HEAD = "Solve the following math problem step by step."
DAPO_TAIL = "Remember to put your answer on its own line"


def gsm8k(row: Row) -> Problem:
    """GSM8K (Cobbe et al., 2021): the answer ends in `#### n`."""
    _, hashes, number = row.text("answer").rpartition(HASHES)
    number = number.strip()
    if not hashes or not NUMBER.fullmatch(number):
        raise row.wrong(f"'answer' ends in {number!r:.40}; expected a last line like '{HASHES} 18'")
    return Problem(row.name, row.text("question"), number.replace(",", ""))


def math(row: Row) -> Problem:
    """MATH (Hendrycks et al., 2021): the answer is the last box of the solution. MATH-500 names it
    beside."""
    if row.has("answer"):
        return Problem(row.name, row.text("problem"), row.text("answer"))
    answer = last_boxed(row.text("solution"))
    if not answer:
        raise row.wrong("'solution' has no \\boxed{...}; expected the answer in one")
    return Problem(row.name, row.text("problem"), answer)


def aime(row: Row) -> Problem:
    """AIME 2024 and 2025: a whole number from 0 to 999, as text or as a number."""
    key = row.first("answer", "Answer")
    answer = str(row.get(key, (str, int), "a whole number from 0 to 999")).strip()
    digits = re.fullmatch(r"0*(\d{1,3})(\^\\circ)?", answer)
    if digits is None:
        raise row.wrong(f"'{key}' is {answer!r:.40}; expected a whole number from 0 to 999")
    asked = row.text(row.first("problem", "question", "Problem"))
    return Problem(row.name, asked, digits.group(1))


def olympiadbench(row: Row) -> Problem:
    """OlympiadBench (He et al., 2024): a list with one final answer, several values by commas."""
    answers = row.get("final_answer", list, "a list with one text")
    if len(answers) != 1 or not isinstance(answers[0], str) or not answers[0].strip():
        raise row.wrong(f"'final_answer' is {answers!r:.60}; expected a list with one text")
    answer = answers[0].replace("$", "").strip()
    if row.values.get("is_multiple_answer") is True and "," in answer and answer[0] not in "({[\\":
        answer = f"\\{{{answer}\\}}"
    context = row.values.get("context")
    asked = "\n\n".join(part for part in (context, row.text("question")) if part)
    return Problem(row.name, asked, answer)


def dapo_math(row: Row) -> Problem:
    """DAPO-Math-17k (Yu et al., 2025): a chat prompt around the problem, the answer as the truth of
    a reward model."""
    prompt = row.get("prompt", list, "a list of chat messages")
    if not prompt or not isinstance(prompt[-1], dict) or "content" not in prompt[-1]:
        raise row.wrong(f"'prompt' is {prompt!r:.60}; expected a list of messages with 'content'")
    judged = row.get("reward_model", dict, "an object with 'ground_truth'")
    truth = judged.get("ground_truth")
    if not isinstance(truth, str) or not truth.strip():
        raise row.wrong(f"'reward_model' has the ground_truth {truth!r:.40}; expected a text")
    parts = str(prompt[-1]["content"]).strip().split("\n\n")
    if parts[0].startswith(DAPO_HEAD):
        del parts[0]
    if parts and parts[-1].startswith(DAPO_TAIL):
        del parts[-1]
    asked = "\n\n".join(parts).strip()
    if not asked:
        raise row.wrong("'prompt' asks nothing; expected a problem between its instructions")
    return Problem(row.name, asked, truth.strip())


def svamp(row: Row) -> Problem:
    """SVAMP (Patel et al., 2021): a body, a question and a number."""
    answer = row.get("Answer", (int, float, str), "a number")
    try:
        number = float(answer)
    except ValueError:
        raise row.wrong(f"'Answer' is {answer!r:.40}; expected a number") from None
    if not abs(number) < 1e15:
        raise row.wrong(f"'Answer' is {answer!r:.40}; expected a finite number")
    body = row.text("Body")
    asked = f"{body if body[-1] in '.,?!' else body + '.'} {row.text('Question')}"
    return Problem(row.name, asked, f"{number:.15g}")


def plain(row: Row) -> Problem:
    """Rows of any other set: a question and its answer, which may be a number."""
    answer = str(row.get("answer", (str, int, float), "a text or a number")).strip()
    if not answer:
        raise row.wrong("'answer' is empty; expected a text or a number")
    return Problem(row.name, row.text(row.first("question", "problem", "prompt")), answer)


def last_boxed(text: str) -> str | None:
    """The content of the last closed box of a text; None if there is none."""
    for box in BOXES:
        for found in deque(box.finditer(text), maxlen=1):
            if found["bare"]:
                return found["bare"].rstrip(".,;:")
            if (inner := _braced(text, found.end())) is not None:
                return inner.strip()
    return None


def _braced(text: str, start: int) -> str | None:
    """The text from after an opening brace to its closing brace."""
    depth = 1
    for brace in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[start : brace.start()]
    return None
