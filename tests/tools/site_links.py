"""A hook of MkDocs: links to files outside `docs/` have no page in the site, so they become the file's path."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([^)\s#]+)[^)\s]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the path of the repository in place of each link out of `docs/`."""
    return _OUTSIDE.sub(lambda link: link[1] if link[2] in link[1] else f"{link[1]} (`{link[2]}`)", markdown)
