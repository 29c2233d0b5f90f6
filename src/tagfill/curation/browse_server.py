"""The server of the page on which a dataset is browsed.

It only answers questions: lists of photos come in pages, and pictures by the row of the image in the dataset, as in a
review.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray

from tagfill.curation.browse import PhotoFilter, PhotoIndex, State
from tagfill.curation.server import SIDES, ImageViews
from tagfill.errors import TagfillError
from tagfill.inference import http

if TYPE_CHECKING:
    from tagfill.curation.browse_features import FeatureSpace

_FILES = ("review.css", "browse.css", "page.js", "browse.js", "grid.js", "map.js")
_MAX_PAGE = 500  # photos in a response
_MAX_TAGS = 12  # of a photo in a list
_CACHED_PICTURES = 4096  # about 80 MB of small pictures
_KEPT_RANKINGS = 8
_MATCHES = 4  # bit of a point of the map


def create_app(index: PhotoIndex, views: ImageViews, space: FeatureSpace | None = None) -> FastAPI:
    """The web application that shows a dataset.

    Args:
        index: finds the photos.
        views: makes the pictures.
        space: features of the photos, for nearest photos and the map; None for neither.
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
            "needs_features": None if space is not None else _needs_features(index),
        }

    def features() -> FeatureSpace:
        if space is None:
            raise TagfillError(_needs_features(index))
        return space

    @lru_cache(_KEPT_RANKINGS)
    def rank(wanted: PhotoFilter, like: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The photos that match, the most similar first, and their similarities."""
        similarities = features().similarities(like)
        rows = index.select(wanted)
        rows = rows[~np.isnan(similarities[rows])]
        rows = rows[np.argsort(-similarities[rows], kind="stable")]
        return rows, similarities[rows]

    @app.get("/api/photos")
    def list_photos(
        wanted: Annotated[PhotoFilter, Depends(_filter)],
        like: int | None = None,
        start: Annotated[int, Query(ge=0)] = 0,
        count: Annotated[int, Query(ge=0, le=_MAX_PAGE)] = 100,
    ) -> dict[str, Any]:
        part = slice(start, start + count)
        if like is None:
            rows = index.select(wanted)
            items = _items(index, wanted, rows[part])
        else:
            _name_of(index, like)
            rows, similarities = rank(wanted, like)
            items = _items(index, wanted, rows[part])
            for item, similarity in zip(items, similarities[part].tolist(), strict=True):
                item["similarity"] = round(similarity, 4)
        return {"total": len(rows), "start": start, "photos": items}

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

    @app.get("/api/map")
    def describe_map() -> dict[str, Any]:
        shown = features().map()
        return {"points": len(shown.rows), "photos": len(index), "share": shown.share}

    @app.get("/api/map/points")
    def list_points() -> Response:
        """Rows (int32), then x, then y (float32) of all points, little-endian."""
        shown = features().map()
        x, y = shown.positions.astype("<f4").T
        return _binary(shown.rows.astype("<i4").tobytes() + x.tobytes() + y.tobytes())

    @app.get("/api/map/states")
    def list_states(wanted: Annotated[PhotoFilter, Depends(_filter)]) -> Response:
        """A byte for each point: the state of the class (0 absent, 1 present, 2 unknown), plus 4 if it matches."""
        rows = features().map().rows
        states = index.states(wanted.label, rows)
        states[states < 0] = 2
        matches = np.isin(rows, index.select(wanted), assume_unique=True)
        return _binary((states + _MATCHES * matches).astype(np.uint8).tobytes())

    @app.get("/picture/{row}")
    def picture(row: int, side: int = SIDES[1]) -> Response:
        content = picture_of(_name_of(index, row), side)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    return app


def _filter(
    label: str | None = None, state: State = "any", split: str | None = None, text: Annotated[str, Query()] = ""
) -> PhotoFilter:
    return PhotoFilter(label, state, split, text)


def _binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def _needs_features(index: PhotoIndex) -> str:
    folder = index.dataset.folder or "DATASET"
    return (
        f"Nearest photos and the map need cached features. Make them with 'tagfill features {folder} --views eval "
        f"--out CACHE', and start 'tagfill browse {folder} --features CACHE'."
    )


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


def serve(index: PhotoIndex, listening: socket.socket, *, token: str | None, space: FeatureSpace | None = None) -> None:
    """Serve the page until interrupted.

    Args:
        index: the photos.
        listening: from `tagfill.inference.http.listen`.
        space: features of the photos, if there are any.
        token: secret that requests must show; required unless only this machine can reach the server.
    """
    views = ImageViews(index.dataset)
    http.run_server(create_app(index, views, space), listening, token, on_stop=views.close)
