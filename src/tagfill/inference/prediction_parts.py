"""The file of predictions: its parts while it is made, its manifest, and its formats.

Parquet and CSV files have one row per image and label:

| column | type | meaning |
|---|---|---|
| image | text | name of the image |
| label | text | class name |
| probability | float32 | that the label is present |
| present | bool | whether the probability reaches the threshold of the class |

JSON lines have one line per image:

    {"image": "photos/1.jpg", "present": ["bell"], "scores": {"bell": 0.93, "anchor": 0.04}}
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from tagfill.dataset.tables import spreadsheet_safe
from tagfill.errors import TagfillError, first_problem
from tagfill.inference.pipeline import LabelDecisions
from tagfill.inference.tagged import TagUse
from tagfill.io import atomic_write, exclusive_lock, plain_cell, write_json

_PART_IMAGES, _PART_ROWS = 4096, 2**21  # upper limits of a part

BadImage = tuple[str, str]  # name and problem


@dataclass(frozen=True)
class PredictionFile:
    """State of a prediction file.

    Attributes:
        out: the file.
        images: number of images listed.
        predicted: number of images with predictions.
        bad: number of images that could not be decoded; `bad_list` names them.
        made: number of images processed by this call; the others existed before or are made by other processes.
        finished: whether the file is complete; if not, other processes are still making parts of it.
    """

    out: Path
    images: int
    predicted: int
    bad: int
    made: int
    finished: bool

    @property
    def bad_list(self) -> Path:
        """Lines of name, tab, problem; exists only if some images could not be decoded."""
        return _beside(self.out, ".bad.tsv")

    def to_json(self) -> dict[str, Any]:
        """The state as plain values."""
        listed = str(self.bad_list) if self.bad and self.finished else None
        counts = {name: getattr(self, name) for name in ("images", "predicted", "bad", "made", "finished")}
        return {"out": str(self.out), **counts, "bad_list": listed}


# The manifest


class HeatmapOptions(BaseModel):
    """Where pictures of class maps go, and which classes are drawn.

    Attributes:
        folder: of all pictures.
        classes: names; None draws the labels that are present.
    """

    model_config = ConfigDict(frozen=True)

    folder: str
    classes: tuple[str, ...] | None


class PredictionManifest(BaseModel):
    """Everything that decides what a prediction file contains.

    It is `OUT.parts/plan.json` while the work is under way, so that interrupted work resumes with the same settings,
    and stays beside the finished file as `OUT.json`.

    Attributes:
        model: identity of the model.
        images: hash of the list of images.
        count: number of images.
        classes: names.
        thresholds: of each class.
        top_k: number of labels kept per image; None keeps all.
        heatmaps: of the pictures of class maps, if they are drawn.
        batch_size: the last bits of scores depend on it.
        raw_scores: whether the probabilities are the sigmoid of the logits, even if the model is calibrated.
        tags: that images of datasets have already, if they were used.
        spreadsheet: whether an apostrophe is before names that a spreadsheet would run.
        predicted: number of images with predictions, once finished.
        bad: number of images that could not be decoded, once finished.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    images: str
    count: int
    classes: tuple[str, ...]
    thresholds: tuple[float, ...]
    top_k: int | None
    heatmaps: HeatmapOptions | None
    batch_size: int
    raw_scores: bool = False
    tags: TagUse | None = None
    spreadsheet: bool = False
    predicted: int = 0
    bad: int = 0

    @property
    def parts(self) -> list[range]:
        """The images of each part."""
        labels = min(self.top_k or len(self.classes), len(self.classes))
        size = max(1, min(_PART_IMAGES, _PART_ROWS // labels))
        return [range(at, min(at + size, self.count)) for at in range(0, self.count, size)]

    def check_same_settings(self, other: PredictionManifest, out: Path) -> None:
        """Raise if a file was made, or begun, with other settings."""
        for name, difference in _DIFFERENCES.items():
            if getattr(self, name) != getattr(other, name):
                raise TagfillError(
                    f"The predictions of {out} were made with {difference}; choose another --out, or give --force to "
                    "overwrite them."
                )
        if (self.tags and self.tags.identity) != (other.tags and other.tags.identity):
            raise TagfillError(
                f"The predictions of {out} were made with other tags, or another choice of --ignore-tags; choose "
                "another --out, or give --force to overwrite them."
            )

    @classmethod
    def read(cls, path: Path) -> PredictionManifest | None:
        """Read a manifest; None if there is none."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise TagfillError(f"{path} is damaged: {first_problem(error)}; give --force to predict again.") from None

    def write(self, path: Path, *, finished: bool) -> None:
        """Write the manifest; the counts only if the file is finished."""
        counts = {"predicted": self.predicted, "bad": self.bad} if finished else {}
        write_json(path, {**counts, **self.model_dump(mode="json", exclude={"predicted", "bad"})})


PLAN = "plan.json"
_DIFFERENCES = {
    "model": "another model",
    "images": "another list of images",
    "count": "another list of images",
    "classes": "other classes",
    "raw_scores": "another choice of --raw-scores",
    "spreadsheet": "another choice of --spreadsheet",
    "thresholds": "other thresholds",
    "top_k": "another --top-k",
    "heatmaps": "other --heatmaps or --classes",
    "batch_size": "another --batch-size",
}


# The parts


@dataclass(frozen=True)
class PartsFolder:
    """A prediction file and the folder of its parts, shared by all processes that work on it.

    What is missing is seen from the files alone: processes do not talk to each other.

    Attributes:
        out: the prediction file.
        manifest: what it contains.
    """

    out: Path
    manifest: PredictionManifest

    @property
    def folder(self) -> Path:
        """The parts, until the file is finished."""
        return _beside(self.out.absolute(), ".parts")

    def start(self, force: bool, world: int) -> PredictionFile | None:
        """Prepare the folder; return the state of the file if it is complete already."""
        if force and world > 1:
            raise TagfillError(
                f"--force does not work with several processes; remove {self.out} and {self.folder} yourself."
            )
        if force:
            shutil.rmtree(self.folder, ignore_errors=True)
            for path in (self._finished_manifest, self.out):
                path.unlink(missing_ok=True)
        finished = self._read_finished()
        if finished is not None:
            shutil.rmtree(self.folder, ignore_errors=True)  # of a process that was killed while it removed them
            return finished
        if self.out.exists() and not self.folder.exists():
            raise TagfillError(f"{self.out} exists already; choose another --out, or give --force to overwrite it.")
        path = self.folder / PLAN
        begun = PredictionManifest.read(path)
        if begun is None:
            self.manifest.write(path, finished=False)
        else:
            self.manifest.check_same_settings(begun, self.out)
        return None

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """The parts that do not exist yet."""
        return [number for number in numbers if not self._path(number).exists()]

    def write(self, number: int, rows: pa.Table, bad: Sequence[BadImage]) -> None:
        """Write a part atomically; its bad images are in the metadata."""
        with atomic_write(self._path(number)) as file:
            pq.write_table(rows.replace_schema_metadata({_BAD: json.dumps(list(bad))}), file, compression="zstd")

    def finish(self, made: int) -> PredictionFile:
        """Join the parts if all exist and no other process is joining them.

        Args:
            made: number of images processed by this process.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_lock(self.folder, "joins predictions"))
            except TagfillError:
                return self._unfinished(made)
            if self._read_finished() is None:
                numbers = range(len(self.manifest.parts))
                if self.missing(numbers):
                    return self._unfinished(made)
                bad = self._write_bad_list()
                with atomic_write(self.out) as file:
                    WRITERS[self.out.suffix](map(self._rows, numbers), file)
                counts = {"predicted": self.manifest.count - bad, "bad": bad}
                self.manifest.model_copy(update=counts).write(self._finished_manifest, finished=True)
            shutil.rmtree(self.folder, ignore_errors=True)  # another process may be removing it too
        finished = self._read_finished(made)
        assert finished is not None
        return finished

    @property
    def _finished_manifest(self) -> Path:
        return _beside(self.out, ".json")

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.parquet"

    def _rows(self, number: int) -> pa.Table:
        rows = pq.read_table(self._path(number)).replace_schema_metadata(None)
        return spreadsheet_safe(rows.cast(_CSV_SCHEMA)) if self.manifest.spreadsheet else rows

    def _bad(self, number: int) -> list[BadImage]:
        metadata = pq.read_schema(self._path(number)).metadata
        return [(name, problem) for name, problem in json.loads(metadata[_BAD])]

    def _unfinished(self, made: int) -> PredictionFile:
        """The state while parts are missing, counting the parts of all processes."""
        ranges = self.manifest.parts
        existing = set(range(len(ranges))) - set(self.missing(range(len(ranges))))
        try:
            bad = sum(len(self._bad(number)) for number in existing)
        except FileNotFoundError:  # another process has just joined and removed them
            finished = self._read_finished(made)
            if finished is None:
                raise
            return finished
        predicted = sum(len(ranges[number]) for number in existing) - bad
        return PredictionFile(self.out, self.manifest.count, predicted, bad, made, finished=False)

    def _read_finished(self, made: int = 0) -> PredictionFile | None:
        """The state if the file is complete."""
        found = PredictionManifest.read(self._finished_manifest)
        if found is None or not self.out.exists():
            return None
        self.manifest.check_same_settings(found, self.out)
        return PredictionFile(self.out, self.manifest.count, found.predicted, found.bad, made, finished=True)

    def _write_bad_list(self) -> int:
        """List the images that could not be decoded; return their number."""
        count, path = 0, _beside(self.out, ".bad.tsv")
        with atomic_write(path) as file:
            for number in range(len(self.manifest.parts)):
                for name, problem in self._bad(number):
                    file.write(f"{name}\t{problem}\n".encode())
                    count += 1
        if not count:
            path.unlink()
        return count


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(out.name + ending)


# Tables and formats

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema([("image", _TEXT), ("label", _TEXT), ("probability", pa.float32()), ("present", pa.bool_())])
_CSV_SCHEMA = pa.schema(
    [("image", pa.string()), ("label", pa.string()), ("probability", pa.float32()), ("present", pa.bool_())]
)
_BAD = b"tagfill.bad"


def prediction_table(names: Sequence[str], decisions: LabelDecisions, classes: Sequence[str]) -> pa.Table:
    """Rows of n images: k labels for each."""
    image = np.repeat(np.arange(len(names), dtype=np.int32), decisions.labels.shape[1])
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(image), pa.array(names, pa.string())),
        pa.DictionaryArray.from_arrays(pa.array(decisions.labels.ravel()), pa.array(classes, pa.string())),
        pa.array(decisions.scores.ravel()),
        pa.array(decisions.present.ravel()),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _write_parquet(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        for rows in tables:
            writer.write_table(rows)


def _write_csv(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    with pacsv.CSVWriter(file, _CSV_SCHEMA, write_options=pacsv.WriteOptions(quoting_style="needed")) as writer:
        for rows in tables:
            for batch in rows.to_batches(max_chunksize=65536):
                writer.write_batch(batch.cast(_CSV_SCHEMA))


def _write_json_lines(tables: Iterable[pa.Table], file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
    for rows in tables:
        for line in _lines(rows):
            text.write(json.dumps(line, ensure_ascii=False) + "\n")
    text.detach()


def _lines(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """One record per image; the rows of an image are consecutive."""
    images = rows["image"].combine_chunks()
    columns = [rows[name].to_pylist() for name in ("label", "probability", "present")]
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


def read_predicted_tags(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read the labels that are present from a file of `predict_to_file`, in the order of the file.

    Args:
        path: a .parquet, .csv or .jsonl file.

    Returns:
        The present labels of each image, also of images without any.

    Raises:
        TagfillError: if the file has not the columns or keys of predictions.

    Example:
        >>> read_predicted_tags("predictions.parquet")["photos/1.jpg"]  # doctest: +SKIP
        ['bell']
    """
    path = Path(path)
    if path.suffix not in WRITERS:
        raise TagfillError(f"{path} ends in none of {', '.join(WRITERS)}, as files of predictions do.")
    tags: dict[str, list[str]] = {}
    try:
        if path.suffix == ".jsonl":
            with path.open("rb") as file:
                for line in file:
                    record = _PredictedImage.model_validate_json(line)
                    tags.setdefault(record.image, []).extend(record.present)
            return tags
        if path.suffix == ".parquet":
            rows = pq.read_table(path, columns=["image", "label", "present"])
        else:
            options = pacsv.ConvertOptions(column_types=_CSV_SCHEMA, include_columns=["image", "label", "present"])
            rows = pacsv.read_csv(path, convert_options=options)
        columns = [rows[name].to_pylist() for name in ("image", "label", "present")]
        manifest = PredictionManifest.read(_beside(path, ".json")) if path.suffix == ".csv" else None
        if manifest is not None and manifest.spreadsheet:
            columns[:2] = [[plain_cell(name) for name in column] for column in columns[:2]]
    except FileNotFoundError:
        raise TagfillError(f"There is no file {path}.") from None
    except (pa.ArrowException, ValidationError, OSError, KeyError, ValueError):
        raise TagfillError(f"{path} is not a file of predictions; make one with 'tagfill predict --out'.") from None
    for image, label, present in zip(*columns, strict=True):
        its = tags.setdefault(image, [])
        if present:
            its.append(label)
    return tags


class _PredictedImage(BaseModel):
    image: str
    present: list[str]


WRITERS: dict[str, Callable[[Iterable[pa.Table], IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}
