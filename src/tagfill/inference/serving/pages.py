"""The files of a page, at addresses of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse


def add_page(app: FastAPI, folder: Path, files: Mapping[str, str]) -> None:
    """Serve the files of a page; a browser asks each time whether they have changed.

    Args:
        app: that gets the addresses; they stay out of its description for programs.
        folder: of the files.
        files: address → name of the file.
    """
    for address, name in files.items():
        app.add_api_route(address, _answer(folder / name), methods=["GET"], include_in_schema=False)


def _answer(path: Path) -> Callable[[], FileResponse]:
    def answer() -> FileResponse:
        return FileResponse(path, headers={"cache-control": "no-cache"})

    return answer
