"""MkDocs hook: what a page links to outside of docs/ is not on the site, so it is named there
instead. Links within docs/ stay links, and a broken one stops the build."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with every link that leaves docs/ written as its words and the file's path."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, found[2]))
        if target.startswith("docs/"):
            return found[0]
        words = found[1].strip("`")
        return f"`{target}`" if posixpath.basename(target) in words else f"{found[1]} (`{target}`)"

    return LINK.sub(named, markdown)
