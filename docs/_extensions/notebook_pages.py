"""Notebooks as pages: a notebook with its outputs becomes Markdown when Sphinx reads it. Nothing is executed.

`docs/notebooks/execute.py` writes the outputs, and a test runs the same cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

FENCE = "~" * 8  # longer than any fence inside a cell
PICTURES = ("image/svg+xml", "image/jpeg", "image/png")


def markdown(notebook: dict[str, Any]) -> str:
    """The page of a notebook.

    >>> cells = [{"cell_type": "markdown", "source": ["# A title"]}]
    >>> cells.append({"cell_type": "code", "source": "1 + 1", "outputs": [{"data": {"text/plain": "2"}}]})
    >>> markdown({"cells": cells}).split()
    ['#', 'A', 'title', '~~~~~~~~python', '1', '+', '1', '~~~~~~~~', '~~~~~~~~text', '2', '~~~~~~~~']
    """
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    """The Markdown of a cell and of its outputs."""
    if cell["cell_type"] == "markdown":
        yield _text(cell["source"])
        return
    yield _block("python", _text(cell["source"]))
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        picture = next((kind for kind in PICTURES if kind in data), None)
        if "text/html" in data:
            if not _text(data["text/html"]):
                continue  # progress that has ended
            yield _block("{raw} html", f'<div class="notebook-output">{_text(data["text/html"])}</div>')
        elif picture is not None:
            content = _text(data[picture]).replace("\n", "")
            yield _block("{raw} html", f'<img class="notebook-output" alt="" src="data:{picture};base64,{content}">')
        elif text := _text(data.get("text/plain", "")).strip():
            yield _block("text", text)


def _block(language: str, content: str) -> str:
    return f"{FENCE}{language}\n{content}\n{FENCE}\n"


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""

    def convert(app: Any, page: str, content: list[str]) -> None:
        if str(app.env.doc2path(page)).endswith(".ipynb"):
            content[0] = markdown(json.loads(content[0]))

    app.connect("source-read", convert)
    return {"parallel_read_safe": True}
