"""A trained model behind HTTP.

| address | answer |
|---|---|
| `POST /predict` | labels and scores of one or more images |
| `GET /classes` | class names and thresholds |
| `GET /health` | whether the server works, and with which model |
| `GET /metrics` | counters for Prometheus |
| `GET /`, `/openapi.json` | a page to try it, and the API description |

A request passes three stages: its body is read within limits (`read_uploads`), its images are decoded by threads, and
the model scores them in micro-batches together with the images of other requests (`Batcher`).
"""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from tagfill.errors import ImageError, TagfillError
from tagfill.images import encode_jpeg, load_eval_view, overlay_class_map, thumbnail
from tagfill.images.decode import open_header
from tagfill.inference.http import add_page
from tagfill.inference.pipeline import Threshold, decide, resolve_thresholds
from tagfill.inference.predictors import Outputs, Predictor

_IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp")
_FIELD_BYTES = 1024  # of a form field that is not a file
_HEATMAP_SIDE = 320  # pixels, the longer side
_RETRY_SECONDS = "1"
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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

    Attributes:
        body: bytes per request (413).
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


class RequestError(Exception):
    """A request that is refused, with its HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class QueueFullError(Exception):
    """Too many images wait for the model already."""


def create_app(
    predictor: Predictor, *, limits: Limits | None = None, batch_size: int = 16, wait: float = 0.004
) -> FastAPI:
    """The web application of a model.

    Args:
        predictor: the model.
        limits: of requests.
        batch_size: most images per forward pass; 1 switches batching off.
        wait: seconds to wait for a batch to fill.
    """
    limits, metrics = limits or Limits(), Metrics()
    batcher = Batcher(predictor, size=batch_size, wait=wait, capacity=limits.queue, on_batch=metrics.batches.observe)
    decoders = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="decoding")
    service = PredictionService(predictor, batcher, decoders, limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close)
        decoders.shutdown()

    app = FastAPI(
        title="Tagfill",
        description="Predicts the labels of images with a model that was trained on partly labeled images.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )

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
            async with asyncio.timeout(limits.answer_seconds):
                predictions = await service.predict(images, threshold=threshold, top_k=top_k, heatmaps=heatmaps)
        except RequestError as error:
            # the rest of the body must not be read
            return error.status, {"error": f"{error.reason}."}, {"connection": "close"}
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
        return {"status": "ok", "model": predictor.identity, "waiting": len(batcher)}

    @app.get("/metrics")
    def prometheus() -> Response:
        """Counters for Prometheus."""
        metrics.waiting.set(len(batcher))
        return Response(metrics.text(), media_type=_METRICS_TYPE)

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
    if length is not None and (not length.isdigit() or int(length) > limits.body):
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
    """The body in chunks, within the limits of size and time."""
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


class PredictionService:
    """Predicts the labels of uploaded images.

    Args:
        predictor: the model.
        batcher: runs the model on the images of all requests.
        decoders: threads that decode.
        limits: of a request.
    """

    def __init__(self, predictor: Predictor, batcher: Batcher, decoders: Executor, limits: Limits) -> None:
        self._predictor, self._batcher, self._decoders, self._limits = predictor, batcher, decoders, limits

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
        self._batcher.check_capacity(len(images))
        thresholds = resolve_thresholds(self._predictor.classes, self._predictor.thresholds, threshold)
        loop = asyncio.get_running_loop()
        pixels = await asyncio.gather(*(loop.run_in_executor(self._decoders, self._decode, image) for image in images))
        waiting = self._batcher.submit(list(pixels), maps=heatmaps)
        outputs = await asyncio.gather(*map(asyncio.wrap_future, waiting))
        return await asyncio.gather(
            *(
                loop.run_in_executor(self._decoders, self._to_json, image, output, thresholds, top_k)
                for image, output in zip(images, outputs, strict=True)
            )
        )

    def _decode(self, image: Upload) -> NDArray[np.uint8]:
        """The evaluation view of an image, H×W×3; its header is checked first."""
        try:
            width, height = open_header(image.name, image.content).size
            if width * height > self._limits.pixels:
                raise RequestError(413, f"image {image.name} has more than {self._limits.pixels:,} pixels")
            return load_eval_view(image, image.name, self._predictor.size)[0]
        except ImageError as error:
            raise RequestError(415, str(error).rstrip(".")) from None

    def _to_json(
        self, image: Upload, output: Outputs, thresholds: Sequence[float], top_k: int | None
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
            content["heatmaps"] = {label: _heatmap_uri(image, values) for label, values in maps.items()}
        return content


def _heatmap_uri(image: Upload, values: NDArray[np.float32]) -> str:
    """The class map over the image, as a data URI."""
    content = encode_jpeg(overlay_class_map(thumbnail(image, image.name, _HEATMAP_SIDE), values))
    return "data:image/jpeg;base64," + base64.b64encode(content).decode()


@dataclass
class _Pending:
    """An image that waits for the model."""

    pixels: NDArray[np.uint8]
    maps: bool
    outputs: Future[Outputs] = field(default_factory=Future)


class Batcher:
    """Scores single images in micro-batches: images that arrive at about the same time share a forward pass.

    One thread owns the model. It takes the images that wait, up to a batch; if the batch is not full, it waits a few
    milliseconds for more. Under load it never waits, because the next batch fills while the model works.

    Args:
        predictor: the model.
        size: most images per batch; 1 switches batching off.
        wait: seconds to wait for a batch to fill.
        capacity: number of images that may wait.
        on_batch: called with the size of each batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        size: int = 16,
        wait: float = 0.004,
        capacity: int = 256,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._predictor, self._size, self._wait = predictor, size, wait
        self._capacity, self._on_batch = capacity, on_batch
        self._pending: deque[_Pending] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tagfill-batches", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._pending)

    def check_capacity(self, count: int) -> None:
        """Raise early if `count` more images would not fit.

        Raises:
            QueueFullError: if they would not, or the batcher is closing.
        """
        if len(self._pending) + count > self._capacity or self._closing:
            raise QueueFullError

    def submit(self, images: list[NDArray[np.uint8]], *, maps: bool) -> list[Future[Outputs]]:
        """Queue images, all of them or none.

        Args:
            images: H×W×3 each.
            maps: compute class maps too.

        Returns:
            The future outputs of each image: logits 1×L, maps 1×L×h×w.

        Raises:
            QueueFullError: if they do not all fit.
        """
        pending = [_Pending(pixels, maps) for pixels in images]
        with self._changed:
            self.check_capacity(len(pending))
            self._pending.extend(pending)
            self._changed.notify()
        return [one.outputs for one in pending]

    def close(self) -> None:
        """Finish the images that wait, and refuse new ones."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            self._on_batch(len(batch))
            try:
                outputs = self._predictor(np.stack([one.pixels for one in batch]), maps=batch[0].maps)
            except Exception as error:  # the requests that wait must learn of any error
                for one in batch:
                    one.outputs.set_exception(error)
                continue
            for position, one in enumerate(batch):
                row = slice(position, position + 1)
                maps = None if outputs.maps is None else outputs.maps[row]
                one.outputs.set_result(Outputs(outputs.logits[row], maps))

    def _next_batch(self) -> list[_Pending]:
        """The next batch; empty once closed and nothing waits."""
        with self._changed:
            while True:
                while not self._pending and not self._closing:
                    self._changed.wait()
                if not self._pending:
                    return []
                until = time.monotonic() + self._wait
                while len(self._pending) < self._size and not self._closing:
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        break
                batch: list[_Pending] = []
                while self._pending and len(batch) < self._size:
                    if batch and self._pending[0].maps != batch[0].maps:
                        break  # maps are expensive: images without them go into another batch
                    one = self._pending.popleft()
                    if one.outputs.set_running_or_notify_cancel():  # false if the request was canceled
                        batch.append(one)
                if batch:
                    return batch
