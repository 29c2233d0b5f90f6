"""Run the notebooks of this folder and store their outputs: `make notebooks`. They take less than a minute each."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs, run in a folder; raises if a cell does."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, record_timing=False, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


def store(path: Path) -> None:
    """Run a notebook and replace its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(path, Path(folder))
    notebook.metadata.pop("language_info", None)  # the version of Python
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for found in sorted(Path(__file__).parent.glob("*.ipynb")):
        store(found)
