"""A trained model behind HTTP.

| address | answer |
|---|---|
| `POST /predict` | labels and scores of one or more images |
| `GET /classes` | class names and thresholds |
| `GET /health` | whether the server works, and with which model |
| `GET /metrics` | counters for Prometheus |
| `GET /`, `/openapi.json` | a page to try it, and the API description |

A request passes three stages: its body is read within limits (`read_uploads`), its images are decoded, those with the
least work first (`DecodingQueue`), and the model scores them in micro-batches together with the images of other
requests (`Batcher`). A request whose client has gone, or that takes too long, is given up at any stage, and what it
still waits for is not computed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray
from PIL import Image
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from tagfill.errors import ImageError, ImageLimitError, TagfillError
from tagfill.images import encode_jpeg, load_eval_view, overlay_class_map, stoppable, thumbnail
from tagfill.images.decode import open_header
from tagfill.images.structure import measure
from tagfill.inference.http import BodyLimits, RequestError, add_page
from tagfill.inference.pipeline import Threshold, decide, resolve_thresholds
from tagfill.inference.predictors import Outputs, Predictor
from tagfill.inference.scheduling import Batcher, DecodingQueue, QueueFullError

_IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp")
_FIELD_BYTES = 1024  # of a form field that is not a file
_HEATMAP_SIDE = 320  # pixels, the longer side
_RETRY_SECONDS = "1"
_STOPPING = "the server is stopping"
_GIVEN_UP = 499  # the status of a request whose client has gone, in the counters only
_BODIES_IN_FLIGHT = 4  # of the largest size
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"images": {"type": "array", "items": {"type": "string", "format": "binary"}}},
            }
        },
        **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in _IMAGE_TYPES},
    },
}


@dataclass(frozen=True)
class Limits:
    """Limits of requests, with the status of a request that exceeds them; checked before any image is decoded.

    Images also have the limits of `tagfill.images`: 64 megapixels, scans, segments and computing time (413).

    Attributes:
        body: bytes per request (413); four times as many may be in flight (503).
        images: images per request (413).
        pixels: pixels per image, from its header (413).
        body_seconds: time for the whole body to arrive (408).
        answer_seconds: time for the answer (504).
        queue: images that may wait for the model, of all requests together (503).
    """

    body: int = 32 * 2**20
    images: int = 32
    pixels: int = 40_000_000
    body_seconds: float = 20.0
    answer_seconds: float = 60.0
    queue: int = 256

    @property
    def bodies(self) -> BodyLimits:
        """The limits of bodies, for `tagfill.inference.http.run_server`."""
        return BodyLimits(self.body, self.body_seconds, _BODIES_IN_FLIGHT * self.body)


def create_app(
    predictor: Predictor, *, limits: Limits | None = None, batch_size: int = 16, wait: float = 0.004
) -> FastAPI:
    """The web application of a model.

    Args:
        predictor: the model.
        limits: of requests.
        batch_size: most images per forward pass; 1 switches batching off.
        wait: seconds to wait for a batch to fill.

    Returns:
        The application; `state.stop` is for `tagfill.inference.http.run_server`.
    """
    limits, metrics = limits or Limits(), Metrics()
    service = PredictionService(predictor, limits, batch_size=batch_size, wait=wait, on_batch=metrics.batches.observe)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="Tagfill",
        description="Predicts the labels of images with a model that was trained on partly labeled images.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.stop = service.stop

    @app.post("/predict", openapi_extra={"requestBody": _BODY})
    async def predict(
        request: Request,
        threshold: Annotated[float | None, Query(ge=0, le=1, description="Instead of the model's own.")] = None,
        top_k: Annotated[int | None, Query(ge=1, description="Return only the most probable labels.")] = None,
        heatmaps: Annotated[bool, Query(description="Return pictures of where the present labels are.")] = False,
    ) -> Response:
        """Predict the labels of each image."""
        begin = time.perf_counter()
        status, content, headers = await answer(request, threshold, top_k, heatmaps)
        metrics.requests.labels(status=str(status)).inc()
        metrics.seconds.observe(time.perf_counter() - begin)
        return JSONResponse(content, status_code=status, headers=headers)

    async def answer(
        request: Request, threshold: float | None, top_k: int | None, heatmaps: bool
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, content and headers of the response."""
        try:
            if heatmaps:
                predictor.check_maps()
            images = await read_uploads(request, limits)
            working = service.predict(images, threshold=threshold, top_k=top_k, heatmaps=heatmaps)
            async with asyncio.timeout(limits.answer_seconds):
                predictions = await _unless_disconnected(request, asyncio.ensure_future(working))
        except RequestError as error:
            # the rest of the body must not be read
            return error.status_code, {"error": error.detail}, {**(error.headers or {}), "connection": "close"}
        except asyncio.CancelledError:  # the server ends, and waits no longer
            return 503, {"error": f"{_STOPPING}."}, {"connection": "close"}
        except ClientDisconnect:
            return _GIVEN_UP, {"error": "the connection was closed."}, {"connection": "close"}
        except TagfillError as error:
            return 400, {"error": str(error)}, {}
        except QueueFullError:
            return 503, {"error": "too many images are waiting; try again soon."}, {"retry-after": _RETRY_SECONDS}
        except TimeoutError:
            return 504, {"error": f"there was no answer within {limits.answer_seconds:g} seconds."}, {}
        metrics.images.inc(len(images))
        return 200, {"model": predictor.identity, "predictions": predictions}, {}

    @app.get("/classes")
    def classes() -> dict[str, Any]:
        """Class names, and the probability from which each class counts as present."""
        thresholds = resolve_thresholds(predictor.classes, predictor.thresholds)
        return {"classes": [{"name": n, "threshold": t} for n, t in zip(predictor.classes, thresholds, strict=True)]}

    @app.get("/health")
    def health() -> dict[str, Any]:
        """Whether the server works."""
        return {"status": "ok", "model": predictor.identity, "waiting": service.waiting}

    @app.get("/metrics")
    def prometheus() -> Response:
        """Counters for Prometheus."""
        metrics.waiting.set(service.waiting)
        return Response(metrics.text(), media_type=METRICS_TYPE)

    add_page(app, Path(__file__).parent / "page", {"/": "try.html", "/try.js": "try.js", "/try.css": "try.css"})
    return app


class Metrics:
    """Prometheus counters of one server, separate from other servers in the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "tagfill_requests", "Requests for predictions by status.", ["status"], registry=self._registry
        )
        self.images = Counter("tagfill_images", "Images with predictions.", registry=self._registry)
        self.seconds = Histogram(
            "tagfill_request_seconds", "Seconds from a request to its answer.", registry=self._registry
        )
        self.batches = Histogram(
            "tagfill_batch_images", "Images per batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self._registry
        )
        self.waiting = Gauge("tagfill_waiting_images", "Images that wait for the model.", registry=self._registry)

    def text(self) -> bytes:
        """The counters in Prometheus's text format."""
        return generate_latest(self._registry)


# Reading requests


@dataclass(frozen=True)
class Upload:
    """An uploaded image, not yet decoded; it is also the image root that it is read from."""

    name: str
    content: bytes

    def read(self, name: str) -> bytes:
        """The bytes of the image."""
        return self.content

    def names(self) -> list[str]:
        """The only image."""
        return [self.name]


async def read_uploads(request: Request, limits: Limits) -> list[Upload]:
    """Read the images of a request.

    Args:
        request: whose body is an image, or a form (`multipart/form-data`) with files named `images`.
        limits: that it must keep.

    Raises:
        RequestError: with 400, 408, 411, 413 or 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = request.headers.get("content-length")
    if length is not None and (not length.isdecimal() or int(length) > limits.body):
        raise RequestError(413, f"the body is larger than {limits.body:,} bytes")
    body = _read_body(request, limits)
    if kind in _IMAGE_TYPES:
        return [Upload("image", b"".join([chunk async for chunk in body]))]
    if kind != "multipart/form-data":
        raise RequestError(415, f"send an image ({', '.join(_IMAGE_TYPES)}) or a form with files named 'images'")
    images = await _read_form(request, body, limits)
    if len(images) > limits.images:
        raise RequestError(413, f"more than {limits.images} images came at once")
    return images


async def _read_body(request: Request, limits: Limits) -> AsyncGenerator[bytes, None]:
    """The body in chunks, within the limits of size and time, also where no `Guard` enforces them."""
    size, until = 0, time.monotonic() + limits.body_seconds
    stream = request.stream()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(stream, None), until - time.monotonic())
        except TimeoutError:
            raise RequestError(408, f"the body did not arrive within {limits.body_seconds:g} seconds") from None
        except ClientDisconnect:
            raise RequestError(400, "the connection was closed before the whole body arrived") from None
        if chunk is None:
            return
        size += len(chunk)
        if size > limits.body:
            raise RequestError(413, f"the body is larger than {limits.body:,} bytes")
        yield chunk


async def _read_form(request: Request, body: AsyncGenerator[bytes, None], limits: Limits) -> list[Upload]:
    parser = MultiPartParser(
        request.headers, body, max_files=limits.images, max_fields=limits.images, max_part_size=_FIELD_BYTES
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        status = 413 if "Too many" in error.message or "exceeded" in error.message else 400
        raise RequestError(status, f"the form cannot be read: {error.message.rstrip('.')}") from None
    except (KeyError, ValueError, UnicodeDecodeError):
        raise RequestError(400, "the form cannot be read") from None
    try:
        files = [value for name, value in form.multi_items() if name == "images" and isinstance(value, UploadFile)]
        return [Upload(_display_name(file, number), await file.read()) for number, file in enumerate(files)]
    finally:
        await form.close()


def _display_name(file: UploadFile, number: int) -> str:
    """The sender's name of an image, used in answers only; it never becomes a path."""
    name = (file.filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(sign for sign in name if sign.isprintable())[:100] or f"image {number}"


# Predicting

ResultT = TypeVar("ResultT")


async def _unless_disconnected(request: Request, working: asyncio.Future[ResultT]) -> ResultT:
    """The result of the work for a request, which is canceled when its client disconnects.

    Raises:
        ClientDisconnect: if it did.
    """

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watching = asyncio.ensure_future(disconnected())
    try:
        both: list[asyncio.Future[Any]] = [working, watching]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        watching.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await working


async def _results(futures: Sequence[Future[ResultT]]) -> list[ResultT]:
    """All results; if one fails or the request is given up, the others are canceled."""
    try:
        return await asyncio.gather(*map(asyncio.wrap_future, futures))
    except BaseException:
        for future in futures:
            future.cancel()
        raise


class PredictionService:
    """Predicts the labels of uploaded images.

    Args:
        predictor: the model.
        limits: of requests.
        batch_size: most images per forward pass, of all requests together.
        wait: seconds to wait for a batch to fill.
        on_batch: told the size of each batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        limits: Limits,
        *,
        batch_size: int = 16,
        wait: float = 0.004,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._predictor, self._limits = predictor, limits
        self._batcher = Batcher(predictor, size=batch_size, wait=wait, capacity=limits.queue, on_batch=on_batch)
        self._decoders = DecodingQueue(max(2, os.cpu_count() or 1))
        self._stopping = threading.Event()

    @property
    def waiting(self) -> int:
        """The number of images that wait for the model."""
        return len(self._batcher)

    def close(self) -> None:
        """Finish what is waiting, and end the threads."""
        self._batcher.close()
        self._decoders.close()

    def stop(self) -> None:
        """Give up images that are decoded by a helper process, which may take long; the others are finished."""
        self._stopping.set()

    async def predict(
        self, images: Sequence[Upload], *, threshold: Threshold = None, top_k: int | None = None, heatmaps: bool = False
    ) -> list[dict[str, Any]]:
        """Predict labels, as JSON values for each image.

        Args:
            images: of one request.
            threshold: instead of the model's own.
            top_k: keep only this number of labels per image, the most probable ones.
            heatmaps: add pictures of where the present labels are.

        Raises:
            RequestError: if there is no image, or one cannot be decoded.
            QueueFullError: if too many images are waiting.
        """
        if not images:
            raise RequestError(400, "there is no image; send files named 'images'")
        thresholds = resolve_thresholds(self._predictor.classes, self._predictor.thresholds, threshold)
        async with self._scoring(images, maps=heatmaps) as (scored, given_up):
            return await _results(
                [
                    self._decoders.submit(
                        work if heatmaps else 0, self._to_json, image, output, thresholds, top_k, given_up
                    )
                    for image, (work, output) in zip(images, scored, strict=True)
                ]
            )

    async def score(self, images: Sequence[Upload], *, maps: bool = False) -> list[Outputs]:
        """The outputs of the model for each image.

        Args:
            images: of one request.
            maps: add class maps.

        Raises:
            RequestError: if one cannot be decoded.
            QueueFullError: if too many images are waiting.
        """
        async with self._scoring(images, maps=maps) as (scored, _):
            return [output for _, output in scored]

    @asynccontextmanager
    async def _scoring(
        self, images: Sequence[Upload], *, maps: bool
    ) -> AsyncGenerator[tuple[list[tuple[int, Outputs]], threading.Event], None]:
        """Work and outputs of each image, and an event that stops what is still being decoded at the end."""
        self._batcher.check_capacity(len(images))
        submit, given_up = self._decoders.submit, threading.Event()
        try:
            work = await _results([submit(0, self._measure, image) for image in images])
            jobs = list(zip(work, images, strict=True))
            pixels = await _results([submit(work, self._decode, image, given_up) for work, image in jobs])
            outputs = await _results(self._batcher.submit(pixels, maps=maps))
            yield list(zip(work, outputs, strict=True)), given_up
        finally:
            given_up.set()

    def _measure(self, image: Upload) -> int:
        """The work of decoding an image, once its structure and its header are known to be within the limits."""
        try:
            found = measure(image.name, image.content)
            pixels = found.pixels
            if found.work <= stoppable.LIGHT:  # otherwise even its header may take long
                width, height = open_header(image.name, image.content).size
                pixels = max(pixels, width * height)
        except ImageError as error:
            raise _refusal(error) from None
        if pixels > self._limits.pixels:
            raise RequestError(413, f"image {image.name} has more than {self._limits.pixels:,} pixels")
        return found.work

    def _decode(self, image: Upload, given_up: threading.Event) -> NDArray[np.uint8]:
        """The evaluation view of an image, H×W×3."""
        with self._for_request(given_up):
            return load_eval_view(image, image.name, self._predictor.size)[0]

    @contextmanager
    def _for_request(self, given_up: threading.Event) -> Iterator[None]:
        """Decode for a request, until it is given up or the server stops.

        Raises:
            RequestError: if the image cannot be used.
        """
        try:
            with stoppable.for_request(lambda: given_up.is_set() or self._stopping.is_set()):
                yield
        except ImageError as error:
            raise RequestError(503, _STOPPING) if self._stopping.is_set() else _refusal(error) from None

    def _to_json(
        self,
        image: Upload,
        output: Outputs,
        thresholds: Sequence[float],
        top_k: int | None,
        given_up: threading.Event,
    ) -> dict[str, Any]:
        classes = self._predictor.classes
        decisions = decide(output.logits, thresholds, top_k, self._predictor.calibration)
        labels, scores = decisions.labels[0].tolist(), decisions.scores[0].tolist()
        present = [classes[label] for label, there in zip(labels, decisions.present[0], strict=True) if there]
        content: dict[str, Any] = {
            "image": image.name,
            "present": present,
            "scores": {classes[label]: round(score, 6) for label, score in zip(labels, scores, strict=True)},
        }
        if output.maps is not None:
            maps = {label: output.maps[0, classes.index(label)] for label in present}
            with self._for_request(given_up):
                shown = thumbnail(image, image.name, _HEATMAP_SIDE)
            content["heatmaps"] = {label: _heatmap_uri(shown, values) for label, values in maps.items()}
        return content


def _refusal(error: ImageError) -> RequestError:
    """The answer to an image that cannot be used: 413 beyond a limit, otherwise 415."""
    return RequestError(413 if isinstance(error, ImageLimitError) else 415, str(error).rstrip("."))


def _heatmap_uri(image: Image.Image, values: NDArray[np.float32]) -> str:
    """The class map over the image, as a data URI."""
    content = encode_jpeg(overlay_class_map(image, values))
    return "data:image/jpeg;base64," + base64.b64encode(content).decode()
