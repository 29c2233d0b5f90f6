"""The server of the page on which a dataset is browsed.

It only answers questions: lists of photos come in pages, and pictures by the row of the image in the dataset, as in a
review.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray

from tagfill.curation.browse import PhotoFilter, PhotoIndex, State
from tagfill.curation.server import SIDES, ImageViews
from tagfill.errors import TagfillError
from tagfill.inference import http

_FILES = ("review.css", "browse.css", "page.js", "browse.js", "grid.js")
_MAX_PAGE = 500  # photos in a response
_MAX_TAGS = 12  # of a photo in a list
_CACHED_PICTURES = 4096  # about 80 MB of small pictures


def create_app(index: PhotoIndex, views: ImageViews) -> FastAPI:
    """The web application that shows a dataset.

    Args:
        index: finds the photos.
        views: makes the pictures.
    """
    app = FastAPI(title="Tagfill browse", docs_url=None, redoc_url=None, openapi_url=None)
    picture_of = lru_cache(_CACHED_PICTURES)(views.picture)
    dataset = index.dataset

    @app.exception_handler(TagfillError)
    async def report_error(request: Request, error: TagfillError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=409)

    @app.exception_handler(RequestValidationError)
    async def report_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:]))
        return JSONResponse({"error": f"The request is invalid: {where}: {first['msg']}."}, status_code=422)

    pages = {"/": "browse.html"} | {f"/{name}": name for name in _FILES}
    http.add_page(app, Path(__file__).parent / "page", pages)

    @app.get("/api/dataset")
    def describe() -> dict[str, Any]:
        return {
            "dataset": dataset.name,
            "photos": len(index),
            "classes": index.counts(),
            "splits": [{"split": name, "photos": len(rows)} for name, rows in dataset.splits.items()],
            "unlabeled": len(index.labels.unannotated()),
        }

    @app.get("/api/photos")
    def list_photos(
        wanted: Annotated[PhotoFilter, Depends(_filter)],
        start: Annotated[int, Query(ge=0)] = 0,
        count: Annotated[int, Query(ge=0, le=_MAX_PAGE)] = 100,
    ) -> dict[str, Any]:
        rows = index.select(wanted)
        return {"total": len(rows), "start": start, "photos": _items(index, wanted, rows[start : start + count])}

    @app.get("/api/photos/{row}")
    def show_photo(row: int) -> dict[str, Any]:
        image = _name_of(index, row)
        known = index.labels_of(row)
        record = dataset.images.slice(row, 1).to_pylist()[0]
        return {
            "row": row,
            "image": image,
            "split": record["split"],
            "width": record["width"],
            "height": record["height"],
            "present": known.present,
            "absent": known.absent,
            "undecided": known.undecided,
        }

    @app.get("/picture/{row}")
    def picture(row: int, side: int = SIDES[1]) -> Response:
        content = picture_of(_name_of(index, row), side)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    return app


def _filter(
    label: str | None = None, state: State = "any", split: str | None = None, text: Annotated[str, Query()] = ""
) -> PhotoFilter:
    return PhotoFilter(label, state, split, text)


def _items(index: PhotoIndex, wanted: PhotoFilter, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """What a list shows of these photos."""
    names, states = index.dataset.names(rows), index.states(wanted.label, rows)
    return [
        {"row": row, "image": name, "state": state, "present": index.labels_of(row).present[:_MAX_TAGS]}
        for row, name, state in zip(rows.tolist(), names, states.tolist(), strict=True)
    ]


def _name_of(index: PhotoIndex, row: int) -> str:
    if not 0 <= row < len(index):
        raise HTTPException(404, f"There is no photo {row}.")
    name: str = index.dataset.images["image"][row].as_py()
    return name


def serve(index: PhotoIndex, listening: socket.socket, *, token: str | None) -> None:
    """Serve the page until interrupted.

    Args:
        index: the photos.
        listening: from `tagfill.inference.http.listen`.
        token: secret that requests must show; required unless only this machine can reach the server.
    """
    views = ImageViews(index.dataset)
    http.run_server(create_app(index, views), listening, token, on_stop=views.close)
