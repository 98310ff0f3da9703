"""The table on the credit assignment page: expected gradients of algorithms and exact ones."""

from credit_cases import ALL_GAMES, CASES, checked

START, END = "<!-- credit table: python docs/make_credit.py -->", "<!-- end of credit table -->"
TABLE = "the table in docs/concepts/credit_assignment.md"


def table_text() -> str:
    """The table, in Markdown."""
    lines = [
        f"| algorithm | options | {' | '.join(ALL_GAMES)} | what biases it |",
        "| --- " * (len(ALL_GAMES) + 3) + "|",
    ]
    for number, case in enumerate(CASES):
        cells = [_cell(number, game) for game in ALL_GAMES]
        label = f"`{case.label}`" if case.label else "defaults"
        lines.append(f"| `{case.algo}` | {label} | {' | '.join(cells)} | {case.why} |")
    return "\n".join(lines)


def _cell(number: int, game: str) -> str:
    if game not in CASES[number].games:
        return ""
    found = checked(number, game)
    if found.whole.is_exact:
        return "exact"
    return f"{found.whole.cosine:.3f}" + ("*" if found.wrong_signs else "")


def between_marks(page: str) -> str:
    """The table that a page shows."""
    return page.split(START)[1].split(END, maxsplit=1)[0].strip()


def with_table(page: str) -> str:
    """The page with the table as it should be."""
    before, rest = page.split(START)
    return f"{before}{START}\n{table_text()}\n{END}{rest.split(END)[1]}"
