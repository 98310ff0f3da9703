"""Natural-language inference: entailment, contradiction or neutral."""

from pettingllms.datasets.problems import Problem
from pettingllms.datasets.rows import Row

LABELS = ("entailment", "neutral", "contradiction")
SHORT = {label[0]: label for label in LABELS} | {str(at): name for at, name in enumerate(LABELS)}
NAMES = ", ".join([*LABELS, *SHORT])
"""Labels as letters (the authors' files) and as numbers (the hub's)."""


def anli(row: Row) -> Problem:
    """ANLI (Nie et al., 2020), as JSON lines, CSV or parquet; SNLI and MNLI in the hub's form."""
    key = row.first("label", "gold_label")
    given = str(row.get(key, (str, int), f"one of {', '.join(LABELS)}")).strip()
    label = SHORT.get(given, given)
    if label not in LABELS:
        raise row.wrong(f"'{key}' is {given!r:.40}; expected one of {NAMES}")
    context = row.text(row.first("context", "premise"))
    statement = row.text(row.first("hypothesis", "statement"))
    return Problem(row.name, asked(context, statement), label, LABELS)


def asked(context: str, statement: str) -> str:
    """The question for a text and a statement."""
    ask = "Is the statement to the text entailment, neutral or contradiction?"
    return f"Text: {context}\nStatement: {statement}\n{ask}"
