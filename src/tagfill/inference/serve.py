"""How much a request may ask for. All of it is checked before an image is decoded.

The body of a request: no larger, no slower and in no more parts than allowed, and then the images in it.

What a server counts for Prometheus.

Micro-batches: images of requests that come at about the same time are looked at together.

One thread owns the model. It takes what waits, up to a batch, and if the batch is not full waits a few milliseconds for
more; under load it never waits, because the next batch has formed while it looked at the last. The number of images
that wait is bounded: whoever comes on top is told to come back later.

From the images of a request to what is said about them.

The HTTP interface of a model.

| address | what it gives |
|---|---|
| `POST /predict` | labels and scores of one image or many |
| `GET /classes` | names and thresholds |
| `GET /health` | whether it works, and which model |
| `GET /metrics` | counts for Prometheus |
| `GET /`, `/openapi.json` | a page to try it, and its description for programs |

A trained model behind HTTP: predictions for whoever may ask, in batches that form by themselves.
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


@dataclass(frozen=True)
class Limits:
    """What is refused, with which status.

    Attributes:
        body: bytes of a request (413).
        images: of a request (413).
        pixels: of an image, by its header (413).
        body_seconds: until the whole body must be there (408).
        answer_seconds: until the answer must be there (504).
        queue: images that may wait for the model, all requests together (503).
    """

    body: int = 32 * 2**20
    images: int = 32
    pixels: int = 40_000_000
    body_seconds: float = 20.0
    answer_seconds: float = 60.0
    queue: int = 256


PLAIN = ("image/jpeg", "image/png", "image/webp")
_FIELD_BYTES = 1024


class RefusedError(Exception):
    """A request that asks for what it may not have."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Upload:
    """An image of a request, not yet decoded."""

    name: str
    content: bytes


async def uploads(request: Request, limits: Limits) -> list[Upload]:
    """The images of a request.

    Args:
        request: whose body is an image, or a form (`multipart/form-data`) with files named `images`.
        limits: that it must keep to.

    Raises:
        RefusedError: with 400, 408, 411, 413 or 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    length = request.headers.get("content-length")
    if length is not None and (not length.isdigit() or int(length) > limits.body):
        raise RefusedError(413, f"the body is larger than {limits.body:,} bytes")
    body = _bounded(request, limits)
    if kind in PLAIN:
        content = b"".join([chunk async for chunk in body])
        return [Upload("image", content)]
    if kind == "multipart/form-data":
        return await _files(request, body, limits)
    raise RefusedError(415, f"send an image ({', '.join(PLAIN)}) or a form with files named 'images'")


def check_uploads(upload: Upload, limits: Limits) -> None:
    """Look at the header of an image: its format and its size, before any pixel is decoded.

    Raises:
        RefusedError: with 413 or 415.
    """
    try:
        width, height = open_header(upload.name, upload.content).size
    except ImageError as error:
        raise RefusedError(415, str(error).rstrip(".")) from None
    if width * height > limits.pixels:
        raise RefusedError(413, f"image {upload.name} has more than {limits.pixels:,} pixels")


async def _bounded(request: Request, limits: Limits) -> AsyncGenerator[bytes, None]:
    """The body, as long as it keeps to its size and its time."""
    size, until = 0, time.monotonic() + limits.body_seconds
    stream = request.stream()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(stream, None), until - time.monotonic())
        except TimeoutError:
            raise RefusedError(408, f"the body did not come within {limits.body_seconds:g} seconds") from None
        except ClientDisconnect:
            raise RefusedError(400, "the connection was closed before the body had come") from None
        if chunk is None:
            return
        size += len(chunk)
        if size > limits.body:
            raise RefusedError(413, f"the body is larger than {limits.body:,} bytes")
        yield chunk


async def _files(request: Request, body: AsyncGenerator[bytes, None], limits: Limits) -> list[Upload]:
    parser = MultiPartParser(
        request.headers, body, max_files=limits.images, max_fields=limits.images, max_part_size=_FIELD_BYTES
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        status = 413 if "Too many" in error.message or "exceeded" in error.message else 400
        raise RefusedError(status, f"the form cannot be read: {error.message.rstrip('.')}") from None
    except (KeyError, ValueError, UnicodeDecodeError):
        raise RefusedError(400, "the form cannot be read") from None
    try:
        files = [value for name, value in form.multi_items() if name == "images" and isinstance(value, UploadFile)]
        return [Upload(_name(file, number), await file.read()) for number, file in enumerate(files)]
    finally:
        await form.close()


def _name(file: UploadFile, number: int) -> str:
    """What the sender calls an image, for answers alone; it never becomes a path."""
    name = (file.filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(sign for sign in name if sign.isprintable())[:100] or f"image {number}"


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counts:
    """The numbers of one server, apart from those of any other in the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "tagfill_requests", "Requests for predictions by status.", ["status"], registry=self._registry
        )
        self.images = Counter("tagfill_images", "Images that were looked at.", registry=self._registry)
        self.seconds = Histogram(
            "tagfill_request_seconds", "Seconds from a request to its answer.", registry=self._registry
        )
        self.batches = Histogram(
            "tagfill_batch_images", "Images of a batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self._registry
        )
        self.waiting = Gauge("tagfill_waiting_images", "Images that wait for the model.", registry=self._registry)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)


class FullError(Exception):
    """There is no room for more images to wait."""


@dataclass
class _Wanted:
    """An image that waits to be looked at."""

    pixels: NDArray[np.uint8]
    maps: bool
    answer: Future[Outputs] = field(default_factory=Future)


class Batcher:
    """A model that answers image by image and works batch by batch.

    Args:
        predictor: the model.
        size: images of a batch at most; 1 switches batching off.
        wait: seconds to wait for a batch to fill.
        room: images that may wait.
        watch: told the size of each batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        size: int = 16,
        wait: float = 0.004,
        room: int = 256,
        watch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._predictor, self._size, self._wait, self._room, self._watch = predictor, size, wait, room, watch
        self._waiting: deque[_Wanted] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="tagfill-batches", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def reserve(self, count: int) -> None:
        """Refuse early what would not fit.

        Raises:
            FullError: if so many more images have no room.
        """
        if len(self._waiting) + count > self._room or self._closing:
            raise FullError

    def submit(self, images: list[NDArray[np.uint8]], *, maps: bool) -> list[Future[Outputs]]:
        """Let these images wait; all of them or none.

        Args:
            images: H×W×3 each.
            maps: class maps are wanted.

        Returns:
            What the model will have said of each: logits 1×L, maps 1×L×h×w.

        Raises:
            FullError: if there is no room for all of them.
        """
        wanted = [_Wanted(pixels, maps) for pixels in images]
        with self._changed:
            self.reserve(len(wanted))
            self._waiting.extend(wanted)
            self._changed.notify()
        return [one.answer for one in wanted]

    def close(self) -> None:
        """Finish what waits, take nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self._watch(len(batch))
            try:
                outputs = self._predictor(np.stack([one.pixels for one in batch]), maps=batch[0].maps)
            except Exception as error:  # whatever it is, those who wait must hear of it
                for one in batch:
                    one.answer.set_exception(error)
                continue
            for position, one in enumerate(batch):
                row = slice(position, position + 1)
                maps = None if outputs.maps is None else outputs.maps[row]
                one.answer.set_result(Outputs(outputs.logits[row], maps))

    def _next(self) -> list[_Wanted]:
        """The next batch; empty when closed and nothing waits."""
        with self._changed:
            while True:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return []
                until = time.monotonic() + self._wait
                while len(self._waiting) < self._size and not self._closing:
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        break
                batch: list[_Wanted] = []
                while self._waiting and len(batch) < self._size:
                    if batch and self._waiting[0].maps != batch[0].maps:
                        break  # maps cost much: those who want none do not pay for them
                    one = self._waiting.popleft()
                    if one.answer.set_running_or_notify_cancel():  # whoever asked may be gone
                        batch.append(one)
                if batch:
                    return batch


_SIDE = 320  # of a heatmap's longer side


@dataclass(frozen=True)
class Asked:
    """What a request wants to know.

    Attributes:
        threshold: from which a label is present, in place of the model's own.
        top_k: only so many labels of each image, likeliest first.
        heatmaps: pictures of where the labels that are present are.
    """

    threshold: Threshold = None
    top_k: int | None = None
    heatmaps: bool = False


class Answering:
    """Answers to requests, by one model.

    Args:
        predictor: the model.
        batcher: that shares it.
        decoders: threads that decode.
        limits: of a request.
    """

    def __init__(self, predictor: Predictor, batcher: Batcher, decoders: Executor, limits: Limits) -> None:
        self._predictor, self._batcher, self._decoders, self._limits = predictor, batcher, decoders, limits

    async def answer(self, images: Sequence[Upload], asked: Asked) -> list[dict[str, Any]]:
        """What the model says of each image.

        Raises:
            RefusedError: for images that cannot be looked at, or no image at all.
            FullError: if too many wait already.
        """
        if not images:
            raise RefusedError(400, "there is no image; send files named 'images'")
        self._batcher.reserve(len(images))
        thresholds = resolve_thresholds(self._predictor.classes, self._predictor.thresholds, asked.threshold)
        loop = asyncio.get_running_loop()
        pixels = await asyncio.gather(
            *(loop.run_in_executor(self._decoders, _pixels, one, self._predictor.size, self._limits) for one in images)
        )
        waiting = self._batcher.submit(list(pixels), maps=asked.heatmaps)
        outputs = await asyncio.gather(*map(asyncio.wrap_future, waiting))
        return await asyncio.gather(
            *(
                loop.run_in_executor(self._decoders, self._told, image, output, thresholds, asked)
                for image, output in zip(images, outputs, strict=True)
            )
        )

    def _told(self, image: Upload, output: Outputs, thresholds: Sequence[float], asked: Asked) -> dict[str, Any]:
        classes = self._predictor.classes
        decided = decide(output.logits, thresholds, asked.top_k)
        labels, scores = decided.labels[0].tolist(), decided.scores[0].tolist()
        present = [classes[label] for label, there in zip(labels, decided.present[0], strict=True) if there]
        told: dict[str, Any] = {
            "image": image.name,
            "present": present,
            "scores": {classes[label]: round(score, 6) for label, score in zip(labels, scores, strict=True)},
        }
        if asked.heatmaps and output.maps is not None:
            maps = {label: output.maps[0, classes.index(label)] for label in present}
            told["heatmaps"] = {label: _picture(image, values) for label, values in maps.items()}
        return told


class _Sent:
    """An image that came with a request, as a root to read it from."""

    def __init__(self, image: Upload) -> None:
        self._image = image

    def read(self, name: str) -> bytes:
        """The bytes of the image."""
        return self._image.content

    def names(self) -> list[str]:
        """The one that there is."""
        return [self._image.name]


def _pixels(image: Upload, size: tuple[int, int], limits: Limits) -> NDArray[np.uint8]:
    """The view of evaluation, H×W×3; what the header says is checked first."""
    check_uploads(image, limits)
    try:
        return load_eval_view(_Sent(image), image.name, size)[0]
    except ImageError as error:
        raise RefusedError(415, str(error).rstrip(".")) from None


def _picture(image: Upload, values: NDArray[np.float32]) -> str:
    """The class map over the image, as a data URI."""
    content = encode_jpeg(overlay_class_map(thumbnail(_Sent(image), image.name, _SIDE), values))
    return "data:image/jpeg;base64," + base64.b64encode(content).decode()


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
        thresholds = resolve_thresholds(predictor.classes, predictor.thresholds)
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
