"""What a reviewer sees: images of the dataset in a given size, and class maps laid over them.

The server behind the review page.

It serves three files, pictures by the place of a suggestion (never by a path), and a small interface in JSON. All
answers that confirm a decision are given after it is on disk.

A review from start to end: open the log, catch up on rows, serve the page, and fold the decisions in.
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
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from tagfill.curation.decisions import Log, NotWrittenError, apply_decisions
from tagfill.curation.review import PairStatus, ReviewSession, Suggestion, Verdict
from tagfill.curation.suggestions import Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import encode_jpeg, load_eval_view, open_root, overlay_class_map, thumbnail
from tagfill.inference import Predictor, http, open_predictor
from tagfill.inference.http import add_page
from tagfill.io import exclusive_lock

SIDES = (160, 320, 640, 1280)  # of the square that an image is fitted into
_KEPT_PICTURES, _KEPT_MAPS = 512, 256


class ImageViews:
    """Pictures of a dataset's images, as JPEG files.

    Args:
        dataset: with the images.
        run: a run or model folder, or an ONNX file with maps, whose class maps are shown; None shows none.
    """

    def __init__(self, dataset: Dataset, run: Path | None = None) -> None:
        self._dataset, self._root = dataset, open_root(dataset.root)
        self._run, self._model_lock = run, threading.Lock()
        self.picture = lru_cache(_KEPT_PICTURES)(self._picture)
        self.heatmap = lru_cache(_KEPT_MAPS)(self._heatmap)

    @property
    def has_maps(self) -> bool:
        """Whether there is a model to ask for class maps."""
        return self._run is not None

    def _picture(self, image: str, side: int) -> bytes:
        """An image, no larger than a square of `side` pixels."""
        return encode_jpeg(self._fitted(image, side))

    def _heatmap(self, image: str, label: str, side: int) -> bytes:
        """The class map of a label over the image."""
        if self._run is None:
            raise TagfillError("There is no model to show class maps of; start the review with --run.")
        with self._model_lock:  # one at a time: the model is shared, and a second would only take its core
            values = self._map(image, label)
        return encode_jpeg(overlay_class_map(self._fitted(image, side), values))

    def _fitted(self, image: str, side: int) -> Image.Image:
        if side not in SIDES:
            raise TagfillError(f"Pictures come in the sizes {', '.join(map(str, SIDES))}, not {side}.")
        return thumbnail(self._root, image, side)

    def _map(self, image: str, label: str) -> NDArray[np.floating]:
        pixels, _ = load_eval_view(self._root, image, self._predictor.size)
        maps = self._predictor(pixels[None], maps=True).maps
        assert maps is not None
        chosen: NDArray[np.floating] = maps[0, self._dataset.classes.index(label)]
        return chosen

    @cached_property
    def _predictor(self) -> Predictor:
        """The model, opened when a map is first asked for; a review without maps does without torch."""
        assert self._run is not None
        predictor = open_predictor(self._run)
        predictor.check_maps()
        if predictor.classes != self._dataset.classes:
            raise TagfillError(
                f"The model in {self._run} was trained on other classes than dataset {self._dataset.name} has."
            )
        return predictor


_FILES = {"/": "review.html", "/review.css": "review.css", "/review.js": "review.js", "/queue.js": "queue.js"}
_MOST = 500  # decisions in one request, suggestions in one answer

Id = Annotated[str, Field(min_length=1, max_length=100)]
Who = Annotated[str, Field(max_length=100)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Sent(_Strict):
    """A verdict as the page sends it."""

    id: Id
    place: Annotated[int, Field(ge=0)]
    image: str
    label: str
    present: StrictBool | None
    seconds: Seconds = 0.0
    seen: Annotated[int, Field(ge=0)] = 0


class Verdicts(_Strict):
    """Verdicts of one reviewer."""

    who: Who = ""
    decisions: Annotated[list[Sent], Field(max_length=_MOST)]


class Undoing(_Strict):
    """A decision, or a group of them, to take back."""

    id: Id
    undoes: Id
    who: Who = ""


class BulkDecision(_Strict):
    """Everything of a class above a score, decided at one stroke."""

    id: Id
    label: str
    kind: Literal["missing", "wrong"]
    minimum: Annotated[float, Field(ge=0, le=1)]
    text: str = ""
    present: StrictBool
    seconds: Seconds = 0.0
    who: Who = ""


def application(desk: ReviewSession, looking: ImageViews, reviewer: str) -> FastAPI:
    """The application of a review.

    Args:
        desk: where decisions are made.
        looking: what there is to see.
        reviewer: the name of whoever gives none.
    """
    app = FastAPI(title="Tagfill review", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(TagfillError)
    async def refused(request: Request, error: TagfillError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=507 if isinstance(error, NotWrittenError) else 409)

    add_page(app, Path(__file__).parent / "page", _FILES)

    @app.get("/api/session")
    def session() -> dict[str, Any]:
        total = Counter((one.label, one.kind) for one in desk.suggestions)
        decided = Counter(
            (one.label, one.kind) for one in desk.suggestions if desk.standing(one.place).decision is not None
        )
        labels = [
            {"label": label, "kind": kind, "total": count, "decided": decided[label, kind]}
            for (label, kind), count in total.items()
        ]
        return {
            "dataset": desk.dataset.name,
            "reviewer": reviewer,
            "labels": labels,
            "heatmaps": looking.has_maps,
            "newest": len(desk.log.entries),
        }

    @app.get("/api/suggestions")
    def suggestions(
        label: str | None = None,
        kind: str | None = None,
        minimum: float = 0.0,
        text: str = "",
        state: Literal["open", "all"] = "open",
        after: int = -1,
        limit: Annotated[int, Query(ge=0, le=_MOST)] = 60,
    ) -> dict[str, Any]:
        chosen = [
            one
            for one in desk.selected(label, kind, minimum, text)
            if state == "all" or desk.standing(one.place).decision is None
        ]
        later = [one for one in chosen if one.place > after]
        return {"total": len(chosen), "left": len(later), "items": [_shown(desk, one) for one in later[:limit]]}

    @app.get("/api/image/{place}")
    def image(place: int) -> dict[str, Any]:
        name = _suggestion(desk, place).image
        return {"image": name, "items": [_shown(desk, one) for one in desk.suggestions if one.image == name]}

    @app.get("/picture/{place}")
    def picture(place: int, side: int = SIDES[1]) -> Response:
        return _cached(looking.picture(_suggestion(desk, place).image, side))

    @app.get("/heatmap/{place}")
    def heatmap(place: int, side: int = SIDES[1]) -> Response:
        one = _suggestion(desk, place)
        return _cached(looking.heatmap(one.image, one.label, side))

    @app.post("/api/decisions")
    def decide(sent: Verdicts) -> dict[str, Any]:
        verdicts = [Verdict(**one.model_dump()) for one in sent.decisions]
        return _told(desk, desk.decide(verdicts, sent.who or reviewer))

    @app.post("/api/undo")
    def undo(sent: Undoing) -> dict[str, Any]:
        return _told(desk, desk.undo(sent.undoes, sent.id, sent.who or reviewer))

    @app.post("/api/stroke")
    def stroke(sent: BulkDecision) -> dict[str, Any]:
        chosen = desk.selected(sent.label, sent.kind, sent.minimum, sent.text)
        standings = [(one, desk.standing(one.place)) for one in chosen]
        open_ones = [(one, now.number) for one, now in standings if now.decision is None]
        share = sent.seconds / max(1, len(open_ones))
        verdicts = [
            Verdict(f"{sent.id}/{one.place}", one.place, one.image, one.label, sent.present, share, number)
            for one, number in open_ones
        ]
        return _told(desk, desk.decide(verdicts, sent.who or reviewer, group=sent.id))

    @app.get("/api/changes")
    def changes(since: int = 0) -> dict[str, Any]:
        newest, standings = desk.changes(since)
        return {"newest": newest, "standings": [_standing(one) for one in standings]}

    return app


def _suggestion(desk: ReviewSession, place: int) -> Suggestion:
    if not 0 <= place < len(desk.suggestions):
        raise HTTPException(404, f"There is no suggestion {place}.")
    return desk.suggestions[place]


def _shown(desk: ReviewSession, one: Suggestion) -> dict[str, Any]:
    return {
        "image": one.image,
        "label": one.label,
        "kind": one.kind,
        "annotated": one.annotated,
        "probability": round(one.probability, 4),
        **_standing(desk.standing(one.place)),
    }


def _standing(now: PairStatus) -> dict[str, Any]:
    decision = now.decision
    told = None if decision is None else {"id": decision.id, "present": decision.present, "who": decision.who}
    return {"place": now.place, "number": now.number, "decision": told, "refused": now.refused}


def _told(desk: ReviewSession, standings: list[PairStatus]) -> dict[str, Any]:
    return {"newest": len(desk.log.entries), "standings": [_standing(one) for one in standings]}


def _cached(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


FOLDER, LOG = "review", "decisions.jsonl"


@contextmanager
def open_session(dataset: Dataset, suggestions: Suggestions) -> Iterator[ReviewSession]:
    """Sit down to review a dataset; decisions that were made before and did not become rows yet do so now.

    Args:
        dataset: opened from a folder, which keeps the log in `review/decisions.jsonl`.
        suggestions: about it.

    Raises:
        TagfillError: if somebody else has this dataset's log open.
    """
    if dataset.folder is None:
        raise TagfillError("A review keeps its log in the dataset's folder; save the dataset first.")
    folder = dataset.folder / FOLDER
    with exclusive_lock(folder, "is reviewing"), Log(folder / LOG) as log:
        desk = ReviewSession(suggestions, log, dataset)
        apply_decisions(dataset, log.entries, desk.live())
        try:
            yield desk
        finally:
            apply_decisions(dataset, log.entries, desk.live())


def apply(dataset: Dataset) -> int:
    """Make rows of the decisions that a killed review left in its log.

    Returns:
        The number of rows that were added or taken away.
    """
    if dataset.folder is None or not (dataset.folder / FOLDER / LOG).exists():
        return 0
    nothing = Suggestions.empty()
    with exclusive_lock(dataset.folder / FOLDER, "is reviewing"), Log(dataset.folder / FOLDER / LOG) as log:
        return apply_decisions(dataset, log.entries, ReviewSession(nothing, log, dataset).live())


def serve(desk: ReviewSession, listening: socket.socket, *, run: Path | None, reviewer: str, token: str | None) -> None:
    """Serve the page until interrupted, and finish what is in flight.

    Args:
        desk: of the review.
        listening: from `tagfill.inference.http.listen`.
        run: a run or model folder to show class maps of.
        reviewer: the name of whoever gives none.
        token: that requests must show; required unless only this machine can reach the server.
    """
    try:
        pass
    except ModuleNotFoundError as error:
        raise TagfillError(
            f"The review page needs {error.name}; install it with: pip install 'tagfill[serve]'."
        ) from None
    http.run_server(application(desk, ImageViews(desk.dataset, run), reviewer), listening, token, grace=5.0)
