"""The server behind the review page.

It serves three files, pictures by the place of a suggestion (never by a path), and a small interface in JSON. All
answers that confirm a decision are given after it is on disk.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from tagfill.curation.decisions import NotWrittenError
from tagfill.curation.desk import Desk, Standing, Suggestion, Verdict
from tagfill.curation.looking import SIDES, Looking
from tagfill.errors import TagfillError
from tagfill.inference.serving.pages import add_page

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


class Stroke(_Strict):
    """Everything of a class above a score, decided at one stroke."""

    id: Id
    label: str
    kind: Literal["missing", "wrong"]
    minimum: Annotated[float, Field(ge=0, le=1)]
    text: str = ""
    present: StrictBool
    seconds: Seconds = 0.0
    who: Who = ""


def application(desk: Desk, looking: Looking, reviewer: str) -> FastAPI:
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
    def stroke(sent: Stroke) -> dict[str, Any]:
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


def _suggestion(desk: Desk, place: int) -> Suggestion:
    if not 0 <= place < len(desk.suggestions):
        raise HTTPException(404, f"There is no suggestion {place}.")
    return desk.suggestions[place]


def _shown(desk: Desk, one: Suggestion) -> dict[str, Any]:
    return {
        "image": one.image,
        "label": one.label,
        "kind": one.kind,
        "annotated": one.annotated,
        "probability": round(one.probability, 4),
        **_standing(desk.standing(one.place)),
    }


def _standing(now: Standing) -> dict[str, Any]:
    decision = now.decision
    told = None if decision is None else {"id": decision.id, "present": decision.present, "who": decision.who}
    return {"place": now.place, "number": now.number, "decision": told, "refused": now.refused}


def _told(desk: Desk, standings: list[Standing]) -> dict[str, Any]:
    return {"newest": len(desk.log.entries), "standings": [_standing(one) for one in standings]}


def _cached(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
