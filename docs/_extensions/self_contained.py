"""The built pages ask nothing of other hosts: no fonts, no scripts, no pictures. What does is a warning, so an error.

Links that a reader may follow are another matter, and are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*["']?(?P<source>(?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|next|prev))[^>]*?\bhref\s*=\s*["']?(?P<link>(?:https?:)?//[^"'\s>]+)"""
    r"""|@import\s+(?:url\()?["']?(?P<sheet>(?:https?:)?//[^"')\s]+)"""
    r"""|url\(\s*["']?(?P<url>(?:https?:)?//[^"')\s]+)""",
    re.IGNORECASE,
)


def fetched(text: str) -> list[str]:
    """Addresses that a browser would ask for when it shows a page or a style sheet.

    >>> fetched('<script src="https://a.example/x.js"></script><a href="https://b.example">b</a>')
    ['https://a.example/x.js']
    >>> fetched("@import url(//fonts.example/f.css); p {background: url('img/p.png')}")
    ['//fonts.example/f.css']
    """
    return [next(filter(None, match.groups())) for match in FETCHED.finditer(text)]


def found(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files below a folder, and what each would fetch."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            for address in fetched(path.read_text(encoding="utf-8")):
                yield path, address


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    from sphinx.util import logging

    def check(app: Any, error: Exception | None) -> None:
        for path, address in found(Path(app.outdir)) if error is None else ():
            name = path.relative_to(app.outdir)
            logging.getLogger(__name__).warning(f"{name} asks for {address}; pages must do without other hosts")

    app.connect("build-finished", check)
    return {"parallel_read_safe": True}
