"""The server of the review page.

It serves the files of the page, pictures by the position of a suggestion (never by a path), and a small JSON interface.
A response confirms a decision only after the decision is on disk.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from tagfill.curation.decisions import NotWrittenError
from tagfill.curation.review import Decision, Id, PairStatus, ReviewSession, Seconds, Suggestion
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import encode_jpeg, open_root, overlay_class_map, thumbnail
from tagfill.inference import Predictor, http, open_predictor
from tagfill.inference.http import add_page
from tagfill.inference.pipeline import score_image

SIDES = (160, 320, 640, 1280)  # pixels; pictures fit into a square of this side
_CACHED_PICTURES, _CACHED_HEATMAPS = 512, 256


class ImageViews:
    """Pictures of a dataset's images and class maps over them, as JPEG files.

    Args:
        dataset: the dataset.
        run: a run or model folder, or an ONNX file with maps, whose class maps are shown; None for no maps.
    """

    def __init__(self, dataset: Dataset, run: Path | None = None) -> None:
        self._dataset, self._root = dataset, open_root(dataset.root)
        self._run, self._model_lock = run, threading.Lock()
        self.picture = lru_cache(_CACHED_PICTURES)(self._picture)
        self.heatmap = lru_cache(_CACHED_HEATMAPS)(self._heatmap)

    @property
    def has_maps(self) -> bool:
        """Whether there is a model for class maps."""
        return self._run is not None

    def _picture(self, image: str, side: int) -> bytes:
        """The image, scaled to fit into a square of `side` pixels."""
        return encode_jpeg(self._thumbnail(image, side))

    def _heatmap(self, image: str, label: str, side: int) -> bytes:
        """The image under the class map of a label."""
        if self._run is None:
            raise TagfillError("There is no model for class maps; start the review with --run.")
        with self._model_lock:  # one at a time: the model is shared, and two would compete for the same cores
            values = self._map(image, label)
        return encode_jpeg(overlay_class_map(self._thumbnail(image, side), values))

    def _thumbnail(self, image: str, side: int) -> Image.Image:
        if side not in SIDES:
            raise TagfillError(f"Pictures have a side of {', '.join(map(str, SIDES))} pixels, not {side}.")
        return thumbnail(self._root, image, side)

    def _map(self, image: str, label: str) -> NDArray[np.floating]:
        maps = score_image(self._predictor, self._root, image, maps=True).maps
        assert maps is not None
        class_map: NDArray[np.floating] = maps[0, self._dataset.classes.index(label)]
        return class_map

    @cached_property
    def _predictor(self) -> Predictor:
        """The model, opened with the first heatmap; a review without heatmaps does not import torch."""
        assert self._run is not None
        predictor = open_predictor(self._run)
        predictor.check_maps()
        if predictor.classes != self._dataset.classes:
            raise TagfillError(
                f"{self._run} has other classes than the dataset {self._dataset.name}; give another model to --run."
            )
        return predictor


_FILES = {"/": "review.html", "/review.css": "review.css", "/review.js": "review.js", "/queue.js": "queue.js"}
_MAX_ITEMS = 500  # decisions in a request, suggestions in a response

ReviewerName = Annotated[str, Field(max_length=100)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DecisionBatch(_Request):
    """Decisions of one reviewer."""

    who: ReviewerName = ""
    decisions: Annotated[list[Decision], Field(max_length=_MAX_ITEMS)]


class UndoRequest(_Request):
    """A decision, or a group of decisions, to undo."""

    id: Id
    undoes: Id
    who: ReviewerName = ""


class BulkDecision(_Request):
    """One decision about all open suggestions of a class from a score upward."""

    id: Id
    label: str
    kind: Literal["missing", "wrong"]
    minimum: Annotated[float, Field(ge=0, le=1)]
    text: str = ""
    present: StrictBool
    seconds: Seconds = 0.0
    who: ReviewerName = ""


def create_app(session: ReviewSession, views: ImageViews, reviewer: str) -> FastAPI:
    """The web application of a review.

    Args:
        session: takes the decisions.
        views: makes the pictures.
        reviewer: default reviewer name.
    """
    app = FastAPI(title="Tagfill review", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(TagfillError)
    async def report_error(request: Request, error: TagfillError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=507 if isinstance(error, NotWrittenError) else 409)

    add_page(app, Path(__file__).parent / "page", _FILES)

    def is_open(one: Suggestion) -> bool:
        return session.status(one.place).decision is None

    @app.get("/api/session")
    def describe_session() -> dict[str, Any]:
        total = Counter((one.label, one.kind) for one in session.suggestions)
        decided = Counter((one.label, one.kind) for one in session.suggestions if not is_open(one))
        labels = [
            {"label": label, "kind": kind, "total": count, "decided": decided[label, kind]}
            for (label, kind), count in total.items()
        ]
        return {
            "dataset": session.dataset.name,
            "reviewer": reviewer,
            "labels": labels,
            "heatmaps": views.has_maps,
            "newest": len(session.log.entries),
        }

    @app.get("/api/suggestions")
    def list_suggestions(
        label: str | None = None,
        kind: str | None = None,
        minimum: float = 0.0,
        text: str = "",
        state: Literal["open", "all"] = "open",
        after: int = -1,
        limit: Annotated[int, Query(ge=0, le=_MAX_ITEMS)] = 60,
    ) -> dict[str, Any]:
        selected = [one for one in session.select(label, kind, minimum, text) if state == "all" or is_open(one)]
        later = [one for one in selected if one.place > after]
        items = [_suggestion_json(session, one) for one in later[:limit]]
        return {"total": len(selected), "left": len(later), "items": items}

    @app.get("/api/image/{place}")
    def list_image(place: int) -> dict[str, Any]:
        name = _find(session, place).image
        return {
            "image": name,
            "items": [_suggestion_json(session, one) for one in session.suggestions if one.image == name],
        }

    @app.get("/picture/{place}")
    def picture(place: int, side: int = SIDES[1]) -> Response:
        return _jpeg(views.picture(_find(session, place).image, side))

    @app.get("/heatmap/{place}")
    def heatmap(place: int, side: int = SIDES[1]) -> Response:
        one = _find(session, place)
        return _jpeg(views.heatmap(one.image, one.label, side))

    @app.post("/api/decisions")
    def decide(request: DecisionBatch) -> dict[str, Any]:
        return _confirm(session, session.decide(request.decisions, request.who or reviewer))

    @app.post("/api/undo")
    def undo(request: UndoRequest) -> dict[str, Any]:
        return _confirm(session, session.undo(request.undoes, request.id, request.who or reviewer))

    @app.post("/api/bulk")
    @app.post("/api/stroke")  # the address in version 0.1; a browser may still have unsent requests to it
    def decide_bulk(request: BulkDecision) -> dict[str, Any]:
        selected = session.select(request.label, request.kind, request.minimum, request.text)
        statuses = [(one, session.status(one.place)) for one in selected]
        pending = [(one, now.number) for one, now in statuses if now.decision is None]
        seconds = request.seconds / max(1, len(pending))
        decisions = [
            Decision(f"{request.id}/{one.place}", one.place, one.image, one.label, request.present, seconds, number)
            for one, number in pending
        ]
        return _confirm(session, session.decide(decisions, request.who or reviewer, group=request.id))

    @app.get("/api/changes")
    def changes(since: int = 0) -> dict[str, Any]:
        newest, statuses = session.changes(since)
        return {"newest": newest, "statuses": [_status_json(one) for one in statuses]}

    return app


def serve(
    session: ReviewSession, listening: socket.socket, *, run: Path | None, reviewer: str, token: str | None
) -> None:
    """Serve the page until interrupted, then finish the open requests.

    Args:
        session: the review.
        listening: from `tagfill.inference.http.listen`.
        run: a run or model folder whose class maps are shown.
        reviewer: default reviewer name.
        token: secret that requests must show; required unless only this machine can reach the server.
    """
    http.run_server(create_app(session, ImageViews(session.dataset, run), reviewer), listening, token, grace=5.0)


def _find(session: ReviewSession, place: int) -> Suggestion:
    if not 0 <= place < len(session.suggestions):
        raise HTTPException(404, f"There is no suggestion {place}.")
    return session.suggestions[place]


def _suggestion_json(session: ReviewSession, one: Suggestion) -> dict[str, Any]:
    return {
        "image": one.image,
        "label": one.label,
        "kind": one.kind,
        "annotated": one.annotated,
        "probability": round(one.probability, 4),
        **_status_json(session.status(one.place)),
    }


def _status_json(status: PairStatus) -> dict[str, Any]:
    made = status.decision
    decision = None if made is None else {"id": made.id, "present": made.present, "who": made.who}
    return {"place": status.place, "number": status.number, "decision": decision, "refused": status.refused}


def _confirm(session: ReviewSession, statuses: list[PairStatus]) -> dict[str, Any]:
    return {"newest": len(session.log.entries), "statuses": [_status_json(one) for one in statuses]}


def _jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
