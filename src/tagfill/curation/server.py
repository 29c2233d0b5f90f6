"""The server of the review page.

It serves the files of the page, pictures by the row of the image in the dataset (never by a path), and a small JSON
interface. A response confirms a decision only after the decision is on disk, and gives the reason for each one that was
not saved.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from tagfill.curation.entry_log import NotWrittenError
from tagfill.curation.review import (
    BulkDecision,
    Decision,
    Id,
    PairStatus,
    ReviewerName,
    ReviewSession,
    Seconds,
    Suggestion,
    Tag,
    fingerprint,
)
from tagfill.dataset import Dataset
from tagfill.errors import ImageLimitError, TagfillError
from tagfill.images import encode_jpeg, open_root, overlay_class_map, stoppable, thumbnail
from tagfill.inference import Predictor, http, open_predictor
from tagfill.inference.http import add_page
from tagfill.inference.pipeline import score_image
from tagfill.inference.predictors import Outputs
from tagfill.probabilities import probabilities

SIDES = (160, 320, 640, 1280)  # pixels; pictures fit into a square of this side
_CACHED_PICTURES, _CACHED_HEATMAPS = 512, 256
_DECODED_AT_ONCE = 2  # pictures; more would only need more memory


class ImageViews:
    """What a model and the pictures show: JPEG files of images and class maps, and probabilities of classes.

    Args:
        dataset: the dataset.
        run: a run or model folder, or an ONNX file, whose probabilities and class maps are shown; None for none.
    """

    def __init__(self, dataset: Dataset, run: Path | None = None) -> None:
        self._dataset, self._root = dataset, open_root(dataset.root)
        self._run, self._model_lock = run, threading.Lock()
        self._decoding, self._closed = threading.Semaphore(_DECODED_AT_ONCE), threading.Event()
        self._refused: dict[tuple[str, int | None], ImageLimitError] = {}
        self.picture = lru_cache(_CACHED_PICTURES)(self._picture)
        self.heatmap = lru_cache(_CACHED_HEATMAPS)(self._heatmap)
        self.probabilities = lru_cache(_CACHED_PICTURES)(self._probabilities)

    @property
    def has_model(self) -> bool:
        """Whether there is a model for class maps and probabilities."""
        return self._run is not None

    def _probabilities(self, image: str) -> list[float]:
        """The probability of each class; needs a model."""
        logits = self._score(image, maps=False).logits
        values: list[float] = probabilities(logits, self._predictor.calibration)[0].tolist()
        return values

    def _picture(self, image: str, side: int) -> bytes:
        """The image, scaled to fit into a square of `side` pixels."""
        return encode_jpeg(self._thumbnail(image, side))

    def _heatmap(self, image: str, label: str, side: int) -> bytes:
        """The image under the class map of a label."""
        if self._run is None:
            raise TagfillError("There is no model for class maps; start the review with --run.")
        maps = self._score(image, maps=True).maps
        assert maps is not None
        class_map: NDArray[np.floating] = maps[0, self._dataset.classes.index(label)]
        return encode_jpeg(overlay_class_map(self._thumbnail(image, side), class_map))

    def _score(self, image: str, *, maps: bool) -> Outputs:
        """What the model says, one image at a time: two would compete for the same cores."""
        with self._model_lock, self._unless_refused(image, None), stoppable.for_request(self._closed.is_set):
            if maps:
                self._predictor.check_maps()
            return score_image(self._predictor, self._root, image, maps=maps)

    def _thumbnail(self, image: str, side: int) -> Image.Image:
        if side not in SIDES:
            raise TagfillError(f"Pictures have a side of {', '.join(map(str, SIDES))} pixels, not {side}.")
        with self._decoding, self._unless_refused(image, side), stoppable.for_request(self._closed.is_set):
            return thumbnail(self._root, image, side)

    @contextmanager
    def _unless_refused(self, image: str, side: int | None) -> Iterator[None]:
        """Raise the error of an earlier attempt to decode an image at this size: another one would take as long."""
        if (image, side) in self._refused:
            raise self._refused[image, side]
        try:
            yield
        except ImageLimitError as error:
            self._refused[image, side] = error
            raise

    def close(self) -> None:
        """Stop decoding."""
        self._closed.set()

    @cached_property
    def _predictor(self) -> Predictor:
        """The model, opened when it is first used; a review without a model does not import torch."""
        assert self._run is not None
        predictor = open_predictor(self._run)
        if predictor.classes != self._dataset.classes:
            raise TagfillError(
                f"{self._run} has other classes than the dataset {self._dataset.name}; give another model to --run."
            )
        return predictor


_SCRIPTS = ("review.css", "review.js", "photos.js", "page.js", "queue.js")
_MAX_ITEMS = 500  # decisions in a request, suggestions in a response


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


class FinishRequest(_Request):
    """A photo whose unknown classes are all absent."""

    id: Id
    image: str
    seconds: Seconds = 0.0
    who: ReviewerName = ""


def create_app(
    session: ReviewSession, views: ImageViews, reviewer: str, *, task: Literal["review", "audit"] = "review"
) -> FastAPI:
    """The web application of a review.

    Args:
        session: takes the decisions; if it has photos, the page asks for all tags of each.
        views: makes the pictures.
        reviewer: default reviewer name.
        task: an `audit` asks one question at a time, in the order of the suggestions, and shows no probability.
    """
    app = http.json_app("Tagfill review")

    @app.exception_handler(TagfillError)
    async def report_error(request: Request, error: TagfillError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=507 if isinstance(error, NotWrittenError) else 409)

    files = {"/": "photos.html" if session.photos else "review.html"}
    add_page(app, Path(__file__).parent / "page", files | {f"/{name}": name for name in _SCRIPTS})

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
            "task": task,
            "classes": session.dataset.classes,
            "labels": labels,
            "heatmaps": views.has_model,
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
        if not 0 <= place < len(session.suggestions):
            raise HTTPException(404, f"There is no suggestion {place}.")
        one = session.suggestions[place]
        shown = [one] if task == "audit" else [other for other in session.suggestions if other.image == one.image]
        return {
            "image": one.image,
            "items": [_suggestion_json(session, other) for other in shown],
            "tags": [_tag_json(tag) for tag in session.tags(one.image)],
        }

    @app.get("/api/photos")
    def list_photos() -> dict[str, Any]:
        return {"photos": [{"image": name, "finished": session.is_finished(name)} for name in session.photos]}

    @app.get("/api/photos/{number}")
    def show_photo(number: int) -> dict[str, Any]:
        if not 0 <= number < len(session.photos):
            raise HTTPException(404, f"There is no photo {number}.")
        name = session.photos[number]
        scores, shown = _ranking(session, views, name)
        tags = [
            {**_tag_json(tag), "probability": round(scores[code], 4) if shown else None}
            for code, tag in enumerate(session.tags(name))
        ]
        order = sorted(range(len(tags)), key=lambda code: -scores[code])
        return {"image": name, "row": session.row_of_image[name], "tags": [tags[code] for code in order]}

    @app.post("/api/finish")
    def finish(request: FinishRequest) -> dict[str, Any]:
        statuses = session.finish(request.image, request.id, request.who or reviewer, request.seconds)
        return _confirm(session, statuses)

    @app.get("/picture/{row}")
    def picture(row: int, side: int = SIDES[1]) -> Response:
        return _jpeg(views.picture(_image_of_row(session, row), side))

    @app.get("/heatmap/{row}/{label}")
    def heatmap(row: int, label: int, side: int = SIDES[1]) -> Response:
        image = _image_of_row(session, row)
        if not 0 <= label < len(session.dataset.classes):
            raise HTTPException(404, f"There is no class {label}.")
        return _jpeg(views.heatmap(image, session.dataset.classes[label], side))

    @app.post("/api/decisions")
    def decide(request: DecisionBatch) -> dict[str, Any]:
        statuses = session.decide(request.decisions, request.who or reviewer)
        answer = _confirm(session, statuses)
        for one, decision in zip(answer["statuses"], request.decisions, strict=True):
            one["id"] = decision.id
        return answer

    @app.post("/api/undo")
    def undo(request: UndoRequest) -> dict[str, Any]:
        return _confirm(session, session.undo(request.undoes, request.id, request.who or reviewer))

    @app.get("/api/bulk")
    def preview_bulk(
        label: str, kind: Literal["missing", "wrong"], minimum: Annotated[float, Query(ge=0, le=1)], text: str = ""
    ) -> dict[str, Any]:
        pending = session.select_open(label, kind, minimum, text)
        return {"count": len(pending), "fingerprint": fingerprint(pending)}

    @app.post("/api/bulk")
    @app.post("/api/stroke")  # the address in version 0.1; a browser may still have unsent requests to it
    def decide_bulk(request: BulkDecision) -> dict[str, Any]:
        return _confirm(session, session.decide_bulk(request, request.who or reviewer))

    @app.get("/api/changes")
    def changes(since: int = 0) -> dict[str, Any]:
        newest, statuses = session.changes(since)
        return {"newest": newest, "statuses": [_status_json(one) for one in statuses]}

    return app


def serve(
    session: ReviewSession,
    listening: socket.socket,
    *,
    run: Path | None,
    reviewer: str,
    token: str | None,
    task: Literal["review", "audit"] = "review",
) -> None:
    """Serve the page until interrupted, then finish the open requests.

    Args:
        session: the review.
        listening: from `tagfill.inference.http.listen`.
        run: a run or model folder whose class maps are shown.
        reviewer: default reviewer name.
        token: secret that requests must show; required unless only this machine can reach the server.
        task: as in `create_app`.
    """
    views = ImageViews(session.dataset, run)
    http.run_server(create_app(session, views, reviewer, task=task), listening, token, on_stop=views.close)


def _image_of_row(session: ReviewSession, row: int) -> str:
    if not 0 <= row < len(session.dataset):
        raise HTTPException(404, f"There is no image {row}.")
    name: str = session.dataset.images["image"][row].as_py()
    return name


def _ranking(session: ReviewSession, views: ImageViews, image: str) -> tuple[list[float], bool]:
    """A score of each class for the order in which it is asked, and whether it is a probability.

    Scores are those of the model, else of the suggestions, else the number of images that are known to show the class.
    """
    if views.has_model:
        return views.probabilities(image), True
    if session.suggestions:
        known = {one.label: one.probability for one in session.suggestions if one.image == image}
        return [known.get(label, 0.0) for label in session.dataset.classes], True
    return session.dataset.labels().positives.tolist(), False


def _suggestion_json(session: ReviewSession, one: Suggestion) -> dict[str, Any]:
    return {
        "image": one.image,
        "label": one.label,
        "kind": one.kind,
        "annotated": one.annotated,
        "probability": round(one.probability, 4),
        "row": session.row_of_image[one.image],
        "class": session.class_of_label[one.label],
        **_status_json(session.status(one.place)),
    }


def _tag_json(tag: Tag) -> dict[str, Any]:
    return {"given": tag.given, "state": tag.state, **_status_json(tag.status)}


def _status_json(status: PairStatus) -> dict[str, Any]:
    made = status.decision
    decision = None if made is None else {"id": made.id, "present": made.present, "who": made.who}
    return {
        "image": status.image,
        "label": status.label,
        "place": status.place,
        "number": status.number,
        "decision": decision,
        "refused": status.refused,
    }


def _confirm(session: ReviewSession, statuses: list[PairStatus]) -> dict[str, Any]:
    return {"newest": len(session.log.entries), "statuses": [_status_json(one) for one in statuses]}


def _jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
