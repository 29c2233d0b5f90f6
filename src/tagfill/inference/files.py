"""One file of all parts, as Parquet, CSV or JSON lines, a part at a time.

Parquet and CSV have a row for each image and label, see `tagfill.inference.files`. JSON lines have one line an image:

    {"image": "photos/1.jpg", "present": ["bell"], "scores": {"bell": 0.93, "anchor": 0.04}}


Results on disk while the work is under way: one Parquet file for each part of the images, whole or not there.

A row is an image and a label:

| column | type | meaning |
|---|---|---|
| image | text | its name |
| label | text | class name |
| score | float32 | probability that the label is present |
| present | bool | whether the score reaches the threshold of the class |

Images that could not be decoded have no row; their names and problems are in the metadata of the part's file. Whoever
makes parts needs to know nothing of others who do: what is missing is seen from the files.

What a file of predictions depends on; kept beside it, so that work which was interrupted goes on with the same.

While the work is under way the plan lies in the folder of parts, `OUT.parts/plan.json`. Afterwards it stays beside the
results as `OUT.json`, with the counts and all that a reader of them may ask: classes, thresholds, hashes.

Making one part of a file of predictions, here or in another process.

A file of predictions on disk: begun, made in parts, joined, finished.

    OUT.parts/plan.json, 000000.parquet, …   while the work is under way
    OUT, OUT.json, OUT.bad.tsv               afterwards; the last one only where images could not be decoded

`OUT.json` is written last: a file with it is complete, and one whose plan differs is not touched.

Predictions for any number of images, in a file; work that was interrupted goes on, and may be shared.

The images are dealt out in parts. Each part is a file of its own until all are there (`tagfill.inference.files`), so a
rerun makes only those that are missing, and memory holds one part at most. Several processes may work on the same
file, each on parts of its own:

- those that torchrun starts (`RANK` and `WORLD_SIZE`): process r of n makes parts r, r+n, r+2n, …, and whoever ends
  last joins them;
- tasks of an engine (`tagfill.engines`), a part each: processes of this machine, or Ray over a cluster.
"""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tagfill.engines import Engine, create_engine
from tagfill.errors import TagfillError, unknown_name
from tagfill.inference.images import ImageList, Images, find_images
from tagfill.inference.pipeline import (
    BATCH_SIZE,
    Decided,
    Heatmaps,
    Threshold,
    check_top_k,
    decide,
    look_at,
    resolve_thresholds,
)
from tagfill.inference.predictors import ModelPath, Predictor, model_path, open_predictor
from tagfill.io import atomic_write, exclusive_lock, write_json
from tagfill.progress import SILENT, Bar, Progress

_PLAIN = pa.schema([("image", pa.string()), ("label", pa.string()), ("score", pa.float32()), ("present", pa.bool_())])


def check_ending(out: Path) -> None:
    """Refuse a file whose ending names no format."""
    if out.suffix not in _WRITERS:
        raise TagfillError(f"{out} ends in none of {', '.join(_WRITERS)}; its ending decides what is written.")


def join(tables: Iterable[pa.Table], out: Path) -> None:
    """Write all rows into one file, whole or not at all; its ending decides the format."""
    with atomic_write(out) as file:
        _WRITERS[out.suffix](tables, file)


def lines(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """What is said about each image; the rows of an image lie together."""
    images = rows["image"].combine_chunks()
    columns = [rows[name].to_pylist() for name in ("label", "score", "present")]
    names, numbers = images.dictionary.to_pylist(), images.indices.to_pylist()
    start = 0
    while start < len(numbers):
        end = start
        while end < len(numbers) and numbers[end] == numbers[start]:
            end += 1
        labels, scores, present = (column[start:end] for column in columns)
        yield {
            "image": names[numbers[start]],
            "present": [label for label, there in zip(labels, present, strict=True) if there],
            "scores": dict(zip(labels, scores, strict=True)),
        }
        start = end


def _write_parquet(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for rows in tables:
            writer.write_table(rows)


def _write_csv(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    with pacsv.CSVWriter(file, _PLAIN, write_options=pacsv.WriteOptions(quoting_style="needed")) as writer:
        for rows in tables:
            for batch in rows.to_batches(max_chunksize=65536):
                writer.write_batch(batch.cast(_PLAIN))


def _write_json_lines(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
    for rows in tables:
        for line in lines(rows):
            text.write(json.dumps(line, ensure_ascii=False) + "\n")
    text.detach()


_WRITERS: dict[str, Callable[[Iterable[pa.Table], IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}


_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("image", _TEXT), ("label", _TEXT), ("score", pa.float32()), ("present", pa.bool_())])
_BAD = b"tagfill.bad"

Bad = tuple[str, str]  # name and problem


def predictions_table(names: Sequence[str], decided: Decided, classes: Sequence[str]) -> pa.Table:
    """Rows of some images.

    Args:
        names: n.
        decided: about them.
        classes: all names.
    """
    kept = decided.labels.shape[1]
    image = np.repeat(np.arange(len(names), dtype=np.int32), kept)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(image), pa.array(names, pa.string())),
        pa.DictionaryArray.from_arrays(pa.array(decided.labels.ravel()), pa.array(classes, pa.string())),
        pa.array(decided.scores.ravel()),
        pa.array(decided.present.ravel()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Parts:
    """A folder of parts."""

    folder: Path

    @property
    def plan(self) -> Path:
        """What the parts depend on."""
        return self.folder / "plan.json"

    def path(self, number: int) -> Path:
        """Of a part."""
        return self.folder / f"{number:06d}.parquet"

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """Those that are not there yet."""
        return [number for number in numbers if not self.path(number).exists()]

    def write(self, number: int, rows: pa.Table, bad: Sequence[Bad]) -> None:
        """Keep a part, whole or not at all."""
        with atomic_write(self.path(number)) as file:
            pq.write_table(rows.replace_schema_metadata({_BAD: json.dumps(list(bad))}), file, compression="zstd")

    def bad(self, number: int) -> list[Bad]:
        """Images of a part that could not be decoded."""
        metadata = pq.read_schema(self.path(number)).metadata
        return [(name, problem) for name, problem in json.loads(metadata[_BAD])]

    def rows(self, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of each part, one part at a time."""
        for number in numbers:
            yield pq.read_table(self.path(number)).replace_schema_metadata(None)


_PART_IMAGES, _PART_ROWS = 4096, 2**21  # a part has no more of either
_WORDS = {
    "model": "another model",
    "images": "another list of images",
    "count": "another list of images",
    "classes": "other classes",
    "thresholds": "other thresholds",
    "top_k": "another --top-k",
    "heatmaps": "other --heatmaps or --classes",
    "batch_size": "another --batch-size",
}


@dataclass(frozen=True)
class Plan:
    """Everything that decides what the results will be.

    Attributes:
        model: its identity.
        images: hash of the list of images.
        count: how many those are.
        classes: names.
        thresholds: of each class.
        top_k: how many labels of an image are kept; None keeps all.
        heatmaps: folder and classes of the pictures of class maps, if they are drawn.
        batch_size: last bits of scores depend on it.
    """

    model: str
    images: str
    count: int
    classes: tuple[str, ...]
    thresholds: tuple[float, ...]
    top_k: int | None
    heatmaps: dict[str, Any] | None
    batch_size: int

    @property
    def labels_per_image(self) -> int:
        """How many labels of an image are kept."""
        return min(self.top_k or len(self.classes), len(self.classes))

    @property
    def part_size(self) -> int:
        """Images of a part."""
        return max(1, min(_PART_IMAGES, _PART_ROWS // self.labels_per_image))

    @property
    def parts(self) -> list[range]:
        """The images of each part."""
        return [range(at, min(at + self.part_size, self.count)) for at in range(0, self.count, self.part_size)]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        values = asdict(self)
        return {**values, "classes": list(self.classes), "thresholds": list(self.thresholds)}

    def check(self, other: dict[str, Any], out: Path) -> None:
        """Refuse to go on with work that was begun with other settings."""
        for name, value in self.to_json().items():
            if other.get(name) != value:
                raise TagfillError(
                    f"The predictions of {out} were made with {_WORDS[name]}; choose another --out, or give --force to "
                    "make them anew."
                )


def read_plan(path: Path) -> dict[str, Any] | None:
    """What a plan on disk says; None where there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise TagfillError(f"{path} is damaged: it is not valid JSON; give --force to predict anew.") from None
    return content


def write_plan(path: Path, plan: Plan, **more: Any) -> None:
    """Keep a plan, with counts once they are known."""
    write_json(path, {**more, **plan.to_json()})


@dataclass(frozen=True)
class Opening:
    """How to open the model, for a process that has yet to."""

    path: str
    device: str
    threads: int | None

    def open(self) -> Predictor:
        """Open it."""
        return open_predictor(self.path, device=self.device, threads=self.threads)


@dataclass(frozen=True)
class Job:
    """All that making a part takes; it can be sent to another process.

    Attributes:
        opening: of the model.
        plan: of the whole file.
        parts: where parts go.
        number: of this one.
        images: of this part alone.
        workers: threads that decode.
    """

    opening: Opening
    plan: Plan
    parts: Parts
    number: int
    images: ImageList
    workers: int


@dataclass(frozen=True)
class Made:
    """What came of a job: images that were looked at, and those among them that could not be decoded."""

    images: int
    bad: list[Bad]


def make_part_elsewhere(job: Job) -> Made:
    """Make a part in a process of its own, which keeps the model open for its next one.

    A part that another process made meanwhile, before it died, is not made again.
    """
    if not job.parts.missing([job.number]):
        return Made(0, [])
    with SILENT.bar("", None) as bar:
        return make_part(_opened(job.opening), job, bar)


def make_part(predictor: Predictor, job: Job, bar: Bar) -> Made:
    """Make a part; its pictures are drawn before it counts as made."""
    plan, images, tables, bad = job.plan, job.images, list[pa.Table](), list[Bad]()
    heatmaps = _open_heatmaps(plan)
    batches = look_at(
        predictor,
        images,
        range(len(images)),
        batch_size=plan.batch_size,
        workers=job.workers,
        maps=heatmaps is not None,
    )
    for batch in batches:
        names = [images.name(number) for number in batch.numbers]
        tables.append(predictions_table(names, decide(batch.logits, plan.thresholds, plan.top_k), plan.classes))
        if heatmaps is not None and batch.maps is not None:
            present = decide(batch.logits, plan.thresholds).present
            for row, number in enumerate(batch.numbers):
                heatmaps.draw(images, number, plan.classes, batch.maps[row], present[row])
        bad.extend((images.name(number), problem) for number, problem in batch.bad)
        bar.advance(len(batch.numbers) + len(batch.bad))
    job.parts.write(job.number, pa.concat_tables(tables).unify_dictionaries().combine_chunks(), bad)
    return Made(len(images), bad)


@functools.lru_cache(maxsize=1)
def _opened(opening: Opening) -> Predictor:
    return opening.open()


def _open_heatmaps(plan: Plan) -> Heatmaps | None:
    if plan.heatmaps is None:
        return None
    chosen = plan.heatmaps["classes"]
    classes = None if chosen is None else tuple(plan.classes.index(name) for name in chosen)
    return Heatmaps(Path(plan.heatmaps["folder"]), classes)


@dataclass(frozen=True)
class PredictionFile:
    """How a file of predictions stands.

    Attributes:
        out: the file.
        images: how many were listed.
        predicted: images with predictions.
        bad: images that could not be decoded; `bad_list` names them.
        made: images that were looked at in this call; the others were there before, or are made elsewhere.
        finished: whether the file is there; if not, other processes still make parts of it.
    """

    out: Path
    images: int
    predicted: int
    bad: int
    made: int
    finished: bool

    @property
    def bad_list(self) -> Path:
        """Lines of name, tab, problem; not there where all images could be decoded."""
        return _beside(self.out, ".bad.tsv")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        listed = str(self.bad_list) if self.bad and self.finished else None
        counts = {name: getattr(self, name) for name in ("images", "predicted", "bad", "made", "finished")}
        return {"out": str(self.out), **counts, "bad_list": listed}


@dataclass(frozen=True)
class Target:
    """A file of predictions that is to be made, or was.

    Attributes:
        out: the file.
        plan: what it is to hold.
    """

    out: Path
    plan: Plan

    @property
    def parts(self) -> Parts:
        """Where its parts lie until it is finished."""
        return Parts(_beside(self.out.absolute(), ".parts"))

    @property
    def _sidecar(self) -> Path:
        return _beside(self.out, ".json")

    def begin(self, force: bool, world: int) -> PredictionFile | None:
        """Make ready, or tell that all is done already."""
        if force and world > 1:
            raise TagfillError(f"Of several processes none can begin anew; remove {self.out} and {self.parts.folder}.")
        if force:
            shutil.rmtree(self.parts.folder, ignore_errors=True)
            for path in (self._sidecar, self.out):
                path.unlink(missing_ok=True)
        finished = self._finished()
        if finished is not None:
            return finished
        if self.out.exists() and not self.parts.folder.exists():
            raise TagfillError(f"{self.out} is there already; choose another --out, or give --force to make it anew.")
        begun = read_plan(self.parts.plan)
        if begun is None:
            write_plan(self.parts.plan, self.plan)
        else:
            self.plan.check(begun, self.out)
        return None

    def end(self, made: int) -> PredictionFile:
        """Join the parts if all are there and nobody else is at it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_lock(self.parts.folder, "joins predictions"))
            except TagfillError:
                return self._standing(made)
            numbers = range(len(self.plan.parts))
            if self._finished() is None:
                if self.parts.missing(numbers):
                    return self._standing(made)
                bad = self._list_bad()
                join(self.parts.rows(numbers), self.out)
                write_plan(self._sidecar, self.plan, predicted=self.plan.count - bad, bad=bad)
            shutil.rmtree(self.parts.folder, ignore_errors=True)  # others who end now may be at it too
        finished = self._finished(made)
        assert finished is not None
        return finished

    def _standing(self, made: int) -> PredictionFile:
        """How far all processes together are."""
        every = range(len(self.plan.parts))
        there = set(every) - set(self.parts.missing(every))
        try:
            bad = sum(len(self.parts.bad(number)) for number in there)
        except FileNotFoundError:  # whoever joined them has just removed them
            finished = self._finished(made)
            if finished is None:
                raise
            return finished
        predicted = sum(len(self.plan.parts[number]) for number in there) - bad
        return PredictionFile(self.out, self.plan.count, predicted, bad, made, finished=False)

    def _finished(self, made: int = 0) -> PredictionFile | None:
        """How the file stands if it is complete."""
        told = read_plan(self._sidecar)
        if told is None or not self.out.exists():
            return None
        self.plan.check(told, self.out)
        return PredictionFile(self.out, self.plan.count, told["predicted"], told["bad"], made, finished=True)

    def _list_bad(self) -> int:
        count, path = 0, _beside(self.out, ".bad.tsv")
        with atomic_write(path) as file:
            for number in range(len(self.plan.parts)):
                for name, problem in self.parts.bad(number):
                    file.write(f"{name}\t{problem}\n".encode())
                    count += 1
        if not count:
            path.unlink()
        return count


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(out.name + ending)


def predict_to_file(
    run: ModelPath,
    images: Images | Iterable[Images],
    out: str | os.PathLike[str],
    *,
    split: str | None = None,
    threshold: Threshold = None,
    top_k: int | None = None,
    heatmaps: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    engine: str | None = None,
    jobs: int | None = None,
    ray_address: str | None = None,
    force: bool = False,
    progress: Progress = SILENT,
) -> PredictionFile:
    """Write what a model says about images into a file; of a file that was begun, only what is missing.

    Args:
        run: a run or its folder, a model folder, or an ONNX file.
        images: files, folders, patterns, shards, URLs, datasets, see `find_images`.
        out: a file that ends in .parquet, .csv or .jsonl.
        split: of datasets; without it all of their images.
        threshold: of all classes, or of some by name, in place of the model's own.
        top_k: only the most probable labels of each image.
        heatmaps: a folder for pictures of class maps, of the labels that are present.
        classes: draw these classes instead, whether they are present or not.
        batch_size: images that the model looks at together.
        workers: threads that decode.
        threads: of the network; by default one a core.
        device: `cpu`, `cuda`, `mps` or `auto`.
        engine: `joblib` for several processes of this machine, `ray` for those of a cluster, which must all see the
            same files; without it this process does everything.
        jobs: processes of the engine at once on this machine; one a core by default.
        ray_address: of a Ray cluster that runs already.
        force: make a file that is there anew.
        progress: told about each batch and each image that cannot be decoded.

    Raises:
        TagfillError: if the file was made or begun with another model, other images or other settings.
    """
    out = Path(out)
    check_ending(out)
    check_top_k(top_k)
    opening = Opening(str(model_path(run).absolute()), device, threads)  # a worker may have another working folder
    predictor = opening.open()
    if heatmaps is not None:
        predictor.check_maps()
    elif classes is not None:
        raise TagfillError("Classes are chosen for pictures of class maps; give a folder for --heatmaps too.")
    found = find_images(images, split=split, progress=progress)
    plan = Plan(
        model=predictor.identity,
        images=found.identity(),
        count=len(found),
        classes=predictor.classes,
        thresholds=resolve_thresholds(predictor.classes, predictor.thresholds, threshold),
        top_k=top_k,
        heatmaps=None if heatmaps is None else _heatmaps(Path(heatmaps), classes, predictor.classes),
        batch_size=batch_size,
    )
    rank, world = _rank_and_world()
    if engine is not None and world > 1:
        raise TagfillError("Several processes share the work already (WORLD_SIZE); leave out --engine.")
    spread = None if engine is None else create_engine(engine, workers=jobs, address=ray_address)
    target = Target(out, plan)
    done = target.begin(force, world)
    if done is not None:
        return done
    missing = target.parts.missing(range(rank, len(plan.parts), world))
    todo = [Job(opening, plan, target.parts, number, found.part(plan.parts[number]), workers) for number in missing]
    made = 0
    for part in _made(todo, predictor, spread, progress):
        made += part.images
        for name, problem in part.bad:
            progress.say(f"left out: {name}: {problem}")
    return target.end(made)


def _made(jobs: Sequence[Job], predictor: Predictor, engine: Engine | None, progress: Progress) -> Iterator[Made]:
    with progress.bar("predicting", sum(len(job.images) for job in jobs), "img") as bar:
        if engine is None:
            yield from (make_part(predictor, job, bar) for job in jobs)
            return
        for job, made in zip(jobs, engine.map(make_part_elsewhere, jobs), strict=True):
            bar.advance(len(job.images))
            yield made


def _rank_and_world() -> tuple[int, int]:
    """Which of how many processes this is, as torchrun says."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _heatmaps(folder: Path, chosen: Sequence[str] | None, classes: Sequence[str]) -> dict[str, Any]:
    """What a plan says about pictures of class maps."""
    for name in chosen or ():
        if name not in classes:
            raise unknown_name("class", name, classes)
    return {"folder": str(folder.absolute()), "classes": None if chosen is None else list(chosen)}
