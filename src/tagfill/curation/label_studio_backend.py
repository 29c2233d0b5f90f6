"""A trained model as a machine learning backend of Label Studio.

| address | what Label Studio sends | answer |
|---|---|---|
| `GET /health`, `GET /` | nothing | that the model is up |
| `POST /setup` | a project with its labeling configuration | the version of the model |
| `POST /predict` | tasks with the labeling configuration | predictions for these tasks |
| `POST /webhook` | annotations that were submitted, updated or deleted | that they are saved |
| `GET /versions`, `GET /metrics` | nothing | the version of the model, counters for Prometheus |

Predictions are tags in the project's own words, with scores, and boxes from class maps if they are wanted and the
configuration has rectangles. They say what is present; that a class is absent is never predicted, because an annotator
who submits would confirm it without looking. A task whose photo cannot be read gets no prediction: an empty one would
mean that the model found nothing.

Annotations are confirmed when they are on disk, and become rows of the dataset a moment later (`tagfill.curation.
submissions`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import numpy as np
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from tagfill.curation.entry_log import NotWrittenError
from tagfill.curation.label_studio_results import choices, rectangles, upright_size
from tagfill.curation.submissions import Submissions, statements_of
from tagfill.curation.task_photos import TaskPhotos
from tagfill.dataset import Dataset
from tagfill.dataset.hierarchy import Hierarchy
from tagfill.errors import TagfillError
from tagfill.formats.label_studio import parse_annotation, was_cancelled
from tagfill.formats.label_studio_config import LabelingConfig
from tagfill.inference import Predictor
from tagfill.inference.http import RequestError, json_app
from tagfill.inference.pipeline import decide, resolve_thresholds
from tagfill.inference.predictors import Outputs
from tagfill.inference.scheduling import QueueFullError
from tagfill.inference.serve import METRICS_TYPE, Limits, Metrics, PredictionService, Upload
from tagfill.labels import NEGATIVE, POSITIVE
from tagfill.progress import SILENT, Progress

MAX_TASKS = 1000
_READ_AT_ONCE = 4  # photos, which are read or fetched
_QUIET_SECONDS = 1.0  # for more annotations to come, before the table of rows is written
_ANSWER_SECONDS = 95.0  # Label Studio waits 100
_SUBMITTED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
_DELETED = "ANNOTATIONS_DELETED"
_TRAINING = "START_TRAINING"


class TaskData(BaseModel):
    """A task; other fields are not used."""

    id: int | None = None
    data: dict[str, Any]


class ProjectData(BaseModel):
    """The project of a webhook."""

    id: int
    label_config: str = ""
    created_at: str | None = None

    @property
    def key(self) -> str:
        """Tells projects apart, also those of another Label Studio, or of one that was set up again."""
        try:
            return f"{self.id}.{int(datetime.fromisoformat(self.created_at or '').timestamp())}"
        except (ValueError, OverflowError):
            return str(self.id)


class SetupRequest(BaseModel):
    """What Label Studio sends when it connects; its address and token are not used."""

    project: str | int = ""
    label_config: str = Field("", alias="schema")


class PredictRequest(BaseModel):
    """Tasks to predict."""

    tasks: Annotated[list[TaskData], Field(max_length=MAX_TASKS)]
    label_config: str = ""


class DeletedAnnotation(BaseModel):
    """An annotation that was deleted."""

    id: int


class WebhookRequest(BaseModel):
    """What happened in a project; of other actions only the name is used."""

    action: str
    project: ProjectData | None = None
    task: Any = None
    annotation: Any = None
    annotations: Any = None


class Backend:
    """Answers Label Studio.

    Args:
        predictor: the model.
        submissions: keeps annotations; None to keep none.
        photos: reads the photos of tasks.
        boxes: predict boxes too, from class maps.
        absent_means: what classes are that an annotation does not mention, if it does not say so.
        limits: of requests.
        batch_size: most images per forward pass.
        wait: seconds to wait for a batch to fill.
        progress: told about what a user should know.
    """

    def __init__(
        self,
        predictor: Predictor,
        submissions: Submissions | None,
        photos: TaskPhotos,
        *,
        boxes: bool = False,
        absent_means: str = "unknown",
        limits: Limits | None = None,
        batch_size: int = 16,
        wait: float = 0.004,
        progress: Progress = SILENT,
    ) -> None:
        if boxes:
            predictor.check_maps()
        self.predictor, self.submissions, self.photos, self.progress = predictor, submissions, photos, progress
        self.metrics, self._boxes, self._absent_means = Metrics(), boxes, absent_means
        self._thresholds = resolve_thresholds(predictor.classes, predictor.thresholds)
        self.service = PredictionService(
            predictor, limits or Limits(), batch_size=batch_size, wait=wait, on_batch=self.metrics.batches.observe
        )
        self._known = None if submissions is None else _KnownLabels(Dataset.open(submissions.folder))
        self._said: deque[str] = deque(maxlen=100)
        self._changed, self._stopping = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._write_rows, name="rows", daemon=True)
        self._writer.start()

    @property
    def version(self) -> str:
        """The version of the model, as Label Studio shows it."""
        return f"tagfill-{self.predictor.identity[:12]}"

    def close(self) -> None:
        """Finish what is waiting, and write the rows of all annotations."""
        self.service.close()
        self._stopping.set()
        self._changed.set()
        self._writer.join()

    def check_config(self, text: str) -> list[str]:
        """Sentences about a labeling configuration that does not fit the model or the dataset."""
        config = LabelingConfig.parse(text, self.predictor.classes)
        problems = []
        if not config.shown:
            some = ", ".join(self.predictor.classes[:3])
            problems.append(
                f"No choice of the labeling configuration has the name of a class of the model, such as {some}; "
                "'tagfill label-studio config DATASET' writes a configuration that fits."
            )
        elif config.unmatched:
            problems.append(f"The model does not know these choices: {', '.join(config.unmatched[:10])}.")
        if config.shown and not config.tells_absent and self.submissions is not None:
            problems.append(
                f"Annotators cannot say that a tag is absent; tags that they do not choose become {self._absent_means}."
            )
        return problems

    # Predictions

    async def predict(self, request: PredictRequest) -> tuple[list[Any], dict[str, str]]:
        """Predictions for each task, and what went wrong, by the number of the task.

        Raises:
            TagfillError: if the configuration cannot be read, or asks about no class of the model.
            QueueFullError: if too many images are waiting.
        """
        config = LabelingConfig.parse(request.label_config, self.predictor.classes)
        if not config.shown:
            raise TagfillError(self.check_config(request.label_config)[0])
        reading = asyncio.Semaphore(_READ_AT_ONCE)
        working = [self._predict_task(task, config, reading) for task in request.tasks]
        done = await asyncio.gather(*working, return_exceptions=True)
        results: list[Any] = []
        errors: dict[str, str] = {}
        for position, (task, result) in enumerate(zip(request.tasks, done, strict=True)):
            if isinstance(result, TagfillError | RequestError):
                sentence = str(result.detail if isinstance(result, RequestError) else result)
                errors[str(position if task.id is None else task.id)] = sentence
                results.append([])  # no prediction, which differs from an empty one
            elif isinstance(result, BaseException):
                raise result
            else:
                results.append(result)
        if errors:
            self.say_once(f"Warning: no prediction for {len(errors):,} tasks: {next(iter(errors.values()))}")
        self.metrics.images.inc(len(results) - len(errors))
        return results, errors

    async def _predict_task(self, task: TaskData, config: LabelingConfig, reading: asyncio.Semaphore) -> dict[str, Any]:
        url = _image_url(task, config)
        maps = self._boxes and any(control.kind == "rectanglelabels" for control in config.controls)
        async with reading:  # also while it is scored, so that few photos are in memory
            content = await asyncio.to_thread(self.photos.read, url)
            name = self.photos.name(url)
            (output,) = await self.service.score([Upload(name, content)], maps=maps)
        known = {} if self._known is None else self._known.of(name)
        return self._prediction(output, config, known, upright_size(name, content) if maps else None)

    def _prediction(
        self, output: Outputs, config: LabelingConfig, known: Mapping[str, bool], size: tuple[int, int] | None
    ) -> dict[str, Any]:
        """One prediction in the words of the configuration; labels that the dataset knows are taken from it."""
        decisions = decide(output.logits, self._thresholds, None, self.predictor.calibration)
        scores = dict(zip(self.predictor.classes, map(float, decisions.scores[0]), strict=True))
        present = dict(zip(self.predictor.classes, map(bool, decisions.present[0]), strict=True))
        for label, state in known.items():
            if label in present:
                present[label], scores[label] = state, float(state)
        tags = {label: scores[label] for label in config.shown if present[label]}
        results = list(choices(config, tags))
        if output.maps is not None and size is not None:
            maps = dict(zip(self.predictor.classes, output.maps[0], strict=True))
            results += rectangles(config, tags, maps, size)
        sure = [scores[label] if present[label] else 1 - scores[label] for label in config.shown]
        numbered = [{"id": f"tagfill-{number}", **result} for number, result in enumerate(results)]
        return {"result": numbered, "score": round(min(sure), 6), "model_version": self.version}

    # Annotations

    def receive(self, request: WebhookRequest) -> tuple[int, dict[str, Any]]:
        """Save what a webhook tells; status and content of the answer.

        Raises:
            TagfillError: if it cannot be understood.
            NotWrittenError: if it cannot be saved.
        """
        if request.action == _TRAINING:
            self._changed.set()
            self.say_once(f"Label Studio asks for training; train with: tagfill train {self._folder()}")
            return 200, {"status": "ok", "result": "Annotations are saved; train with 'tagfill train'."}
        if request.action not in (*_SUBMITTED, _DELETED):
            return 200, {"status": "ignored"}
        if self.submissions is None:
            return 200, {"status": "ignored", "result": "This server keeps no annotations; start it with --dataset."}
        if request.project is None:
            raise TagfillError("The webhook sends no content; switch on 'Send payload' in its settings.")
        if request.action == _DELETED:
            deleted = [DeletedAnnotation.model_validate(one) for one in request.annotations or []]
            gone = [self.submissions.withdraw(f"{request.project.key}/{one.id}") for one in deleted]
            self._changed.set()
            return 200, {"status": "ok", "withdrawn": sum(gone)}
        return self._receive_annotation(self.submissions, request, request.project)

    def _receive_annotation(
        self, submissions: Submissions, request: WebhookRequest, project: ProjectData
    ) -> tuple[int, dict[str, Any]]:
        assert self._known is not None
        given = request.annotation
        if not isinstance(given, dict) or type(given.get("id")) is not int or not isinstance(request.task, dict):
            raise TagfillError("The webhook has no annotation with its task; use that of the machine learning backend.")
        number = f"{project.key}/{given['id']}"
        where = f"Annotation {given['id']}"
        if was_cancelled(given, where):
            withdrawn = submissions.withdraw(number)
            self._changed.set()
            return 200, {"status": "ok", "withdrawn": int(withdrawn)}
        config = LabelingConfig.parse(project.label_config, self._known.classes)
        annotation = parse_annotation(given, where, config)
        rows, doubtful = statements_of(annotation, config, self._known.hierarchy, absent_means=self._absent_means)
        if doubtful:
            self.say_once(f"Warning: {where} contradicts itself about {', '.join(doubtful)}, which stays unknown.")
        if annotation.unmatched:
            unmatched = ", ".join(sorted(annotation.unmatched)[:10])
            self.say_once(f"Warning: the dataset has no class for these choices, which are left out: {unmatched}.")
        url = _image_url(TaskData.model_validate(request.task), config)
        new = submissions.submit(
            number,
            image=self.photos.name(url),
            url=url,
            source=annotation.source,
            time=annotation.time or datetime.now(UTC),
            seconds=annotation.seconds,
            rows=rows,
        )
        self._changed.set()
        return 201, {"status": "ok", "saved": int(new), "rows": len(rows), "left_out": sorted(annotation.unmatched)}

    def _folder(self) -> str:
        return "DATASET" if self.submissions is None else str(self.submissions.folder)

    def _write_rows(self) -> None:
        """Turn annotations into rows, a moment after the last one has come; the work of a thread."""
        if self.submissions is None:
            return
        while True:
            self._changed.wait()
            self._stopping.wait(_QUIET_SECONDS)
            self._changed.clear()
            begin = time.monotonic()
            try:
                changes = self.submissions.apply(self.photos.store, progress=self.progress)
                if changes:
                    dataset = Dataset.open(self.submissions.folder)
                    self.photos.refresh(dataset)
                    self._known = _KnownLabels(dataset)
            except (TagfillError, OSError) as error:
                self.say_once(f"Warning: annotations are saved, but not yet rows of the dataset: {error}")
            if self._stopping.is_set():
                return
            self._stopping.wait(4 * (time.monotonic() - begin))  # most of the time is left for other work

    def say_once(self, sentence: str) -> None:
        """Tell the user, unless one of the last sentences was the same."""
        if sentence not in self._said:
            self._said.append(sentence)
            self.progress.say(sentence)


def create_backend(backend: Backend) -> Any:
    """The web application of a backend; `state.stop` is for `tagfill.inference.http.run_server`."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(backend.close)

    app = json_app("Tagfill for Label Studio", lifespan=lifespan)
    app.state.stop = backend.service.stop

    @app.exception_handler(TagfillError)
    async def report_error(request: Request, error: TagfillError) -> Response:
        backend.say_once(f"Warning: {request.url.path} was refused: {error}")
        return JSONResponse({"error": str(error)}, status_code=507 if isinstance(error, NotWrittenError) else 400)

    @app.get("/")
    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"status": "UP", "model_class": "Tagfill", "model": backend.version, "waiting": backend.service.waiting}

    @app.get("/versions")
    def versions() -> dict[str, Any]:
        return {"versions": [backend.version]}

    @app.get("/metrics")
    def prometheus() -> Response:
        backend.metrics.waiting.set(backend.service.waiting)
        return Response(backend.metrics.text(), media_type=METRICS_TYPE)

    @app.post("/setup")
    def setup(request: SetupRequest) -> dict[str, Any]:
        problems = backend.check_config(request.label_config) if request.label_config.strip() else []
        for problem in problems:
            backend.say_once(f"Warning: project {str(request.project).partition('.')[0]}: {problem}")
        return {"model_version": backend.version, "problems": problems}

    @app.post("/predict")
    async def predict(request: PredictRequest) -> Response:
        begin = time.perf_counter()
        status, content = 200, dict[str, Any]()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                results, errors = await backend.predict(request)
            content = {"results": results, "errors": errors}
        except QueueFullError:
            status, content = 503, {"error": "Too many images are waiting; try again soon."}
        except TimeoutError:
            status, content = 504, {"error": f"There was no answer within {_ANSWER_SECONDS:g} seconds."}
        finally:
            backend.metrics.requests.labels(status=str(status)).inc()
            backend.metrics.seconds.observe(time.perf_counter() - begin)
        return JSONResponse(content, status_code=status)

    @app.post("/webhook")
    def webhook(request: WebhookRequest) -> Response:
        status, content = backend.receive(request)
        return JSONResponse(content, status_code=status)

    return app


class _KnownLabels:
    """What a dataset knows about its images."""

    def __init__(self, dataset: Dataset) -> None:
        self.classes, self.hierarchy = dataset.classes, Hierarchy(dataset.classes, dataset.hierarchy)
        self._labels = dataset.labels()
        self._row_of_image = {name: row for row, name in enumerate(dataset.names())}

    def of(self, name: str) -> dict[str, bool]:
        """Whether each class that is known for an image is present."""
        if name not in self._row_of_image:
            return {}
        values = self._labels.rows(np.array([self._row_of_image[name]]))[0]
        return {
            label: bool(value == POSITIVE)
            for label, value in zip(self.classes, values, strict=True)
            if value in (POSITIVE, NEGATIVE)
        }


def _image_url(task: TaskData, config: LabelingConfig) -> str:
    key = config.image_key()
    if key is None:
        raise TagfillError("The labeling configuration has no Image, so there is nothing to predict for.")
    url = task.data.get(key)
    if not isinstance(url, str) or not url:
        raise TagfillError(f"Task {task.id} has no '{key}' in its data, which the labeling configuration shows.")
    return url
