"""A page of headings, tables and lists, as Markdown or HTML. All input is escaped."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

STYLE = """body{font:16px/1.55 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1d2126;background:#fff}table{border-collapse:collapse;margin:1rem 0}img{max-width:100%}
th,td{padding:.3rem .8rem;border-bottom:1px solid #dcdfe3;text-align:left;vertical-align:top}
pre{background:#f3f4f6;padding:.7rem 1rem;border-radius:6px;overflow-x:auto}
@media(prefers-color-scheme:dark){body{color:#e7e9ec;background:#14171b}th,td{border-color:#343a42}
pre{background:#1c2025}img{background:#fff}}"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: 'self'"
Kind = Literal["head", "text", "table", "points", "code", "picture"]


@dataclass(slots=True)
class Document:
    """Blocks in order."""

    title: str
    blocks: list[tuple[Kind, list[list[str]]]] = field(default_factory=list)

    def head(self, text: str) -> None:
        """A heading."""
        self.blocks.append(("head", [[text]]))

    def text(self, text: str) -> None:
        """A paragraph."""
        self.blocks.append(("text", [[text]]))

    def code(self, text: str) -> None:
        """Lines to be copied."""
        self.blocks.append(("code", [[text]]))

    def points(self, texts: Sequence[str]) -> None:
        """A list."""
        self.blocks.append(("points", [list(texts)]))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; nothing, if it has no rows."""
        if rows:
            self.blocks.append(("table", [list(head), *map(list, rows)]))

    def picture(self, address: str, text: str) -> None:
        """A picture: the name of a file beside the page, or its data."""
        self.blocks.append(("picture", [[address, text]]))

    def to_markdown(self) -> str:
        """The page as Markdown."""
        return "\n\n".join([f"# {_md(self.title)}", *map(_markdown, self.blocks)]) + "\n"

    def to_html(self) -> str:
        """The page as HTML without external resources."""
        body = "\n".join(_html(block) for block in self.blocks)
        title = html.escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n"
        )


def _markdown(block: tuple[Kind, list[list[str]]]) -> str:
    kind, rows = block
    first = rows[0]
    match kind:
        case "head":
            return f"## {_md(first[0])}"
        case "points":
            return "\n".join(f"- {_md(text)}" for text in first)
        case "code":
            return f"```\n{first[0]}\n```"
        case "picture":
            return f"![{_md(first[1])}]({first[0]})"
        case "table":
            lines = ["| " + " | ".join(_md(cell) for cell in row) + " |" for row in rows]
            return "\n".join([lines[0], "|" + " --- |" * len(first), *lines[1:]])
    return _md(first[0])


def _md(text: str) -> str:
    """Text on one line, with Markdown escaped."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _html(block: tuple[Kind, list[list[str]]]) -> str:
    kind, rows = block
    first = [html.escape(text) for text in rows[0]]
    match kind:
        case "head":
            return f"<h2>{first[0]}</h2>"
        case "points":
            return "<ul>" + "".join(f"<li>{text}</li>" for text in first) + "</ul>"
        case "code":
            return f"<pre>{first[0]}</pre>"
        case "picture":
            return f'<img src="{first[0]}" alt="{first[1]}">'
        case "table":
            head = "".join(f"<th>{text}</th>" for text in first)
            lines = [
                "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                for row in rows[1:]
            ]
            return f"<table><tr>{head}</tr>{''.join(lines)}</table>"
    return f"<p>{first[0]}</p>"
