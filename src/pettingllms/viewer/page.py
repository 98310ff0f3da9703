"""The HTML page: either loading its scripts from the server, or with everything embedded.

The content security policy of an exported page allows its own scripts only, by hash. The runs' data
is an escaped JSON block that cannot contain a tag.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
SCRIPTS = (
    "vendor/preact.js", "vendor/hooks.js", "vendor/htm.js", "vendor/uplot.js",
    "source.js", "text.js", "boards.js", "teams.js", "charts.js", "runs.js", "table.js",
    "episode.js", "app.js",
)  # fmt: skip
STYLES = ("vendor/uplot.css", "app.css")
FILES = {name: STATIC / name for name in (*SCRIPTS, *STYLES)}
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json; charset=utf-8",
}
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>PettingLLMs</title>
<link rel="icon" href="data:,">
"""
BODY = """</head>
<body>
<div id="app"><p class="loading">Loading…</p></div>
<noscript>This page needs JavaScript. It loads no scripts from other sites.</noscript>
"""
END = "</body>\n</html>\n"


def page() -> str:
    """The document that the server sends."""
    styles = "".join(f'<link rel="stylesheet" href="{name}">\n' for name in STYLES)
    scripts = "".join(f'<script src="{name}"></script>\n' for name in SCRIPTS)
    return HEAD + styles + BODY + scripts + END


def standalone_page(data: dict[str, Any]) -> str:
    """A self-contained document with scripts, styles and data embedded."""
    scripts = [FILES[name].read_text(encoding="utf-8") for name in SCRIPTS]
    styles = [FILES[name].read_text(encoding="utf-8") for name in STYLES]
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = [
        HEAD,
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
        *(f"<style>{text}</style>\n" for text in styles),
        BODY,
        f'<script type="application/json" id="data">{_escaped_json(data)}</script>\n',
        *(f"<script>{text}</script>\n" for text in scripts),
        END,
    ]
    return "".join(parts)


def _hashes(texts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts]
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)


def _escaped_json(data: dict[str, Any]) -> str:
    """JSON without characters that could start a tag or a comment."""
    text = json.dumps(data, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
