"""MkDocs hook: show links to files outside of docs/, which are not on the site, as file names.

Links within docs/ stay links, and a broken one stops the build.
"""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with each link that leaves docs/ replaced by its text and the path of the file."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, found[2]))
        if target.startswith("docs/"):
            return found[0]
        words = found[1].strip("`")
        return f"`{target}`" if posixpath.basename(target) in words else f"{found[1]} (`{target}`)"

    return LINK.sub(named, markdown)
