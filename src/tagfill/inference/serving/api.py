"""The HTTP interface of a model.

| address | what it gives |
|---|---|
| `POST /predict` | labels and scores of one image or many |
| `GET /classes` | names and thresholds |
| `GET /health` | whether it works, and which model |
| `GET /metrics` | counts for Prometheus |
| `GET /`, `/openapi.json` | a page to try it, and its description for programs |
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

from tagfill.errors import TagfillError
from tagfill.inference.deciding import chosen_thresholds
from tagfill.inference.predictor import Predictor
from tagfill.inference.serving.answering import Answering, Asked
from tagfill.inference.serving.batching import Batcher, FullError
from tagfill.inference.serving.bodies import PLAIN, RefusedError, uploads
from tagfill.inference.serving.counting import CONTENT_TYPE, Counts
from tagfill.inference.serving.limits import Limits
from tagfill.inference.serving.pages import add_page

_RETRY_SECONDS = "1"
_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"images": {"type": "array", "items": {"type": "string", "format": "binary"}}},
            }
        },
        **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in PLAIN},
    },
}


def application(
    predictor: Predictor, *, limits: Limits | None = None, batch_size: int = 16, wait: float = 0.004
) -> FastAPI:
    """The application of a model.

    Args:
        predictor: the model.
        limits: of requests.
        batch_size: images that the model looks at together at most; 1 switches batching off.
        wait: seconds to wait for a batch to fill.
    """
    limits, counts = limits or Limits(), Counts()
    batcher = Batcher(predictor, size=batch_size, wait=wait, room=limits.queue, watch=counts.batches.observe)
    decoders = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="decoding")
    answering = Answering(predictor, batcher, decoders, limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close)
        decoders.shutdown()

    app = FastAPI(
        title="Tagfill",
        description="Labels of images, by a model that learned from partly labelled ones.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )

    @app.post("/predict", openapi_extra={"requestBody": _BODY})
    async def predict(
        request: Request,
        threshold: Annotated[float | None, Query(ge=0, le=1, description="In place of the model's own.")] = None,
        top_k: Annotated[int | None, Query(ge=1, description="Only the likeliest labels of each image.")] = None,
        heatmaps: Annotated[bool, Query(description="Pictures of where the present labels are.")] = False,
    ) -> Response:
        """What each image shows."""
        begin = time.perf_counter()
        status, told, headers = await _answered(request, Asked(threshold, top_k, heatmaps))
        counts.requests.labels(status=str(status)).inc()
        counts.seconds.observe(time.perf_counter() - begin)
        return JSONResponse(told, status_code=status, headers=headers)

    async def _answered(request: Request, asked: Asked) -> tuple[int, dict[str, Any], dict[str, str]]:
        try:
            if asked.heatmaps:
                predictor.check_maps()
            images = await uploads(request, limits)
            if len(images) > limits.images:
                raise RefusedError(413, f"more than {limits.images} images came at once")
            async with asyncio.timeout(limits.answer_seconds):
                predictions = await answering.answer(images, asked)
        except RefusedError as error:
            # whatever of the body is left must not be read
            return error.status, {"error": f"{error.reason}."}, {"connection": "close"}
        except TagfillError as error:
            return 400, {"error": str(error)}, {}
        except FullError:
            return 503, {"error": "too many images wait already; try again soon."}, {"retry-after": _RETRY_SECONDS}
        except TimeoutError:
            return 504, {"error": f"there was no answer within {limits.answer_seconds:g} seconds."}, {}
        counts.images.inc(len(images))
        return 200, {"model": predictor.identity, "predictions": predictions}, {}

    @app.get("/classes")
    def classes() -> dict[str, Any]:
        """Names of the classes, and the probability from which each is called present."""
        thresholds = chosen_thresholds(predictor.classes, predictor.thresholds)
        return {"classes": [{"name": n, "threshold": t} for n, t in zip(predictor.classes, thresholds, strict=True)]}

    @app.get("/health")
    def health() -> dict[str, Any]:
        """Whether it works."""
        return {"status": "ok", "model": predictor.identity, "waiting": len(batcher)}

    @app.get("/metrics")
    def metrics() -> Response:
        """Counts for Prometheus."""
        counts.waiting.set(len(batcher))
        return Response(counts.text(), media_type=CONTENT_TYPE)

    add_page(app, Path(__file__).parent / "page", {"/": "try.html", "/try.js": "try.js", "/try.css": "try.css"})
    return app
